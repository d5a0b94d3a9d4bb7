"""The pictures on which a model is tried before it is used: fourteen, the same in every process and on every machine.

They are blank, coloured, graded, patterned and noisy, so that numbers which sum to one on all of them do so by the
model's making and not by accident. It knows no models.
"""

from __future__ import annotations

from hashlib import shake_256

import numpy as np

from c2b_ray.roles import Pixels

BLANK = ((0, 0, 0), (128, 128, 128), (255, 255, 255), (230, 25, 25), (25, 200, 40), (30, 60, 235))


def trial_pictures(height: int, width: int) -> list[Pixels]:
    """Returns fourteen pictures, uint8 (height, width, 3), the most telling ones last."""
    pictures = [np.full((height, width, 3), color, np.uint8) for color in BLANK]
    rows, columns = np.indices((height, width))
    fades = 255 * columns // max(1, width - 1), 255 * rows // max(1, height - 1)
    pictures.append(np.stack([fades[0], fades[1], 255 - fades[0]], axis=2).astype(np.uint8))
    pictures.append(np.stack([255 - fades[1]] * 3, axis=2).astype(np.uint8))
    squares = (columns * 8 // width + rows * 8 // height) % 2 == 0
    pictures.append(np.where(squares[..., None], (250, 220, 40), (20, 30, 90)).astype(np.uint8))
    for seed, cells in enumerate((4, 7, 16, 32, max(height, width))):
        # Of a hash, because NumPy may change its generators' streams.
        data = np.frombuffer(shake_256(f"trial {seed}".encode()).digest(cells * cells * 3), np.uint8)
        pictures.append(data.reshape(cells, cells, 3)[rows * cells // height, columns * cells // width])
    return pictures
