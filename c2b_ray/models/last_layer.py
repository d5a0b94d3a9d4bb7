"""Finds the layer of a classifier that computes its logits. It knows layers, and no model."""

from __future__ import annotations

from torch import nn

from c2b_ray.errors import SpecError


def last_layer(module: nn.Module, outputs: int) -> nn.Module:
    """Returns the last linear layer with that many outputs, also where it is written as a convolution of one pixel."""
    for part in reversed(list(module.modules())):
        if isinstance(part, nn.Linear) and part.out_features == outputs:
            return part
        if isinstance(part, nn.Conv2d) and part.out_channels == outputs and part.kernel_size == (1, 1):
            return part
    raise SpecError(f"{type(module).__name__} has no linear layer of {outputs} outputs, whose inputs would be features")
