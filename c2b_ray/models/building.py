"""Builds modules without the random weights that a file is about to replace.

A library's constructor draws every weight at random, which takes most of the time of loading a large model. Inside
`built` a weight is left as its memory is, or filled with the middle of what would be drawn. Everything else is computed
as always: buffers that no file holds (positions, masks, anchors), constants, tied weights. Only for modules whose every
weight then comes from a file. It knows PyTorch's ways of drawing numbers, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

T = TypeVar("T")
_SCALES = frozenset(getattr(torch.Tensor, name) for name in ("erfinv_", "mul_", "add_", "sub_", "div_", "clamp_"))

_INITIALISERS = frozenset((nn.init.kaiming_uniform_, nn.init.kaiming_normal_, nn.init.normal_, nn.init.uniform_))
"""Those that PyTorch hands to a mode as a whole, and that only draw: their memory need not even be touched."""


class _WithoutDraws(TorchFunctionMode):
    """Parameters are not filled with random numbers in place, in this thread. Other tensors are: what is drawn until it
    lies between bounds must come to an end."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: Any = None  # the last parameter; scaling weights that were not drawn is skipped too

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        first = args[0] if args else options.get("tensor")  # as PyTorch's own initialisers hand it on
        if isinstance(first, nn.Parameter):
            if func in _INITIALISERS:
                return first
            if (middle := _middle(func, *args[1:3], **options)) is not None:
                self._drawn = first
                with torch.no_grad():
                    return first.fill_(middle)
            if func in _SCALES and first is self._drawn:
                return first
        return func(*args, **options)


def _middle(func: Any, *bounds: float, **options: Any) -> float | None:
    """Returns the middle of the distribution that `func` would draw from; None where it draws nothing."""
    if func is torch.Tensor.normal_:
        return bounds[0] if bounds else float(options.get("mean", 0.0))
    if func is torch.Tensor.uniform_:
        low = bounds[0] if bounds else options.get("from", 0.0)
        high = bounds[1] if len(bounds) > 1 else options.get("to", 1.0)
        return float(low + high) / 2
    return None


def built(build: Callable[[], T]) -> T:
    """Returns what `build` returns: a module that has its weights from a file, or is about to get them."""
    with _WithoutDraws():
        return build()
