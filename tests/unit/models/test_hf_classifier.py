"""What an `hf:` classifier says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ImageGPTImageProcessor,
    MobileViTImageProcessor,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

from c2b_ray.errors import WeightsError
from c2b_ray.models import catalog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8,
        num_labels=2,
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(tmp_path)
    ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.4] * 3).save_pretrained(tmp_path)
    return tmp_path


def test_facts_say_where_each_setting_was_read(folder: Path) -> None:
    known = catalog.describe("classifier", f"hf:{folder}")
    assert known is not None
    assert known.facts == catalog.description_of(catalog.classifier(f"hf:{folder}")).facts
    facts = {fact.name: fact for fact in known.facts}
    assert facts["architecture"].value == "ViTForImageClassification"
    assert (facts["input size"].value, facts["input size"].source) == (
        "height 32 × width 32",
        "preprocessor_config.json",
    )
    assert facts["normalisation"].value == "mean 0.4, std 0.5"
    # LABEL_0 and LABEL_1 are transformers' own, not the model's.
    assert (facts["label names"].assumed, facts["label names"].option) == (True, "labels")
    names = folder / "names.txt"
    names.write_text("bus\nboat\n")
    stated = catalog.describe("classifier", f"hf:{folder}?labels={names}")
    assert stated is not None
    assert not any(fact.assumed for fact in stated.facts)


def _stated(folder: Path, settings: dict[str, Any]) -> None:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def _pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in ((64, 64), (40, 90), (90, 40), (20, 20))]


@pytest.mark.parametrize(
    ("settings", "normalisation"),
    [
        ({"image_mean": 0.5, "image_std": 0.25}, "mean 0.5, std 0.25"),
        ({"do_rescale": False}, "mean 0.4, std 0.5 of pixels from 0 to 255"),
        ({"rescale_factor": 1 / 127.5}, "mean 0.4, std 0.5 of pixels from 0 to 2"),
        ({"do_normalize": False}, "pixels from 0 to 1"),
        # Pictures keep their proportions: no two of them make a batch.
        ({"size": {"shortest_edge": 40}}, "mean 0.4, std 0.5"),
    ],
)
def test_each_setting_of_the_processor_answers_as_transformers_does(
    tmp_path: Path, settings: dict[str, Any], normalisation: str
) -> None:
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic", num_labels=3)
    ResNetForImageClassification(config).save_pretrained(tmp_path)
    ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.4] * 3).save_pretrained(tmp_path)
    _stated(tmp_path, settings)
    model, processor = (
        AutoModelForImageClassification.from_pretrained(tmp_path),
        AutoImageProcessor.from_pretrained(tmp_path),
    )
    pictures = _pictures()
    with torch.no_grad():
        inputs = [processor(images=Image.fromarray(picture), return_tensors="pt") for picture in pictures]
        expected = torch.cat([model.eval()(**one).logits for one in inputs]).numpy()
    classifier = catalog.classifier(f"hf:{tmp_path}?device=cpu")
    np.testing.assert_allclose(classifier.logits(pictures, list("abcd")), expected, rtol=1e-5, atol=1e-5)
    facts = {fact.name: fact.value for fact in catalog.description_of(classifier).facts}
    assert facts["normalisation"] == normalisation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_are_answered_in_the_precision_that_the_facts_name(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic", num_labels=3)
    model = ResNetForImageClassification(config).eval().to(dtype)
    model.save_pretrained(tmp_path)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path)
    pictures = _pictures()
    with torch.no_grad():
        inputs = processor(images=[Image.fromarray(picture) for picture in pictures], return_tensors="pt")
        expected = model.float()(**inputs).logits.numpy()
    classifier = catalog.classifier(f"hf:{tmp_path}?device=cpu")
    np.testing.assert_allclose(classifier.logits(pictures, list("abcd")), expected, rtol=1e-5, atol=1e-5)
    assert {fact.name: fact.value for fact in classifier.facts}["precision"] == "fp32"


def test_a_mean_that_a_processor_has_and_does_not_use_is_not_named(folder: Path) -> None:
    MobileViTImageProcessor(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    known = catalog.describe("classifier", f"hf:{folder}?device=cpu")
    assert known is not None
    assert {fact.name: fact.value for fact in known.facts}["normalisation"] == "pixels from 0 to 1"


def test_a_processor_that_prepares_nothing_is_refused_before_the_run(folder: Path) -> None:
    _stated(folder, {"resample": 4})  # which its library knows and cannot compute
    for read in (catalog.classifier, lambda spec: catalog.describe("classifier", spec)):
        with pytest.raises(WeightsError, match="makes no image classifier of it"):
            read(f"hf:{folder}")


def test_a_processor_that_makes_words_of_pictures_is_refused_by_what_it_gives(folder: Path) -> None:
    clusters = np.random.default_rng(0).uniform(-1, 1, (8, 3)).tolist()
    ImageGPTImageProcessor(clusters=clusters, size={"height": 8, "width": 8}).save_pretrained(folder)
    with pytest.raises(WeightsError, match="gives input_ids, and no pixel_values"):
        catalog.describe("classifier", f"hf:{folder}")


def test_pictures_of_a_size_that_the_model_does_not_take_are_no_crash(folder: Path) -> None:
    _stated(folder, {"size": {"height": 48, "width": 48}})
    with pytest.raises(WeightsError, match=r"48\*48.*correct them in the spec or in the file that states"):
        catalog.classifier(f"hf:{folder}?device=cpu").logits(_pictures(), list("abcd"))


def test_pictures_are_answered_whatever_multiple_they_are_padded_to(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], num_labels=3)
    ResNetForImageClassification(config).save_pretrained(tmp_path)
    processor = {"image_processor_type": "Swin2SRImageProcessor", "do_pad": True, "size_divisor": 128, "pad_size": 128}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    pictures = [np.full((side, 140, 3), side, np.uint8) for side in (100, 150, 90)]
    classifier = catalog.classifier(f"hf:{tmp_path}?device=cpu")
    assert classifier.logits(pictures, list("abc")).shape == (3, 3)


def test_an_adapter_is_refused_because_its_other_weights_lie_elsewhere(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "somewhere"}))
    for read in (catalog.classifier, lambda spec: catalog.describe("classifier", spec)):
        with pytest.raises(WeightsError, match=r"holds a PEFT adapter.*merge_and_unload"):
            read(f"hf:{folder}")
