"""What an `hf:` classifier says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

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
