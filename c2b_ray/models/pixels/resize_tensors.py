"""The pixels of `resize`, computed by PyTorch on the device of a model: those of Pillow, bit for bit.

Pillow's sums are of whole numbers, so that a GPU gives the same bytes as a CPU. Pictures of any sizes lie one after
another in one buffer, and each has weights of its own. It knows arrays, and nothing of what they are for.

Source: Pillow, src/libImaging/Resample.c (the two 8-bit passes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from c2b_ray.models.pixels.filters import BITS, Filter, weights
from c2b_ray.models.pixels.resize import goes_down_first
from c2b_ray.models.pixels.shape import resized_size
from c2b_ray.roles import Shape

Size = tuple[int, int]
"""Height and width in pixels."""


def can_resize(size: Size, shape: Shape) -> bool:
    """Tells whether `resized` serves a picture of this size: not where Pillow would go down before it goes across, nor
    where the crop is larger than the picture, nor where the result's size depends on the picture."""
    if shape.crop is None and not isinstance(shape.size, tuple):
        return False
    height, width = resized_size(shape.size, *size)
    tall, wide = shape.crop or (height, width)
    return tall <= height and wide <= width and not goes_down_first(size, (height, width))


def resized(pixels: torch.Tensor, sizes: Sequence[Size], shape: Shape) -> torch.Tensor:
    """Returns `models.pixels.shape.shaped` of every picture, uint8 (pictures, height, width, 3), on the device of
    `pixels`.

    `pixels`: uint8, flat, the pictures of these `sizes` one after another, each (height, width, 3). `can_resize` holds
    for each of them.
    """
    lines = pixels.view(-1, 3)
    across, down, begins = _plans(sizes, shape)
    rows = max(int(plan.starts[-1]) + plan.taps - int(plan.starts[0]) for plan in down)
    x, y = _Weights.of(across, pixels.device), _Weights.of(down, pixels.device)
    tops = y.starts[:, :1]
    heights, widths, begin = (torch.from_numpy(of).to(pixels.device) for of in (*np.array(sizes, np.int32).T, begins))
    # The rows that any result needs, and the last row again for pictures that need fewer.
    row = torch.minimum(tops + torch.arange(rows, device=pixels.device, dtype=torch.int32), heights[:, None] - 1)
    first = (begin[:, None] + row * widths[:, None])[:, :, None] + x.starts[:, None, :]
    last = (begin + heights * widths - 1)[:, None, None]

    def along(tap: int) -> torch.Tensor:
        return lines.index_select(0, torch.minimum(first + tap, last).flatten()).view(*first.shape, 3)

    between = _mixed(along, [x.of_tap[tap][:, None, :, None] for tap in range(x.taps)])
    of_picture = torch.arange(len(sizes), device=pixels.device, dtype=torch.int32)[:, None] * rows
    flat = between.view(len(sizes) * rows, -1)
    start = y.starts - tops

    def below(tap: int) -> torch.Tensor:
        at = of_picture + (start + tap).clamp(max=rows - 1)
        return flat.index_select(0, at.flatten()).view(*at.shape, -1)

    mixed = _mixed(below, [y.of_tap[tap][:, :, None] for tap in range(y.taps)])
    return mixed.view(*mixed.shape[:2], -1, 3)


@dataclass(frozen=True)
class _Plan:
    """The first pixel that each pixel of a line is made of, and the weights from there: (pixels,), (pixels, taps)."""

    starts: NDArray[np.int64]
    weights: NDArray[np.int32]

    @property
    def taps(self) -> int:
        return int(self.weights.shape[1])


@dataclass(frozen=True)
class _Weights:
    """The plans of several pictures: `starts` int32 (pictures, pixels), `of_tap` int32 (taps, pictures, pixels)."""

    starts: torch.Tensor
    of_tap: torch.Tensor

    @property
    def taps(self) -> int:
        return len(self.of_tap)

    @staticmethod
    def of(plans: Sequence[_Plan], device: torch.device) -> _Weights:
        taps = max(plan.taps for plan in plans)
        of_tap = np.zeros((taps, len(plans), len(plans[0].starts)), np.int32)
        for number, plan in enumerate(plans):
            of_tap[: plan.taps, number] = plan.weights.T
        starts = np.stack([plan.starts for plan in plans]).astype(np.int32)
        return _Weights(torch.from_numpy(starts).to(device), torch.from_numpy(of_tap).to(device))


def _plans(sizes: Sequence[Size], shape: Shape) -> tuple[list[_Plan], list[_Plan], NDArray[np.int32]]:
    """Returns the plans across and down, and where each picture begins, in pixels."""
    across, down = [], []
    for size in sizes:
        height, width = resized_size(shape.size, *size)
        tall, wide = shape.crop or (height, width)
        # Half a pixel is rounded to an even number, as torchvision does.
        top, left = round((height - tall) / 2), round((width - wide) / 2)
        across.append(_plan(size[1], width, left, wide, shape.filter))
        down.append(_plan(size[0], height, top, tall, shape.filter))
    ends = np.cumsum([height * width for height, width in sizes])
    return across, down, np.concatenate([[0], ends[:-1]]).astype(np.int32)


def _plan(old: int, new: int, begin: int, count: int, kind: Filter) -> _Plan:
    return _Plan(*weights(old, new, begin, begin + count, kind))


def _mixed(lines: Callable[[int], torch.Tensor], factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the sum over taps of lines times factors, rounded to bytes."""
    total = lines(0).to(torch.int32).mul_(factors[0])
    for tap in range(1, len(factors)):
        total += lines(tap).to(torch.int32).mul_(factors[tap])
    mixed: torch.Tensor = total.add_(1 << (BITS - 1)).bitwise_right_shift_(BITS).clamp_(0, 255).to(torch.uint8)
    return mixed
