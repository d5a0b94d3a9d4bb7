"""The last layers alone say what the whole model says."""

from __future__ import annotations

import numpy as np
import open_clip
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from c2b_ray.world.training.classifiers import pixels
from c2b_ray.world.training.clip_zoo import last_layers
from c2b_ray.world.zoo import WEIGHTS

DIRECTORY = f"local-dir:{WEIGHTS / 'clip-00'}"


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return open_clip.create_model(DIRECTORY).eval()


def test_features_are_those_of_the_whole_model(model: nn.Module) -> None:
    tokens = open_clip.get_tokenizer(DIRECTORY)(["a lovely bus", "a red mug on a beach, at night"])
    images = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    layers = last_layers.LastLayers(model)
    with torch.no_grad():
        ours = layers.images(last_layers.maps_of(model, images)), layers.texts(*last_layers.states_of(model, tokens))
        theirs = normalize(model.encode_image(pixels(images)), dim=-1), normalize(model.encode_text(tokens), dim=-1)
    # What goes into the last layers is kept in half precision.
    for mine, whole in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, whole, atol=2e-3)


def test_training_them_trains_the_model(model: nn.Module) -> None:
    learned = {id(parameter) for parameter in last_layers.LastLayers(model).parameters()}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in learned}
    assert {name.split(".")[0] for name in names} == {"visual", "text", "logit_scale"}
    assert all("attnpool" in name for name in names if name.startswith("visual"))
    assert "text.text_projection" in names
