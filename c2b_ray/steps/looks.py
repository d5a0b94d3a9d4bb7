"""Describes how a picture looks without a model: its texture, its colours, and both of its border.

What an object is, these descriptors hardly see: they count what is where in no part of the picture. All are computed
on the upright RGB picture of about 224 × 224 pixels (`image_properties.at_one_size`), and all are square roots of
histograms that sum to 1 each, so that the Euclidean distance of two is √2 times Hellinger's, the histograms of one
descriptor together.

    texture     of luma at four scales, each half as fine as the one before: local binary patterns of 8 neighbours, 58
                uniform ones and the others (Ojala et al. 2002, IEEE TPAMI 24:971; here with their orientation), the
                orientation of the gradient in 8 parts of 180°, weighted by its length, and its length in 8 parts. The
                length is relative to its mean, so that contrast and brightness play no part; nor does colour
    colours     luma in 4 parts × blue-yellow in 8 × red-green in 8 (Cb and Cr of ITU-R BT.601, finer towards grey)
    background  colours, and texture at the three finer scales, of the outer 15 % of each side: where objects are
                rarely

It knows bytes and pixels; nothing of classes, answers or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.errors import ImageError
from c2b_ray.roles import Pixels
from c2b_ray.steps.decode import decode_reduced
from c2b_ray.steps.image_properties import SIDE, at_one_size
from c2b_ray.tables import LOOK_VECTORS

TEXTURE, COLOURS, BACKGROUND = LOOK_NAMES = ("texture", "colours", "background")
DESCRIPTORS = "1"
"""A part of the id of each description: another number where the descriptors change."""
SCALES = 4
BORDER = 0.15
LEAST_SIDE = 3
"""Of a scale: the patterns are of 3 × 3 pixels."""
_PATTERNS, _ORIENTATIONS, _LENGTHS = 59, 8, 8
_OF_SCALE = _PATTERNS + _ORIENTATIONS + _LENGTHS
_LUMA, _CHROMA = 4, 8
_RING = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
"""The neighbours of a pixel, row and column in its 3 × 3 pixels, one after the other around it."""

Floats = NDArray[np.float32]


def _uniform_patterns() -> NDArray[np.int64]:
    """Returns the number of each of the 256 patterns: uniform ones, with at most two changes around the pixel, are 0 to
    57; all others are 58."""
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    uniform = (bits != np.roll(bits, 1, axis=1)).sum(axis=1) <= 2
    return np.where(uniform, np.cumsum(uniform) - 1, _PATTERNS - 1)


_UNIFORM = _uniform_patterns()


@dataclass(frozen=True)
class _Scale:
    """Of each inner pixel of a scale, shape (height, width): its pattern, and the orientation and length of its
    gradient."""

    pattern: NDArray[np.int64]
    orientation: NDArray[np.int64]
    length: Floats

    @staticmethod
    def of(luma: Floats) -> _Scale:
        height, width = luma.shape
        middle = luma[1:-1, 1:-1]
        code = np.zeros(middle.shape, np.int64)
        for bit, (row, column) in enumerate(_RING):
            code |= (luma[row : height - 2 + row, column : width - 2 + column] >= middle).astype(np.int64) << bit
        across, down = luma[1:-1, 2:] - luma[1:-1, :-2], luma[2:, 1:-1] - luma[:-2, 1:-1]
        turn = np.arctan2(down, across) / np.pi % 1
        orientation = (turn * _ORIENTATIONS).astype(np.int64) % _ORIENTATIONS
        return _Scale(_UNIFORM[code], orientation, np.hypot(across, down))

    def histograms(self, chosen: NDArray[np.bool_] | None = None) -> Floats:
        pattern, orientation, length = (
            of.ravel() if chosen is None else of[chosen] for of in (self.pattern, self.orientation, self.length)
        )
        mean = length.mean() if length.size else 0.0
        # Halves and doubles of the mean length, from an eighth to eight times.
        part = np.clip(np.log2(np.maximum(length, 1e-6) / max(mean, 1e-6)) + 4, 0, _LENGTHS - 1).astype(np.int64)
        return np.concatenate(
            [
                _roots(np.bincount(pattern, minlength=_PATTERNS)),
                _roots(np.bincount(orientation, length, _ORIENTATIONS)),
                _roots(np.bincount(part, minlength=_LENGTHS)),
            ]
        )


def looks(pixels: Pixels) -> dict[str, Floats]:
    """Returns the descriptors of a picture, uint8 (height, width, 3), by name: float32, of one length each, in [0,
    1]."""
    red, green, blue = at_one_size(pixels)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    part = _colour_parts(luma, red, blue)
    colours = _roots(np.bincount(part.ravel(), minlength=_LUMA * _CHROMA**2))
    ring = _border(luma.shape)
    of_border = [_roots(np.bincount(part[ring], minlength=_LUMA * _CHROMA**2))]
    texture, level = [], luma
    for scale in range(SCALES):
        if min(level.shape) < LEAST_SIDE:  # of a very long picture
            texture.append(np.zeros(_OF_SCALE, np.float32))
            of_border += [np.zeros(_OF_SCALE, np.float32)] * (scale < SCALES - 1)
            continue
        of_scale = _Scale.of(level)
        texture.append(of_scale.histograms())
        if scale < SCALES - 1:
            of_border.append(of_scale.histograms(_border(level.shape)[1:-1, 1:-1]))
        level = _halved(level)
    return {
        TEXTURE: np.concatenate(texture),
        COLOURS: colours,
        # As much by its colours as by its texture.
        BACKGROUND: np.concatenate([of_border[0], np.concatenate(of_border[1:]) / np.float32((3 * 3) ** 0.5)]),
    }


def described(images: pa.Table) -> pa.Table:
    """Returns `tables.LOOK_VECTORS` of images with `look_id`, `image_id`, `bytes` and `error`. An image that cannot be
    decoded has an error."""
    columns = (images[name].to_pylist() for name in ("look_id", "image_id", "bytes", "error"))
    records: list[dict[str, Any]] = []
    for look_id, image_id, data, error in zip(*columns, strict=True):
        record: dict[str, Any] = {"look_id": look_id, "image_id": image_id, "error": error}
        if error is None:
            try:
                found: Mapping[str, Floats] = looks(decode_reduced(data or b"", 2 * SIDE)[0])
                record |= found
            except ImageError as reason:
                record["error"] = str(reason)
        records.append(record)
    return pa.Table.from_pylist(records, LOOK_VECTORS)


def _colour_parts(luma: Floats, red: Floats, blue: Floats) -> NDArray[np.int64]:
    chroma = [_chroma_part((blue - luma) * 0.564), _chroma_part((red - luma) * 0.713)]
    bright = np.minimum(luma / 256 * _LUMA, _LUMA - 1).astype(np.int64)
    return (bright * _CHROMA + chroma[0]) * _CHROMA + chroma[1]


def _chroma_part(chroma: Floats) -> NDArray[np.int64]:
    """Returns the part of each value of −128 to 128: of equal width in its signed square root."""
    root = np.sign(chroma) * np.sqrt(np.abs(chroma) / 128)
    return np.clip((root + 1) / 2 * _CHROMA, 0, _CHROMA - 1).astype(np.int64)


def _border(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    height, width = shape
    top, left = max(2, round(BORDER * height)), max(2, round(BORDER * width))
    ring = np.ones(shape, bool)
    ring[top : height - top, left : width - left] = False
    return ring


def _halved(level: Floats) -> Floats:
    height, width = (side // 2 * 2 for side in level.shape)
    even = level[:height, :width]
    return (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) * np.float32(0.25)


def _roots(counts: NDArray[Any]) -> Floats:
    """Returns the square roots of the shares; zeros where there is nothing."""
    return np.sqrt(counts / max(float(counts.sum()), 1e-12)).astype(np.float32)
