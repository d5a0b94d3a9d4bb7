"""What a classifier sees of an image, against its library's own transform; and what ONNX files may say about it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import timm
import torch
import torchvision
import transformers
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors.torch import save_file
from small_classifiers import KEYS, LABELS, onnx_file, pictures, torchvision_file
from timm.data import create_transform, resolve_model_data_config

from c2b_ray.models import catalog
from c2b_ray.roles import Floats, Pixels


def test_timm_sees_what_timms_own_transform_gives(specs: dict[str, str]) -> None:
    directory = specs["timm"].removeprefix("timm:").partition("?")[0]
    model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval()
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    with torch.inference_mode():
        batch = torch.stack([transform(Image.fromarray(image)) for image in pictures()])
        expected = torch.cat([model(part) for part in batch.split(2)]).numpy()
    # The pixels are Pillow's (tests/unit/models/pixels/test_preprocess.py).
    np.testing.assert_allclose(catalog.classifier(specs["timm"]).logits(pictures(), KEYS), expected, atol=1e-4)


def test_torchvision_sees_what_its_own_transform_gives(tmp_path: Path) -> None:
    file = torchvision_file(tmp_path / "w.safetensors")
    model = torchvision.models.squeezenet1_1(num_classes=5).eval()
    torch.manual_seed(0)
    model.load_state_dict(torchvision.models.squeezenet1_1(num_classes=5).state_dict())
    transform = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.transforms()
    with torch.inference_mode():
        expected = model(torch.stack([transform(Image.fromarray(image)) for image in pictures(2)])).numpy()
    found = catalog.classifier(f"torchvision:squeezenet1_1?weights={file}&device=cpu").logits(pictures(2), KEYS[:2])
    np.testing.assert_allclose(found, expected, atol=1e-4)


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
        spec = f"onnx:{onnx_file(tmp_path / f'{name}.onnx', shape)}?resize={resize}&preprocess=imagenet"
        np.testing.assert_allclose(catalog.classifier(spec).logits(pictures(), KEYS), expected, atol=1e-4)


def test_a_uint8_onnx_input_gets_raw_pixels(tmp_path: Path) -> None:
    spec = f"onnx:{onnx_file(tmp_path / 'm.onnx', ['n', 16, 16, 3], kind=TensorProto.UINT8)}"
    grey: list[Pixels] = [np.full((20, 30, 3), 200, np.uint8)]
    weight = np.random.default_rng(1).normal(size=(3, 5))
    np.testing.assert_allclose(catalog.classifier(spec).logits(grey, [""])[0], 200 * weight.sum(axis=0), rtol=1e-4)


def test_onnx_softmax_outputs_become_log_probabilities(tmp_path: Path) -> None:
    raw = catalog.classifier(f"onnx:{onnx_file(tmp_path / 'a.onnx', ['n', 3, 16, 16])}?preprocess=unit").logits(
        pictures(), KEYS
    )
    spec = f"onnx:{onnx_file(tmp_path / 'b.onnx', ['n', 3, 16, 16], softmax=True)}?preprocess=unit"
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
    assert np.isnan(nan_of(f"onnx:{tmp_path / 'm.onnx'}?preprocess=unit")).all()


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
    assert (
        told.logits(pictures(), KEYS)
        != catalog.classifier(f"onnx:{plain}?preprocess=imagenet").logits(pictures(), KEYS)
    ).any()
