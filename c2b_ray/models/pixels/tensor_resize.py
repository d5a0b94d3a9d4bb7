"""Pictures of many sizes on a device, resized and cropped together, by Pillow's filters as matrix products.

Resizing is linear: each pixel of a row is a weighted sum of the old row, and so for columns. The weights of all
pictures of a batch are computed at once, so that the number of operations does not grow with the number of sizes. Like
Pillow it goes across first and rounds to bytes in between. It knows tensors, and nothing of what they are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.shape import resized_size
from c2b_ray.roles import Shape

AT_ONCE = 96 * 10**6
"""The most pixels of the pictures that are resized together, each counted as large as the largest of them."""


def shaped_tensors(pictures: Sequence[torch.Tensor], shape: Shape) -> torch.Tensor:
    """Returns pictures, each uint8 (3, height, width), resized and cropped, as uint8 (pictures, height, width, 3) on
    their device.

    `shape` must lead to one size for all of them. Pillow's own values (`pixels.shape.shaped`) differ by rounding: by
    one level, seldom.
    """
    result: torch.Tensor | None = None
    for part, down_first in _alike(pictures, shape):
        done = _shaped([pictures[i] for i in part], shape, down_first)
        if result is None:
            result = done.new_empty((len(pictures), *done.shape[1:]))
        result[torch.tensor(part, device=done.device)] = done
    assert result is not None, "no pictures"
    return result


def _alike(pictures: Sequence[torch.Tensor], shape: Shape) -> Iterator[tuple[list[int], bool]]:
    """Yields the numbers of pictures that go together, and whether down before across: those of similar sizes, not too
    many pixels."""
    sides = [(int(picture.shape[1]), int(picture.shape[2])) for picture in pictures]
    for down_first in (False, True):
        order = [i for i in range(len(sides)) if _goes_down_first(shape, *sides[i]) is down_first]
        part: list[int] = []
        tall = wide = 0
        for i in sorted(order, key=sides.__getitem__):
            height, width = sides[i]
            if part and (len(part) + 1) * max(tall, height) * max(wide, width) > AT_ONCE:
                yield part, down_first
                part, tall, wide = [], 0, 0
            part.append(i)
            tall, wide = max(tall, height), max(wide, width)
        if part:
            yield part, down_first


def _goes_down_first(shape: Shape, height: int, width: int) -> bool:
    """As in `pixels.resize`."""
    tall, wide = resized_size(shape.size, height, width)
    return height - tall > max(0, 2 * (width - wide))


def _shaped(pictures: Sequence[torch.Tensor], shape: Shape, down_first: bool) -> torch.Tensor:
    if down_first:  # on its side, so that what is down here goes across there
        size, crop = (side[::-1] if isinstance(side, tuple) else side for side in (shape.size, shape.crop))
        turned = [picture.transpose(1, 2) for picture in pictures]
        return _shaped(turned, Shape(size, shape.filter, crop), False).transpose(1, 2)  # type: ignore[arg-type]
    device, count = pictures[0].device, len(pictures)
    old = [(int(picture.shape[1]), int(picture.shape[2])) for picture in pictures]
    new = [resized_size(shape.size, *sides) for sides in old]
    tall, wide = shape.crop or new[0]
    # Half a pixel is rounded to an even number, as torchvision does. Below 0 the crop is larger than the picture, and
    # is filled with black.
    begins = [(_begin(height, tall), _begin(width, wide)) for height, width in new]
    sides = torch.tensor([[*o, *n, *b] for o, n, b in zip(old, new, begins, strict=True)], dtype=torch.float64)
    height, width, new_height, new_width, top, left = sides.to(device).unbind(1)
    block = _padded(pictures, max(h for h, _ in old), max(w for _, w in old))
    across = _weights(width, new_width, left, wide, block.shape[3], shape.filter)
    lines = block.view(count, -1, block.shape[3]).transpose(1, 2)
    # Both products put the new side first, so that neither result is copied: columns, then columns × channels.
    columns = _bytes(_product(across, lines)).view(count, wide * 3, block.shape[2])
    down = _weights(height, new_height, top, tall, block.shape[2], shape.filter)
    done = _bytes(_product(down, columns.transpose(1, 2)))
    return done.to(torch.uint8).view(count, tall, wide, 3)


def _product(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Returns weights × values, float32, of whole values from 0 to 255."""
    if values.device.type != "cuda":
        return torch.bmm(weights, values.float())
    # Half precision holds the values exactly. It holds the weights in two parts, and the sums are in float32: as exact
    # as float32, at a multiple of its speed.
    coarse = weights.half()
    fine = (weights - coarse.float()).half()
    values = values.half()
    return torch.bmm(coarse, values, out_dtype=torch.float32) + torch.bmm(fine, values, out_dtype=torch.float32)


def _begin(side: int, crop: int) -> int:
    """Returns the first pixel of a centred crop; it is negative where the side is shorter."""
    return round((side - crop) / 2) if side >= crop else -((crop - side) // 2)


def _bytes(sums: torch.Tensor) -> torch.Tensor:
    return sums.add_(0.5).floor_().clamp_(0, 255)


def _padded(pictures: Sequence[torch.Tensor], tall: int, wide: int) -> torch.Tensor:
    """Returns the pictures in one block, uint8 (pictures, 3, tall, wide); what is outside them is 0."""
    if all(picture.shape[1:] == (tall, wide) for picture in pictures):
        return torch.stack(list(pictures))
    block = torch.zeros((len(pictures), 3, tall, wide), dtype=torch.uint8, device=pictures[0].device)
    places = [block[i, :, : picture.shape[1], : picture.shape[2]] for i, picture in enumerate(pictures)]
    torch._foreach_copy_(places, list(pictures))
    return block


def _weights(
    old: torch.Tensor, new: torch.Tensor, begin: torch.Tensor, count: int, most: int, kind: Filter
) -> torch.Tensor:
    """Returns the weights of Pillow's filter, float32 (pictures, count, most): of each old pixel in each new one.

    `old`, `new` and `begin`, float64: of each picture, the old and the new length, and the first new pixel wanted.
    """
    at, reach = _FILTERS[kind]
    old, new, begin = (values[:, None, None] for values in (old, new, begin))
    scale = old / new
    stretch = scale.clamp(min=1.0)
    pixel = begin + torch.arange(count, device=old.device)[None, :, None]
    centre = (pixel + 0.5) * scale
    first = (centre - reach * stretch + 0.5).floor().clamp(min=0).float()
    last = torch.minimum((centre + reach * stretch + 0.5).floor(), old).float()
    whole = centre.floor()  # so that float32 holds the small difference to a pixel, not a large place
    part, whole, stretch = (centre - whole).float(), whole.float(), stretch.float()
    here = torch.arange(most, dtype=torch.float32, device=old.device)[None, None, :]
    raw = at(((here - whole) - part + 0.5) / stretch)
    raw = torch.where((here >= first) & (here < last), raw, 0.0)
    total = raw.sum(dim=2, keepdim=True)
    # A side that keeps its length keeps its pixels: the filter is then 1 at the pixel and 0 elsewhere.
    inside = (pixel >= 0) & (pixel < new) & (total != 0)
    return torch.where(inside, raw / total, 0.0)


def _bilinear(x: torch.Tensor) -> torch.Tensor:
    return (1.0 - x.abs()).clamp(min=0.0)


def _bicubic(x: torch.Tensor) -> torch.Tensor:
    a, x = -0.5, x.abs()
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


_FILTERS = {"bilinear": (_bilinear, 1.0), "bicubic": (_bicubic, 2.0)}
