"""What every Classifier must do: models of every library, made here, a table of predictions, and a URL."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import timm
import torch
import torchvision
import transformers
from http_service import serving_over_http
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config
from timm.models import save_for_hf

from c2b_ray.errors import WeightsError
from c2b_ray.models import catalog, devices
from c2b_ray.models.memory_classifier import InMemory, MemoryClassifier, Preprocess, hold
from c2b_ray.roles import Classifier, Floats, Pixels
from c2b_ray.world.zoo import names

LABELS = ("cat", "dog", "owl", "rat", "yak")
KINDS = ["timm", "torchvision", "hf", "onnx", "zero_shot", "http", "table", "module", "callable"]


def pictures(n: int = 5) -> list[Pixels]:
    noise = np.random.default_rng(0)
    return [noise.integers(0, 256, (64 + 9 * i, 120 - 11 * i, 3), dtype=np.uint8) for i in range(n)]


def onnx_file(path: Path, shape: list[int | str], softmax: bool = False, kind: int = TensorProto.FLOAT) -> Path:
    """Channel means, times a matrix: logits 5, with N×3×H×W or N×H×W×3 in."""
    axes = [2, 3] if shape[1] == 3 else [1, 2]
    weight = numpy_helper.from_array(np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32), "w")
    over = numpy_helper.from_array(np.array(axes, np.int64), "axes")
    nodes = [
        helper.make_node("Cast", ["pixels"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["f", "axes"], ["m"], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["logits"]),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["p"], axis=1))
    out = helper.make_tensor_value_info("p" if softmax else "logits", TensorProto.FLOAT, [shape[0], 5])
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("pixels", kind, shape)], [out], [weight, over])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def timm_directory(path: Path) -> Path:
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=5)
    save_for_hf(model, path, safe_serialization=True, model_config={"label_names": list(LABELS)})
    return path


def torchvision_file(path: Path) -> Path:
    torch.manual_seed(0)
    save_file(torchvision.models.squeezenet1_1(num_classes=5).state_dict(), path)
    return path


def hf_directory(path: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    transformers.ViTForImageClassification(config).save_pretrained(path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_over_http(LABELS) as (url, _):
        yield url


def brightness(images: list[Pixels]) -> Floats:
    """Logits of five labels, from the means of each picture's channels."""
    weight = np.random.default_rng(1).normal(size=(3, 5))
    return np.stack([image.mean(axis=(0, 1)) / 255 @ weight for image in images]).astype(np.float32)


@pytest.fixture(scope="module")
def in_memory() -> dict[str, MemoryClassifier]:
    torch.manual_seed(0)
    module = torchvision.models.squeezenet1_1(num_classes=5)
    return hold(
        {
            "module": InMemory(module, LABELS, Preprocess(64), batch=2),
            "callable": InMemory(brightness, LABELS, batch=2),
        }
    )


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory, url: str, in_memory: dict[str, MemoryClassifier]) -> dict[str, str]:
    place = tmp_path_factory.mktemp("classifiers")
    names = place / "names.txt"
    names.write_text("\n".join(LABELS) + "\n")
    softmax = np.random.default_rng(2).dirichlet(np.ones(5), size=5)
    rows = [
        f"images/{i}.jpg,{label},{p:.6f}" for i, row in enumerate(softmax) for label, p in zip(LABELS, row, strict=True)
    ]
    (place / "predictions.csv").write_text("\n".join(["file,class,probability", *rows]))
    return {
        "timm": f"timm:{timm_directory(place / 'timm')}?device=cpu&batch=2",
        "torchvision": f"torchvision:squeezenet1_1?weights={torchvision_file(place / 'w.safetensors')}"
        f"&labels={names}&size=64&batch=2&device=cpu",
        "onnx": f"onnx:{onnx_file(place / 'm.onnx', [2, 3, 32, 32])}?labels={names}",
        "hf": f"hf:{hf_directory(place / 'hf')}?device=cpu&batch=2",
        "zero_shot": f"world:clip?labels={','.join(LABELS)}&device=cpu&batch=2",
        "http": url,
        "table": f"table:{place / 'predictions.csv'}",
        **{name: classifier.spec for name, classifier in in_memory.items()},
    }


@pytest.fixture(scope="module", params=KINDS)
def classifier(request: pytest.FixtureRequest, specs: dict[str, str]) -> Classifier:
    return catalog.classifier(specs[request.param])


KEYS = [f"images/{i}.jpg" for i in range(5)]


def test_it_is_the_role(classifier: Classifier) -> None:
    assert isinstance(classifier, Classifier)
    assert classifier.labels == LABELS
    assert len(classifier.revision) == 20


def test_logits_have_their_shape_and_follow_the_order(classifier: Classifier) -> None:
    images = pictures()
    found = classifier.logits(images, KEYS)
    assert found.shape == (5, 5)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert len(np.unique(found, axis=0)) == 5
    order = [3, 0, 4, 1, 2]
    again = classifier.logits([images[i] for i in order], [KEYS[i] for i in order])
    np.testing.assert_allclose(again, found[order], atol=1e-4)


def test_a_batch_of_any_size_gives_the_same(classifier: Classifier) -> None:
    images = pictures()
    whole = classifier.logits(images, KEYS)
    alone = [classifier.logits([image], [key]) for image, key in zip(images, KEYS, strict=True)]
    np.testing.assert_allclose(np.concatenate(alone), whole, atol=1e-4)


def test_no_images(classifier: Classifier) -> None:
    assert classifier.logits([], []).shape == (0, 5)
    assert classifier.logits([], []).dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", ["", "labels"])
def test_it_is_described_without_being_loaded(kind: str, options: str, specs: dict[str, str], tmp_path: Path) -> None:
    spec = specs[kind]
    if options and kind in ("timm", "hf", "onnx", "torchvision"):
        names = tmp_path / "other.txt"
        names.write_text("\n".join("abcde") + "\n")
        spec = re.sub(r"[&?]labels=[^&]*", "", spec)
        spec += ("&" if "?" in spec else "?") + f"labels={names}"
    known = catalog.describe("classifier", spec)
    assert known is not None
    assert known == catalog.description_of(catalog.classifier(spec))
    assert known.labels


@pytest.mark.parametrize("name", names("classifier"))
def test_the_worlds_classifiers_are_described(name: str) -> None:
    known = catalog.describe("classifier", f"world:{name}")
    assert known is not None
    assert known == catalog.description_of(catalog.classifier(f"world:{name}"))


def test_weights_of_ones_own_are_described_from_their_header(tmp_path: Path) -> None:
    torch.manual_seed(0)
    file = tmp_path / "w.safetensors"
    tensors = timm.create_model("test_resnet", num_classes=7).state_dict()
    save_file(tensors, file)
    spec = f"timm:test_resnet?weights={file}"
    known = catalog.describe("classifier", spec)
    assert known is not None
    assert known == catalog.description_of(catalog.classifier(spec))
    assert len(known.labels) == 7
    # What only its weights tell is told when they are loaded.
    save_file({**tensors, "conv1.0.weight": torch.zeros(1)}, file)
    other = catalog.describe("classifier", spec)
    assert other is not None
    assert other.revision != known.revision
    with pytest.raises(WeightsError):
        catalog.classifier(spec)


@pytest.mark.parametrize("softmax", [False, True])
def test_onnx_files_are_described(tmp_path: Path, softmax: bool) -> None:
    model = onnx.load(onnx_file(tmp_path / "m.onnx", ["n", 16, 16, 3], softmax, TensorProto.UINT8))
    helper.set_model_props(model, {"mean": "0.5", "labels": json.dumps(LABELS)})
    beside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 64}  # `axes` stays inside
    onnx.save(model, tmp_path / "m.onnx", **beside)
    spec = f"onnx:{tmp_path / 'm.onnx'}?layout=nhwc&resize=20"
    known = catalog.describe("classifier", spec)
    assert known is not None
    assert known == catalog.description_of(catalog.classifier(spec))
    assert known.labels == LABELS


def test_an_onnx_file_that_leaves_its_outputs_open_has_to_be_loaded(tmp_path: Path) -> None:
    model = onnx.load(onnx_file(tmp_path / "m.onnx", ["n", 3, 16, 16]))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "classes"
    onnx.save(model, tmp_path / "m.onnx")
    assert catalog.describe("classifier", f"onnx:{tmp_path / 'm.onnx'}") is None


def test_a_large_table_of_predictions_is_not_read_for_its_description(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    rows = (f"images/{i:040d}.jpg,cat,1.0" for i in range(400_000))
    path.write_text("\n".join(["file,class,probability", *rows]))
    assert catalog.describe("classifier", f"table:{path}") is None


@pytest.mark.parametrize("kind", ["timm", "hf", "onnx", "table"])
def test_the_revision_is_of_the_content(kind: str, specs: dict[str, str], tmp_path: Path) -> None:
    name, _, query = specs[kind].partition(":")[2].partition("?")
    moved = tmp_path / Path(name).name
    shutil.copytree(name, moved) if Path(name).is_dir() else shutil.copy(name, moved)
    spec = f"{kind}:{moved}?{query}" if query else f"{kind}:{moved}"
    before = catalog.classifier(specs[kind]).revision
    assert catalog.classifier(spec).revision == before
    if kind == "hf":
        config = moved / "preprocessor_config.json"
        config.write_text(config.read_text().replace('"height": 32', '"height": 40'))
    elif kind == "timm":
        config = moved / "config.json"
        config.write_text(config.read_text().replace("bilinear", "bicubic"))
    elif kind == "onnx":
        spec += "&mean=0.5"
    else:
        moved.write_text(moved.read_text().replace("0.", "0.0", 1))
    assert catalog.classifier(spec).revision != before


def test_timm_sees_what_timms_own_transform_gives(specs: dict[str, str]) -> None:
    directory = specs["timm"].removeprefix("timm:").partition("?")[0]
    model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval()
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    with torch.inference_mode():
        batch = torch.stack([transform(Image.fromarray(image)) for image in pictures()])
        expected = torch.cat([model(part) for part in batch.split(2)]).numpy()
    # Prepared on tensors: within 2 of 255 levels of Pillow (tests/unit/models/test_preprocess.py).
    np.testing.assert_allclose(catalog.classifier(specs["timm"]).logits(pictures(), KEYS), expected, atol=2e-2)


def test_torchvision_sees_what_its_own_transform_gives(tmp_path: Path) -> None:
    file = torchvision_file(tmp_path / "w.safetensors")
    model = torchvision.models.squeezenet1_1(num_classes=5).eval()
    torch.manual_seed(0)
    model.load_state_dict(torchvision.models.squeezenet1_1(num_classes=5).state_dict())
    transform = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.transforms()
    with torch.inference_mode():
        expected = model(torch.stack([transform(Image.fromarray(image)) for image in pictures(2)])).numpy()
    found = catalog.classifier(f"torchvision:squeezenet1_1?weights={file}&device=cpu").logits(pictures(2), KEYS[:2])
    np.testing.assert_allclose(found, expected, atol=2e-2)


def test_hf_sees_what_its_own_processor_gives(specs: dict[str, str]) -> None:
    directory = specs["hf"].removeprefix("hf:").partition("?")[0]
    model = transformers.AutoModelForImageClassification.from_pretrained(directory).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(directory)
    with torch.inference_mode():
        pixels = processor(images=[Image.fromarray(image) for image in pictures()], return_tensors="pt")
        expected = model(**pixels).logits.numpy()
    np.testing.assert_allclose(catalog.classifier(specs["hf"]).logits(pictures(), KEYS), expected, atol=1e-5)


@pytest.mark.parametrize("resize", [32, 40])
def test_onnx_preprocessing_is_torchvisions(tmp_path: Path, resize: int) -> None:
    transform = torchvision.transforms._presets.ImageClassification(crop_size=32, resize_size=resize)
    batch = torch.stack([transform(Image.fromarray(image)) for image in pictures()]).numpy()
    weight = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    expected = batch.mean(axis=(2, 3)) @ weight
    for name, shape in [("nchw", ["n", 3, 32, 32]), ("nhwc", ["n", 32, 32, 3])]:
        spec = f"onnx:{onnx_file(tmp_path / f'{name}.onnx', shape)}?resize={resize}"
        np.testing.assert_allclose(catalog.classifier(spec).logits(pictures(), KEYS), expected, atol=1e-4)


def test_a_uint8_onnx_input_gets_raw_pixels(tmp_path: Path) -> None:
    spec = f"onnx:{onnx_file(tmp_path / 'm.onnx', ['n', 16, 16, 3], kind=TensorProto.UINT8)}"
    grey: list[Pixels] = [np.full((20, 30, 3), 200, np.uint8)]
    weight = np.random.default_rng(1).normal(size=(3, 5))
    np.testing.assert_allclose(catalog.classifier(spec).logits(grey, [""])[0], 200 * weight.sum(axis=0), rtol=1e-4)


def test_onnx_softmax_outputs_become_log_probabilities(tmp_path: Path) -> None:
    raw = catalog.classifier(f"onnx:{onnx_file(tmp_path / 'a.onnx', ['n', 3, 16, 16])}").logits(pictures(), KEYS)
    spec = f"onnx:{onnx_file(tmp_path / 'b.onnx', ['n', 3, 16, 16], softmax=True)}"
    found = catalog.classifier(spec).logits(pictures(), KEYS)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found - found[:, :1], raw - raw[:, :1], atol=1e-4)


def nan_of(spec: str) -> Floats:
    return catalog.classifier(spec).logits(pictures(1), ["x"])


def test_nan_that_a_model_computes_stays_nan(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = torchvision.models.squeezenet1_1(num_classes=5).state_dict()
    save_file(
        {**state, "features.0.bias": torch.full_like(state["features.0.bias"], math.nan)}, tmp_path / "w.safetensors"
    )
    spec = f"torchvision:squeezenet1_1?weights={tmp_path / 'w.safetensors'}&device=cpu&size=64"
    assert np.isnan(nan_of(spec)).any()
    model = onnx.load(onnx_file(tmp_path / "m.onnx", ["n", 3, 16, 16], softmax=True))
    weight = next(t for t in model.graph.initializer if t.name == "w")
    weight.CopyFrom(numpy_helper.from_array(np.full((3, 5), np.nan, np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    assert np.isnan(nan_of(f"onnx:{tmp_path / 'm.onnx'}")).all()


def test_metadata_of_an_onnx_file_replaces_the_defaults(tmp_path: Path) -> None:
    plain = onnx_file(tmp_path / "plain.onnx", ["n", 3, 16, 16])
    model = onnx.load(plain)
    helper.set_model_props(model, {"mean": "0.5", "std": "0.25,0.5,0.5", "labels": json.dumps(LABELS)})
    onnx.save(model, tmp_path / "told.onnx")
    told = catalog.classifier(f"onnx:{tmp_path / 'told.onnx'}")
    asked = catalog.classifier(f"onnx:{plain}?mean=0.5&std=0.25,0.5,0.5")
    assert told.labels == LABELS
    assert asked.labels == tuple(f"label_{i}" for i in range(5))
    np.testing.assert_array_equal(told.logits(pictures(), KEYS), asked.logits(pictures(), KEYS))
    assert (told.logits(pictures(), KEYS) != catalog.classifier(f"onnx:{plain}").logits(pictures(), KEYS)).any()


@pytest.mark.parametrize("kind", ["timm", "torchvision", "hf"])
def test_half_precision_has_a_revision_of_its_own_however_it_was_chosen(kind: str, specs: dict[str, str]) -> None:
    """So that a stage's cache never takes the answers of the one for the other's; described and loaded alike."""
    spec = specs[kind]
    option = f"{spec}{'&' if '?' in spec else '?'}precision=bf16"
    images = pictures()
    whole, half = catalog.classifier(spec), catalog.classifier(option)
    with devices.assigned([], "bf16"):
        placed = catalog.classifier(spec)
        described = catalog.describe("classifier", spec)
    assert described is not None
    assert half.revision == placed.revision == described.revision != whole.revision
    logits = whole.logits(images, [""] * 5)
    assert np.array_equal(half.logits(images, [""] * 5), placed.logits(images, [""] * 5))
    assert 0 < np.abs(half.logits(images, [""] * 5) - logits).max() < 0.1 * max(1.0, float(np.abs(logits).max()))
