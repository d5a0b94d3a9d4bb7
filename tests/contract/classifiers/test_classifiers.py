"""What every Classifier must do: models of every library, made here, a table of predictions, and a URL."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import timm
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from small_classifiers import KEYS, LABELS, onnx_file, pictures

from c2b_ray.config.placement import Computing
from c2b_ray.errors import WeightsError
from c2b_ray.models import catalog, devices
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Classifier, ShapedClassifier
from c2b_ray.world.zoo import names

KINDS = ["timm", "torchvision", "hf", "onnx", "zero_shot", "http", "table", "module", "callable"]


@pytest.fixture(scope="module", params=KINDS)
def classifier(request: pytest.FixtureRequest, specs: dict[str, str]) -> Classifier:
    return catalog.classifier(specs[request.param])


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


def test_pictures_that_are_prepared_elsewhere_have_the_same_logits(classifier: Classifier) -> None:
    if not isinstance(classifier, ShapedClassifier) or classifier.shape is None:
        pytest.skip("it prepares its pictures itself")
    shape = classifier.shape
    prepared = np.stack([shaped(image, shape) for image in pictures()])
    assert prepared.shape[1:3] == shape.frame
    prepared.flags.writeable = False  # as what another process has written
    assert np.array_equal(classifier.logits_of_shaped(prepared), classifier.logits(pictures(), KEYS))
    assert classifier.logits_of_shaped(prepared[:0]).shape == (0, 5)


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
    assert replace(known, of_device=False) == catalog.description_of(catalog.classifier(spec))
    assert known.labels


@pytest.mark.parametrize("name", names("classifier"))
def test_the_worlds_classifiers_are_described(name: str) -> None:
    known = catalog.describe("classifier", f"world:{name}")
    assert known is not None
    assert replace(known, of_device=False) == catalog.description_of(catalog.classifier(f"world:{name}"))


def test_weights_of_ones_own_are_described_from_their_header(tmp_path: Path) -> None:
    torch.manual_seed(0)
    file = tmp_path / "w.safetensors"
    tensors = timm.create_model("test_resnet", num_classes=7).state_dict()
    save_file(tensors, file)
    spec = f"timm:test_resnet?weights={file}"
    known = catalog.describe("classifier", spec)
    assert known is not None
    assert replace(known, of_device=False) == catalog.description_of(catalog.classifier(spec))
    assert len(known.labels) == 7
    save_file({**tensors, "conv1.0.weight": tensors["conv1.0.weight"] + 1}, file)
    other = catalog.describe("classifier", spec)
    assert other is not None
    assert other.revision != known.revision
    # Its header tells that it does not fit.
    save_file({**tensors, "conv1.0.weight": torch.zeros(1)}, file)
    for read in (catalog.classifier, lambda text: catalog.describe("classifier", text)):
        with pytest.raises(WeightsError, match=r"of another shape \(conv1\.0\.weight"):
            read(spec)


@pytest.mark.parametrize("softmax", [False, True])
def test_onnx_files_are_described(tmp_path: Path, softmax: bool) -> None:
    model = onnx.load(onnx_file(tmp_path / "m.onnx", ["n", 16, 16, 3], softmax, TensorProto.UINT8))
    helper.set_model_props(model, {"mean": "0.5", "labels": json.dumps(LABELS)})
    beside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 64}  # `axes` stays inside
    onnx.save(model, tmp_path / "m.onnx", **beside)
    spec = f"onnx:{tmp_path / 'm.onnx'}?layout=nhwc&resize=20"
    known = catalog.describe("classifier", spec)
    assert known is not None
    assert replace(known, of_device=False) == catalog.description_of(catalog.classifier(spec))
    assert known.labels == LABELS


def test_an_onnx_file_that_leaves_its_outputs_open_is_run_for_its_description(tmp_path: Path) -> None:
    model = onnx.load(onnx_file(tmp_path / "m.onnx", ["n", 3, 16, 16]))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "classes"
    onnx.save(model, tmp_path / "m.onnx")
    spec = f"onnx:{tmp_path / 'm.onnx'}?preprocess=imagenet"
    known = catalog.describe("classifier", spec)
    assert replace(known, of_device=False) == catalog.description_of(catalog.classifier(spec))
    assert known is not None
    assert known.facts == catalog.classifier(spec).facts
    assert len(known.labels) == 5


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
        spec = spec.replace("imagenet", "unit")
    else:
        moved.write_text(moved.read_text().replace("0.", "0.0", 1))
    assert catalog.classifier(spec).revision != before


@pytest.mark.parametrize("kind", ["timm", "torchvision", "hf"])
def test_half_precision_has_a_revision_of_its_own_however_it_was_chosen(kind: str, specs: dict[str, str]) -> None:
    """So that a stage's cache never takes the answers of the one for the other's; described and loaded alike."""
    spec = specs[kind]
    option = f"{spec}{'&' if '?' in spec else '?'}precision=bf16"
    images = pictures()
    whole, half = catalog.classifier(spec), catalog.classifier(option)
    with devices.assigned([], Computing("bf16")):
        placed = catalog.classifier(spec)
        described = catalog.describe("classifier", spec)
    assert described is not None
    assert half.revision == placed.revision == described.revision != whole.revision
    logits = whole.logits(images, [""] * 5)
    assert np.array_equal(half.logits(images, [""] * 5), placed.logits(images, [""] * 5))
    assert 0 < np.abs(half.logits(images, [""] * 5) - logits).max() < 0.1 * max(1.0, float(np.abs(logits).max()))
