"""Builds modules without the random weights that a file is about to replace.

A library's constructor draws every weight at random, which takes most of the time of loading a large model. Inside
`built` memory for weights is taken and left as it is. Everything else is computed as always: buffers
that no file holds (positions, masks, anchors), constants, tied weights. Only for modules whose every weight then comes
from a file. It knows PyTorch's ways of drawing numbers, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_DRAWS = frozenset(
    getattr(torch.Tensor, name) for name in ("normal_", "uniform_", "log_normal_", "exponential_", "cauchy_", "erfinv_")
)
_INITIAL = frozenset(
    getattr(nn.init, name)
    for name in (
        "uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
        "kaiming_normal_", "orthogonal_", "sparse_",
    )
)  # fmt: skip


_SCALES = frozenset(getattr(torch.Tensor, name) for name in ("mul_", "add_", "sub_", "div_", "clamp_"))


class WithoutRandomWeights(TorchFunctionMode):
    """A block in which tensors are not filled with random numbers in place; this thread only."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: Any = None  # the last of them: scaling what was not drawn is left out too

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _DRAWS or func in _INITIAL:
            self._drawn = args[0] if args else (kwargs or {})["tensor"]
            return self._drawn
        if args and args[0] is self._drawn:
            if func in _SCALES:
                return self._drawn
            self._drawn = None
        return func(*args, **(kwargs or {}))


def built(build: Callable[[], Any]) -> Any:
    """Returns what `build` returns: a module that has its weights from a file, or is about to get them."""
    with WithoutRandomWeights():
        return build()
