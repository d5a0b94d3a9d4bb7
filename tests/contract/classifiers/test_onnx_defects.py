"""ONNX files of strangers: what they state is used and named, what they leave open is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx_defects import REFUSED, SIDE, _seen, _two, node, normalising, save, value

from c2b_ray.errors import InputError
from c2b_ray.models import catalog
from c2b_ray.roles import Floats, Pixels

COLOR = (60, 120, 230)
PICTURE: Pixels = np.full((SIDE, SIDE, 3), COLOR, np.uint8)
UNIT = np.array(COLOR) / 255
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
NAMES = "{0: 'red', 1: 'green', 2: 'blue'}"


def answer(spec: str) -> Floats:
    """Returns the logits / 6 of one picture, after checking that description and model agree, and two loads too."""
    classifier = catalog.classifier(spec)
    known = catalog.describe("classifier", spec)
    assert known == catalog.description_of(classifier)
    assert known is not None
    assert known.facts == classifier.facts == catalog.classifier(spec).facts
    assert {fact.name for fact in known.facts} >= {"label names", "input size", "normalisation", "output"}
    found = classifier.logits([PICTURE, PICTURE[:, :, ::-1].copy()], ["", ""])
    np.testing.assert_allclose(found[:1], classifier.logits([PICTURE], [""]), rtol=1e-5)
    return found[0] / 6


def fact(spec: str, name: str) -> Any:
    return next(fact for fact in catalog.classifier(spec).facts if fact.name == name)


@pytest.mark.parametrize("name", REFUSED)
def test_each_defect_has_its_own_error(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    spec = make(tmp_path / "m.onnx")
    for read in (catalog.classifier, lambda spec: catalog.describe("classifier", spec)):
        with pytest.raises(InputError, match=message):
            read(spec)


def subtracted(path: Path) -> str:
    nodes = [node("Sub", ["x", "mean"], ["c"]), node("Div", ["c", "std"], ["s"])]
    constants = {"mean": MEAN.reshape(1, 3, 1, 1).astype("f4"), "std": STD.reshape(1, 3, 1, 1).astype("f4")}
    return save(path, start=nodes, constants=constants)


def divided(path: Path) -> str:
    return save(path, start=[node("Div", ["x", "all"], ["s"])], constants={"all": np.float32(255)})


def quantised(path: Path) -> str:
    nodes = [
        node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "step", "zero"], ["s"]),
    ]
    return save(path, start=nodes, constants={"step": np.float32(1 / 127.5), "zero": np.uint8(128)})


def normalised(path: Path) -> str:
    nodes = [node("BatchNormalization", ["x", "g", "b", "m", "v"], ["s"], epsilon=0.0)]
    constants = {"g": np.ones(3), "b": np.zeros(3), "m": MEAN * 255, "v": (STD * 255) ** 2}
    return save(path, start=nodes, constants={name: array.astype("f4") for name, array in constants.items()})


@pytest.mark.parametrize(
    ("make", "expected", "source"),
    [
        (subtracted, (UNIT - MEAN) / STD, "the graph begins with Sub, Div"),
        (divided, UNIT, "the graph begins with Div"),
        (normalising, ((UNIT - MEAN) / STD)[::-1], "the graph begins with Sub, Div"),
        (
            lambda path: normalising(path) + "?mean=0.485,0.456,0.406&std=0.229,0.224,0.225",
            (((UNIT - MEAN) / STD - MEAN) / STD)[::-1],
            "the spec, although the graph begins with Sub, Div",
        ),
        (quantised, 2 * UNIT - 1, "the graph's input is quantised from -1 to 0.996"),
        (normalised, (UNIT - MEAN) / STD, "the graph begins with BatchNormalization"),
        (lambda path: save(path, kind=TensorProto.UINT8), 255 * UNIT, "the graph's input is uint8"),
        (
            lambda path: save(path, kind=TensorProto.UINT8, shape=["n", 8, 8, 3]),
            255 * UNIT,
            "the graph's input is uint8",
        ),
        (
            lambda path: save(path, metadata={"author": "Ultralytics", "names": NAMES, "imgsz": "[8, 8]"}),
            UNIT,
            "the file's metadata (Ultralytics divides by 255 alone)",
        ),
        (
            lambda path: save(
                path,
                metadata={"Image.NominalPixelRange": "NominalRange_0_255", "Image.BitmapPixelFormat": "Bgr8"},
            ),
            255 * UNIT[::-1],
            "the file's metadata (Image.NominalPixelRange nominalrange_0_255)",
        ),
        (
            lambda path: save(
                path, metadata={"image_mean": "[0.485, 0.456, 0.406]", "image_std": "[0.229,0.224,0.225]"}
            ),
            (UNIT - MEAN) / STD,
            "the file's metadata",
        ),
        (lambda path: save(path, kind=TensorProto.FLOAT16) + "?preprocess=imagenet", (UNIT - MEAN) / STD, "the spec"),
        (lambda path: save(path) + "?preprocess=minus-one-one", 2 * UNIT - 1, "the spec"),
        (lambda path: save(path) + "?preprocess=none", 255 * UNIT, "the spec"),
        (lambda path: save(path) + "?mean=123.675&std=255&scale=1", (255 * UNIT - 123.675) / 255, "the spec"),
    ],
)
def test_the_normalisation_is_read_where_it_is_stated(
    make: Callable[[Path], str], expected: Floats, source: str, tmp_path: Path
) -> None:
    spec = make(tmp_path / "m.onnx")
    np.testing.assert_allclose(answer(spec), expected, rtol=1e-2, atol=5e-3)
    assert fact(spec, "normalisation").source == source


def test_a_free_size_is_read_from_an_exporters_metadata(tmp_path: Path) -> None:
    metadata = {"description": "Ultralytics YOLO11n-cls model", "names": NAMES, "imgsz": "[8, 8]"}
    spec = save(tmp_path / "m.onnx", shape=["batch", 3, "height", "width"], metadata=metadata)
    np.testing.assert_allclose(answer(spec), UNIT, rtol=1e-4)
    assert catalog.classifier(spec).labels == ("red", "green", "blue")
    assert fact(spec, "label names").source == "the file's metadata (names)"
    crop = fact(spec, "resize and crop")
    assert (crop.assumed, crop.option) == (True, "resize")


def test_the_processor_beside_an_export_is_read_and_one_that_may_be_anothers_is_not(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    spec = save(tmp_path / "onnx" / "model.onnx")
    processor = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "size": {"height": 8, "width": 8}, "resample": 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "red", "1": "green", "2": "blue"}}))
    np.testing.assert_allclose(answer(spec), (UNIT - 0.5) / 0.25, rtol=1e-4)
    assert catalog.classifier(spec).labels == ("red", "green", "blue")
    assert fact(spec, "resize and crop").value == "squashed to 8 × 8, bicubic"
    assert fact(spec, "normalisation").source == "preprocessor_config.json"
    save(tmp_path / "onnx" / "other.onnx")
    with pytest.raises(InputError, match="nothing states how pixels"):
        catalog.classifier(spec)


def test_a_timm_config_beside_the_file_is_read(tmp_path: Path) -> None:
    stated = {"input_size": [3, 8, 8], "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "crop_pct": 0.8}
    document = {"architecture": "x", "pretrained_cfg": stated, "label_names": ["red", "green", "blue"]}
    (tmp_path / "config.json").write_text(json.dumps(document))
    spec = save(tmp_path / "m.onnx")
    np.testing.assert_allclose(answer(spec), 2 * UNIT - 1, rtol=1e-4)
    assert catalog.classifier(spec).labels == ("red", "green", "blue")
    assert fact(spec, "resize and crop").value == "shorter side to 10, then the centre 8 × 8, bicubic"


PROCESSOR = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 8, "width": 8}, "resample": 3}
TIMM = {"input_size": [3, 8, 8], "mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.8}


@pytest.mark.parametrize(
    ("file", "settings", "words", "option"),
    [
        ("preprocessor_config.json", {**PROCESSOR, "resample": 0}, "has resample 0, which", "interpolation"),
        (
            "preprocessor_config.json",
            {**PROCESSOR, "image_processor_type": "LevitImageProcessor"},
            "of Levit",
            "resize",
        ),
        (
            "preprocessor_config.json",
            {**PROCESSOR, "size": {"height": 9, "width": 9}, "do_center_crop": True, "crop_size": 8},
            "pictures squashed to 9 × 9 and then cropped to 8 × 8",
            "resize",
        ),
        ("config.json", {**TIMM, "interpolation": "nearest"}, "interpolation nearest, which", "interpolation"),
        ("config.json", {**TIMM, "crop_mode": "squash"}, "crop_mode squash with crop_pct 0.8", "resize"),
        ("config.json", {**TIMM, "crop_mode": "border"}, "crop_mode border with crop_pct 0.8", "resize"),
    ],
)
def test_what_a_config_beside_the_file_says_and_no_option_can_is_an_assumption_until_the_spec_states_it(
    file: str, settings: dict[str, Any], words: str, option: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(json.dumps(settings))
    spec = save(tmp_path / "m.onnx")
    known = fact(spec, "resize and crop")
    assert known.assumed
    assert words in known.source
    assert known.option == option
    assert not fact(f"{spec}?resize=8&interpolation=bicubic", "resize and crop").assumed


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"image_processor_type": "EfficientNetImageProcessor"}, (UNIT - 0.5) / 0.25),  # by std twice
        ({"image_processor_type": "EfficientNetImageProcessor", "include_top": False}, (UNIT - 0.5) / 0.5),
        ({"image_processor_type": "MobileViTImageProcessor"}, UNIT[::-1]),
        ({"image_processor_type": "MobileViTFeatureExtractor", "do_flip_channel_order": False}, UNIT),
    ],
)
def test_processors_that_do_more_to_the_numbers_are_followed(
    settings: dict[str, Any], expected: Floats, tmp_path: Path
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **settings}))
    spec = save(tmp_path / "m.onnx")
    np.testing.assert_allclose(answer(spec), expected, rtol=1e-4)
    assert not fact(spec, "resize and crop").assumed


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("preprocessor_config.json", {**PROCESSOR, "resample": [3]}),
        (
            "preprocessor_config.json",
            {**PROCESSOR, "image_std": "half", "image_processor_type": "EfficientNetImageProcessor"},
        ),
        ("config.json", {**TIMM, "crop_pct": "all"}),
        ("config.json", {**TIMM, "input_size": [3, "eight", 8]}),
        ("config.json", {"pretrained_cfg": "resnet"}),
    ],
)
def test_a_config_beside_the_file_whose_settings_are_of_another_kind_is_named(
    file: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / file).write_text(json.dumps(settings))
    spec = save(tmp_path / "m.onnx")
    for read in (catalog.classifier, lambda spec: catalog.describe("classifier", spec)):
        with pytest.raises(InputError, match=rf"{file}: a setting of the pictures is not.*folder of its own"):
            read(spec)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"test_crop_pct": 1.0}, "shorter side to 8,"),
        ({"test_crop_pct": 1.0, "test_input_size": [3, 9, 9]}, "shorter side to 10,"),  # a graph of the training's size
        ({"test_crop_pct": 1.0, "test_input_size": [3, 8, 8], "input_size": [3, 6, 6]}, "shorter side to 8,"),
    ],
)
def test_a_timm_config_states_test_and_training_apart(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": {**TIMM, **settings}}))
    known = fact(save(tmp_path / "m.onnx"), "resize and crop")
    assert known.value.startswith(words)
    assert known.value.endswith("bicubic")  # timm's filter where its config names none
    assert not known.assumed


def test_a_timm_config_names_labels_by_number_too(tmp_path: Path) -> None:
    names = {"2": "blue", "0": "red", "1": "green"}
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": TIMM, "label_names": names}))
    spec = save(tmp_path / "m.onnx")
    assert catalog.classifier(spec).labels == ("red", "green", "blue")
    wrong = {"1": "red", "2": "green", "3": "blue"}
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": TIMM, "label_names": wrong}))
    with pytest.raises(InputError, match=r"label_names begins at 1.*\?labels=PATH"):
        catalog.classifier(spec)
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    assert catalog.classifier(f"{spec}?labels={tmp_path / 'names.txt'}").labels == ("a", "b", "c")


def test_a_batch_of_one_inside_is_answered_one_by_one_and_small_differences_too(tmp_path: Path) -> None:
    shape = {"to": np.array([1, -1])}
    inner = save(tmp_path / "m.onnx", [node("Reshape", ["six", "to"], ["out"])], constants=shape) + "?preprocess=unit"
    np.testing.assert_allclose(answer(inner), UNIT, rtol=1e-4)
    assert fact(inner, "batch").source == "the graph holds a batch of one"
    flat = save(tmp_path / "f.onnx", [node("Squeeze", ["six"], ["out"])], shape=[1, 3, SIDE, SIDE]) + "?preprocess=unit"
    np.testing.assert_allclose(answer(flat), UNIT, rtol=1e-4)
    little = _seen(tmp_path / "s.onnx", 0.03) + "?preprocess=unit"
    np.testing.assert_allclose(answer(little), 0.97 * UNIT, rtol=1e-4)
    assert fact(little, "batch").source == "answers in a batch differ a little"
    stated = _seen(tmp_path / "t.onnx", 0.5) + "?preprocess=unit&batch=1"
    np.testing.assert_allclose(answer(stated), 0.5 * UNIT, rtol=1e-4)


def test_a_graph_that_rounds_by_the_range_of_a_batch_is_answered_one_by_one(tmp_path: Path) -> None:
    rounding = [
        node("DynamicQuantizeLinear", ["x"], ["q", "step", "zero"]),
        node("DequantizeLinear", ["q", "step", "zero"], ["s"]),
    ]
    spec = save(tmp_path / "m.onnx", start=rounding) + "?preprocess=none"
    dark = np.full((SIDE, SIDE, 3), (1, 2, 3), np.uint8)
    bright = np.full((SIDE, SIDE, 3), 255, np.uint8)
    np.testing.assert_allclose(catalog.classifier(spec).logits([dark, bright], ["", ""])[0] / 6, (1, 2, 3), atol=0.01)
    assert "DynamicQuantizeLinear" in fact(spec, "batch").source


def test_an_output_is_named_by_either_option_and_a_kind_by_one(tmp_path: Path) -> None:
    spec = _two(tmp_path / "m.onnx") + "?preprocess=unit"
    logits = catalog.classifier(f"{spec}&output_name=out").logits([PICTURE], [""])
    for name in ("output=also", "output_name=also&output=probabilities"):
        found = catalog.classifier(f"{spec}&{name}").logits([PICTURE], [""])
        np.testing.assert_allclose(found - found[:, :1], logits - logits[:, :1], atol=1e-4)
    with pytest.raises(InputError, match="output=logits, but on the trial pictures its rows are probabilities"):
        catalog.classifier(f"{spec}&output_name=also&output=logits")
    named = save(tmp_path / "n.onnx", [node("Identity", ["six"], ["logits"]), node("Softmax", ["six"], ["p"])],
                 outputs=[value("logits", ["n", 3]), value("p", ["n", 3])])  # fmt: skip
    assert fact(f"{named}?preprocess=unit&output=logits", "output name").value == "logits"
