"""A classifier's features are what its last layer makes logits of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog, features
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


def test_the_last_layer_makes_the_logits_of_them():
    images = [render(scene) for scene in sample(11, 100_001)]
    classifier = catalog.classifier("world:resnet-control-0?batch=4")
    extracted = features.load("world:resnet-control-0?batch=4").features(images)
    assert extracted.shape == (11, 128)
    head = classifier.module.get_classifier()
    with torch.no_grad():
        logits = head(torch.from_numpy(extracted)).numpy()
    assert np.allclose(logits, classifier.logits(images, [""] * 11), atol=1e-5)


def test_what_gives_no_features_is_named(tmp_path):
    (tmp_path / "table.csv").write_text("key,bus,boat\na,0.5,0.5\n")
    with pytest.raises(SpecError, match="cannot be seen from here"):
        features.load(f"table:{tmp_path}/table.csv")
    with pytest.raises(SpecError, match="neither an encoder"):
        features.load("world:no-such-model")
    assert "embedding of world:clip" in features.load("world:clip").name
