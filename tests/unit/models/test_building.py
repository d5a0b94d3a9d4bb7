"""Modules without random weights have the same buffers and, from a file, the same answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import open_clip
import pytest
import timm
import torch
import torchvision
from torch import nn

from c2b_ray.models.weights import built

MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": partial(timm.create_model, "resnet18"),
    "swin_tiny_patch4_window7_224": partial(timm.create_model, "swin_tiny_patch4_window7_224"),
    "mobilenetv3_small_100": partial(timm.create_model, "mobilenetv3_small_100"),
    "eva02_tiny_patch14_224": partial(timm.create_model, "eva02_tiny_patch14_224"),  # rotary positions
    "torchvision swin_t": partial(torchvision.models.get_model, "swin_t"),
    "open_clip RN50": partial(open_clip.create_model, "RN50"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_buffers_and_answers_are_those_of_a_module_built_as_always(name: str) -> None:
    torch.manual_seed(0)
    expected, module = MODELS[name]().eval(), built(MODELS[name]).eval()
    persistent = set(expected.state_dict())
    other = [key for key, _ in expected.named_buffers() if key not in persistent]
    buffers = dict(module.named_buffers())
    assert all(torch.equal(buffers[key], value) for key, value in expected.named_buffers() if key in other)
    module.load_state_dict(expected.state_dict())
    image = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        call = ("encode_image",) if name.startswith("open_clip") else ("forward",)
        assert torch.equal(getattr(module, call[0])(image), getattr(expected, call[0])(image))


def test_weights_are_not_drawn_inside_and_are_outside() -> None:
    def layer_of_draws() -> nn.Module:
        layer = nn.Linear(64, 64)
        nn.init.trunc_normal_(layer.weight, std=0.02)
        nn.init.trunc_normal_(layer.bias, mean=0.0, std=1.0, a=0.2, b=5.0)  # drawn until it lies between the bounds
        return layer

    assert len(built(layer_of_draws).weight.unique()) == 1  # type: ignore[operator, arg-type]
    assert len(layer_of_draws().weight.unique()) > 1000  # type: ignore[operator, arg-type]
