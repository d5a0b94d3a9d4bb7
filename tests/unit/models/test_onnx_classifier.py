"""What an `onnx:` file must be, and what its options are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.pixels.resize import Preprocessing


def graph(path: Path, *shapes: list[int | str], kind: int = TensorProto.FLOAT) -> Path:
    """A mean over all but the batch, for the first of the inputs."""
    inputs = [helper.make_tensor_value_info(f"in{i}", kind, shape) for i, shape in enumerate(shapes)]
    nodes = [
        helper.make_node("Cast", ["in0"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["f"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["out"], keepdims=1, axes=[1]),
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "g", inputs, [output])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize("data", [b"", b"junk" * 99, b"PK\x03\x04 a zip"])
def test_what_is_no_onnx_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(WeightsError, match="not an ONNX file"):
        catalog.classifier(f"onnx:{tmp_path / 'm.onnx'}")


def test_a_damaged_or_absent_file_is_refused(tmp_path: Path) -> None:
    whole = graph(tmp_path / "m.onnx", ["n", 3, 8, 8]).read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    for name in ("cut.onnx", "nowhere.onnx", ""):
        with pytest.raises(WeightsError, match=str(tmp_path)):
            catalog.classifier(f"onnx:{tmp_path / name}")


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ([["n", 10]], TensorProto.FLOAT),
        ([["n", 1, 8, 8]], TensorProto.FLOAT),
        ([["n", 3, 8, 8]], TensorProto.INT64),
        ([["n", 3, 8, 8], ["n", 4]], TensorProto.FLOAT),
    ],
)
def test_a_graph_that_takes_no_image_is_refused(tmp_path: Path, shapes: list[list[int | str]], kind: int) -> None:
    with pytest.raises(WeightsError, match="expected one image input"):
        catalog.classifier(f"onnx:{graph(tmp_path / 'm.onnx', *shapes, kind=kind)}")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("size=16", "the graph takes 8 × 8"),
        ("resize=7", "smaller than"),
        ("layout=nhwc", "did you mean 'nchw'"),
        ("input=in1", "no input 'in1'; did you mean 'in0'"),
        ("output=label", "no output 'label'"),
        ("scale=2", "leave out scale"),
        ("preprocess=torch", "imagenet"),
        ("squash=true&resize=9", "leave resize= out"),
        ("squash=yes", "true or false"),
        ("interpolation=area", "bilinear"),
        ("channels=gbr", "bgr"),
        ("threads=0", "threads"),
        ("device=tpu", "no device 'tpu'"),
        ("labels=nowhere.txt", "nowhere"),
        ("men=0.5", "did you mean 'mean'"),
    ],
)
def test_options_are_checked(tmp_path: Path, query: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.classifier(f"onnx:{graph(tmp_path / 'm.onnx', ['n', 3, 8, 8])}?preprocess=imagenet&{query}")


def test_a_free_size_is_asked_for(tmp_path: Path) -> None:
    path = graph(tmp_path / "m.onnx", ["n", 3, "h", "w"])
    with pytest.raises(SpecError, match=r"any height and width, .* state it in pixels, such as \?size=224"):
        catalog.classifier(f"onnx:{path}?preprocess=none")
    classifier = catalog.classifier(f"onnx:{path}?size=10,12&preprocess=none")
    assert classifier.labels == ("not label_0", "label_0")
    found = classifier.logits([np.full((20, 40, 3), 7, np.uint8)] * 3, [""] * 3)
    np.testing.assert_allclose(found, [[0, 7]] * 3)


def test_fixed_batches_are_filled_up_and_cut_back(tmp_path: Path) -> None:
    classifier = catalog.classifier(f"onnx:{graph(tmp_path / 'm.onnx', [4, 3, 8, 8])}?scale=1&mean=0&std=1")
    images = [np.full((9, 9, 3), value, np.uint8) for value in range(6)]
    assert classifier.logits(images, [""] * 6)[:, 1].tolist() == pytest.approx(range(6))


@pytest.mark.parametrize("shape", [(40, 100), (100, 40), (8, 16), (7, 15)])
def test_an_oblong_input_is_covered_and_centred(shape: tuple[int, int]) -> None:
    prepare = Preprocessing(8, 16, 8, (0.0,) * 3, (1.0,) * 3, 1.0, True, "float32")
    image = np.zeros((*shape, 3), np.uint8)
    image[shape[0] // 2 :, :, 0] = 200
    image[:, shape[1] // 2 :, 1] = 200
    [found] = prepare([image])
    assert found.shape == (8, 16, 3)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[..., 0].mean(), 100, atol=16)
    np.testing.assert_allclose(found[..., 1].mean(), 100, atol=8)


def ending(path: Path, *ends: str) -> Path:
    """A graph whose label numbers are the means of the three channels of an 8 × 8 picture, followed by these nodes; its
    first output is the whole picture, its last the labels."""
    names = ["means", *(f"end{i}" for i in range(len(ends)))]
    nodes = [
        helper.make_node("Identity", ["x"], ["whole"]),
        helper.make_node("ReduceMean", ["x"], ["means"], keepdims=0, axes=[2, 3]),
        *(helper.make_node(kind, [one], [other]) for kind, one, other in zip(ends, names, names[1:], strict=False)),
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, *sides])
        for name, sides in (("whole", [8, 8]), (names[-1], []))
    ]
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])], outputs
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize("ends", [("Softmax",), ("Softmax", "Identity"), ("Softmax", "Flatten", "Identity")])
def test_probabilities_are_known_through_nodes_that_change_only_their_form(tmp_path: Path, ends: tuple[str]) -> None:
    spec = f"onnx:{ending(tmp_path / 'm.onnx', *ends)}?scale=0.01&mean=0&std=1&output=end{len(ends) - 1}"
    image = np.zeros((8, 8, 3), np.uint8)
    image[:] = (10, 120, 240)
    [found] = catalog.classifier(spec).logits([image], [""])
    means = np.array([0.1, 1.2, 2.4])
    np.testing.assert_allclose(found, np.log(np.exp(means) / np.exp(means).sum()), atol=1e-5)


def test_an_output_that_is_no_number_for_each_label_is_refused_with_the_others(tmp_path: Path) -> None:
    spec = f"onnx:{ending(tmp_path / 'm.onnx')}?preprocess=imagenet"
    for read in (catalog.load, catalog.describe):
        with pytest.raises(WeightsError, match=r"'whole' is 3 × 8 × 8 for an image, .* with \?output_name=: means"):
            read("classifier", spec)
    assert catalog.classifier(f"{spec}&output=means").labels == ("label_0", "label_1", "label_2")
