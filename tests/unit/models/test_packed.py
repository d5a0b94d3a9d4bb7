"""Packed blocks against open_clip's own."""

from __future__ import annotations

import copy

import open_clip
import pytest
import torch
from torch import nn

from c2b_ray.models.open_clip_encoder import pack

SMALL = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 100, "width": 64, "heads": 2, "layers": 2},
}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return open_clip.CLIP(**copy.deepcopy(SMALL)).eval().requires_grad_(False)


def linears(model: nn.Module) -> int:
    return sum(type(part) is nn.Linear for part in model.modules())


def test_a_packed_model_embeds_as_before_but_for_rounding(model: nn.Module) -> None:
    packed = copy.deepcopy(model)
    pack(packed)
    assert linears(model) == 8
    assert linears(packed) == 0
    images, texts = torch.randn(5, 3, 32, 32), torch.randint(1, 100, (5, 12))
    with torch.inference_mode():
        for rows in (1, 5):
            for embed in ("encode_image", "encode_text"):
                given = (images if embed == "encode_image" else texts)[:rows]
                torch.testing.assert_close(getattr(packed, embed)(given), getattr(model, embed)(given))


def test_other_precisions_are_left_as_they_are(model: nn.Module) -> None:
    half = copy.deepcopy(model).to(torch.bfloat16)
    pack(half)
    assert linears(half) == linears(model)
