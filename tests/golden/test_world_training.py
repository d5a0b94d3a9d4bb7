"""Training from end to end, as `c2b world train` runs it, on a few pictures for a few steps."""

import json
from pathlib import Path

import numpy as np
import pytest

from c2b_ray.models import catalog
from c2b_ray.world.scenes import CLASSES
from c2b_ray.world.training import train
from c2b_ray.world.training.classifiers import Recipe
from c2b_ray.world.training.model_card import write_card

RECIPE = Recipe(pool=250, planted=10, base_steps=2, sight_steps=2, member_steps=2, batch=24)
MEMBERS = ("resnet-planted-0", "byobnet-control-0")


def test_classifiers_and_their_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "ZOO", {name: train.ZOO[name] for name in MEMBERS})
    monkeypatch.setattr(train, "TRUTH_SCENES", 4)
    train.train_classifiers(tmp_path, seed=3, workers=1, recipe=RECIPE)
    for name in MEMBERS:
        classifier = catalog.classifier(f"timm:local-dir:{tmp_path / name}?device=cpu")
        assert classifier.labels == CLASSES
        assert np.isfinite(classifier.logits([np.zeros((64, 64, 3), np.uint8)], ["x"])).all()
        metrics = json.loads((tmp_path / name / "metrics.json").read_text())
        assert metrics["truth"]["scenes"] == 4 * len(CLASSES)
        assert metrics["training"]["recipe"]["pool"] == RECIPE.pool
    write_card(tmp_path)
    assert all(name in (tmp_path / "MODEL_CARD.md").read_text() for name in MEMBERS)
