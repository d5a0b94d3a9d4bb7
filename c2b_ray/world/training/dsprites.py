"""dSprites drawn by NumPy: one sprite on a plain ground, from its shape, scale, orientation and position.

The layout is that of the public data set (Matthey et al. 2017): 3 shapes × 6 scales × 40 orientations × 32 × 32
positions = 737,280 pictures of 64 by 64 pixels, 0 or 255; the last factor varies fastest. The pixels are drawn anew and
differ from those of the published file. Beyond the layout, the ground may have a colour and a shade: further attributes
for a classifier to be biased by. It knows no attribute names beyond its factors, no labels and no models.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SIDE = 64
SHAPES = ("square", "ellipse", "heart")

LAYOUT: dict[str, Floats] = {
    "shape": np.arange(3.0),
    "scale": np.linspace(0.5, 1.0, 6),
    "orientation": np.linspace(0.0, 2 * np.pi, 40),  # includes both ends: the first and the last look alike
    "x": np.linspace(0.0, 1.0, 32),
    "y": np.linspace(0.0, 1.0, 32),
}
"""The public layout's factors and the values of each, in its order. Shapes are counted from 0 here, from 1 there."""

EXTRA: dict[str, Floats] = {"colour": np.linspace(0.0, 1.0, 32), "background": np.linspace(0.0, 1.0, 32)}
"""Factors of the ground. Colour: cold (0) to warm (1). Background: dark (0) to light (1). Both add to its pixels."""

FACTORS = (*LAYOUT, *EXTRA)
"""The columns of a table of sprites."""

_DARK = np.array([15.0, 40.0, 25.0])
_TO_WARM, _TO_LIGHT = np.array([200.0, 0.0, 0.0]), np.array([0.0, 90.0, 180.0])
_RADIUS = {False: 0.155, True: 0.24}  # of a sprite of scale 1, as a share of the picture's side: plain, coloured
_MARGIN = {False: 0.22, True: 0.32}  # from the picture's edge to the centre of the outermost sprite: none is cut off
_CHUNK = 2048  # sprites that are drawn together


def sample(count: int, seed: int, fixed: Mapping[str, float] | None = None) -> Floats:
    """Samples independent sprites, uniform over the values of every factor; float64 (count, FACTORS).

    Sprite i depends only on (seed, i): a longer sample begins with the shorter one. fixed: factor → value; the other
    factors stay as they were. ValueError for an unknown factor.
    """
    uniforms = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).random((count, len(FACTORS)))
    values = [*LAYOUT.values(), *EXTRA.values()]
    result = np.stack([v[(uniforms[:, k] * len(v)).astype(int)] for k, v in enumerate(values)], axis=1)
    for name, value in (fixed or {}).items():
        if name not in FACTORS:
            raise ValueError(f"a sprite has no factor {name!r}; it has {', '.join(FACTORS)}")
        result[:, FACTORS.index(name)] = value
    return result


def render(table: Floats, size: int = SIDE, coloured: bool = False) -> NDArray[np.uint8]:
    """Renders a table of sprites, uint8 (rows, size, size, 3).

    size: 64, or a divisor of it; smaller pictures are means over squares of the large one. coloured: with the colours
    of the ground, and sprites half as large again; else white on black, as the public pictures are. ValueError for
    another size or another number of columns.
    """
    rows = np.asarray(table, dtype=np.float64)
    if size < 1 or SIDE % size:
        raise ValueError(f"size is {size}; it must divide {SIDE}")
    if rows.ndim != 2 or rows.shape[1] != len(FACTORS):
        raise ValueError(f"a table of sprites has shape (rows, {len(FACTORS)}), got {rows.shape}")
    result = np.empty((len(rows), size, size, 3), dtype=np.uint8)
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        cover = masks(part, coloured).reshape(len(part), size, SIDE // size, size, SIDE // size).mean(axis=(2, 4))
        result[start : start + _CHUNK] = _painted(cover, part, coloured)
    return result


def masks(table: Floats, large: bool = False) -> NDArray[np.bool_]:
    """Returns which pixels show the sprite, (rows, 64, 64): those whose centre lies inside it."""
    shape, scale, orientation, x, y = (table[:, k, None, None].astype(np.float32) for k in range(5))
    middles = ((np.arange(SIDE) + 0.5) / SIDE).astype(np.float32)
    across = (middles[None, None, :] - _position(x, large)) / (_RADIUS[large] * scale)
    down = (middles[None, :, None] - _position(y, large)) / (_RADIUS[large] * scale)
    cos, sin = np.cos(orientation), np.sin(orientation)
    u, v = cos * across + sin * down, cos * down - sin * across
    inside = np.empty(u.shape, dtype=bool)
    for code, covers in enumerate((_square, _ellipse, _heart)):
        rows = shape[:, 0, 0] == code
        inside[rows] = covers(u[rows], v[rows])
    return inside


def _position(share: NDArray[np.float32], large: bool) -> NDArray[np.float32]:
    placed: NDArray[np.float32] = _MARGIN[large] + (1 - 2 * _MARGIN[large]) * share
    return placed


def _square(u: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.bool_]:
    return (np.abs(u) <= 0.85) & (np.abs(v) <= 0.85)


def _ellipse(u: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Twice as long as wide."""
    inside: NDArray[np.bool_] = (u / 1.3) ** 2 + (v / 0.65) ** 2 <= 1
    return inside


def _heart(u: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(p² + q² − 1)³ ≤ p² q³, point down, its bounding box centred on the sprite's position."""
    p, q = u, 0.12 - v
    square = p * p
    inside: NDArray[np.bool_] = (square + q * q - 1) ** 3 <= square * q**3
    return inside


def _painted(cover: Floats, table: Floats, coloured: bool) -> NDArray[np.uint8]:
    share = cover[..., None]
    if not coloured:
        return np.repeat((255 * share).round(), 3, axis=3).astype(np.uint8)
    colour, ground = (table[:, FACTORS.index(name), None] for name in EXTRA)
    behind = (_DARK + colour * _TO_WARM + ground * _TO_LIGHT)[:, None, None]
    painted: NDArray[np.uint8] = (255 * share + (1 - share) * behind).round().astype(np.uint8)
    return painted
