"""Decodes the images of several requests, has them answered as one batch, and splits the answers among the requests.

It knows packed images and rows of numbers; the deployments know what the numbers mean.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from c2b_ray.roles import Blocks, Floats, Pixels, Shape
from c2b_ray.serving.decoding import Decoders
from c2b_ray.serving.hands import Hands
from c2b_ray.serving.payload import Packed, PackedFiles, pixels_of, unpack_files
from c2b_ray.steps.decode import BATCH_PIXELS, pixel_count

Rows = tuple[Floats, list[str | None]]
"""A row of numbers for each image, NaN where its error says why there are none."""


async def decoded(hands: Hands, packs: Sequence[Packed]) -> tuple[list[Pixels | None], list[str | None]]:
    """Returns the images of all requests in their order, and why an image has no pixels."""
    parts = await asyncio.gather(*(hands.decode(pixels_of, packed) for packed in packs))
    return [image for images, _ in parts for image in images], [error for _, errors in parts for error in errors]


async def answered(
    hands: Hands, packs: Sequence[Packed], width: int, call: Callable[[list[Pixels], list[int]], Floats]
) -> list[Rows]:
    """Calls `call` with all images that can be decoded, and their positions among all, as one batch: (images, width).

    Returns the answers of each request, NaN where an image cannot be decoded, and its error.
    """
    images, errors = await decoded(hands, packs)
    good = [i for i, image in enumerate(images) if image is not None]
    answers = np.full((len(images), width), np.nan, np.float32)
    if good:
        pixels = [image for image in images if image is not None]
        answers[good] = await hands.run_batch(call, len(good), pixels, good)
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def answered_prepared(
    hands: Hands,
    decoders: Decoders,
    packs: Sequence[Packed],
    width: int,
    shape: Shape,
    call: Callable[[Blocks], Floats],
) -> list[Rows]:
    """Returns what `answered` returns, of files that processes decode, from a call with a block of pictures."""
    block, errors = await decoders.shaped(packs, shape)
    good = [i for i, error in enumerate(errors) if error is None]
    answers = np.full((len(block), width), np.nan, np.float32)
    if good:
        answers[good] = await hands.run_batch(call, len(good), block if len(good) == len(block) else block[good])
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def answered_files(
    hands: Hands, packs: Sequence[Packed], call: Callable[[list[bytes | None]], tuple[Floats, list[str | None]]]
) -> list[Rows]:
    """Returns what `answered` returns, of files that the model decodes itself, from a call with all of them."""
    parts = await asyncio.gather(*(hands.decode(unpack_files, pack) for pack in packs if isinstance(pack, PackedFiles)))
    files = [data for part in parts for data in part]
    answers, errors = await hands.run_batch(call, len(files), files)
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def weight(hands: Hands, packed: Packed, most_rows: int) -> int:
    """Returns how many rows of a batch these images count as: one each, more where they are large, so that a batch
    never decodes to more than BATCH_PIXELS."""
    pixels = await hands.decode(_pixels, packed)
    return max(len(packed), math.ceil(pixels * most_rows / BATCH_PIXELS))


def _pixels(packed: Packed) -> int:
    if isinstance(packed, PackedFiles):
        return sum(pixel_count(data) for data in unpack_files(packed))
    return sum(height * width for height, width in packed.sizes)
