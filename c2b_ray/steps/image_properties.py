"""Properties of images that need no model: how bright, sharp or colourful, and how they look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image, JpegImagePlugin

from c2b_ray.errors import ImageError
from c2b_ray.roles import Pixels
from c2b_ray.steps.decode import decode_reduced
from c2b_ray.steps.fetch import Load, in_place
from c2b_ray.tables import LOOK_VECTORS, PROPERTIES, content_of

SIDE = 224
"""The pictures are measured at about SIDE² pixels."""
FEWEST_PIXELS = 3
"""The least width and height at which a picture is measured: the kernels are of 3 × 3 pixels."""
COLOURED = 26
"""The least chroma of a coloured pixel: a tenth of the range. JPEG gives grey pictures a little less."""
LEAST_COLOURED = 0.05
BORDER = 0.1

HUES: Mapping[str, tuple[int, int]] = {
    "red": (345, 15),
    "orange": (15, 45),
    "yellow": (45, 75),
    "green": (75, 165),
    "cyan": (165, 195),
    "blue": (195, 255),
    "purple": (255, 315),
    "pink": (315, 345),
}
"""Degrees of HSV's hue, from and below: the twelve hues of the RGB colour wheel, 30° each, in eight everyday words."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ImageProperty:
    """`name`: of the attribute. `values`: words for its low, middle and high numbers; empty for a property of names.
    `measure`: what the numbers are, for sentences. `column`: in `tables.PROPERTIES`."""

    name: str
    values: tuple[str, ...]
    measure: str

    @property
    def column(self) -> str:
        return self.name.lower().replace(" ", "_")


PROPERTIES_OF_IMAGES: Mapping[str, ImageProperty] = {
    one.name: one
    for one in (
        ImageProperty("brightness", ("dark", "medium", "bright"), "mean luma (0 to 255)"),
        ImageProperty("contrast", ("low", "medium", "high"), "standard deviation of luma (0 to 127.5)"),
        ImageProperty("sharpness", ("blurred", "medium", "sharp"), "variance of the Laplacian over that of luma"),
        ImageProperty("colourfulness", ("pale", "medium", "colourful"), "Hasler and Süsstrunk's colourfulness"),
        ImageProperty("saturation", ("low", "medium", "high"), "mean saturation (0 to 1)"),
        ImageProperty("hue", (), "the hue with the most chroma"),
        ImageProperty("greyness", ("low", "medium", "high"), "share of pixels without colour"),
        ImageProperty("noise", ("clean", "medium", "noisy"), "standard deviation of noise in luma"),
        ImageProperty("entropy", ("low", "medium", "high"), "entropy of luma in bits (0 to 8)"),
        ImageProperty("border edges", ("few", "medium", "many"), "edges in the outer tenth over those of the picture"),
        ImageProperty("resolution", ("small", "medium", "large"), "megapixels"),
        ImageProperty("aspect ratio", ("narrow", "medium", "wide"), "width over height"),
        ImageProperty("JPEG quality", ("low", "medium", "high"), "libjpeg's quality (1 to 100)"),
    )
}

_STANDARD = np.array(
    [
        *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
        *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
        *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
        *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
    ]
)
"""The luminance table of the JPEG standard (ITU-T T.81, table K.1), in rows; libjpeg scales it by its quality."""


def measured(rows: pa.Table, load: Load) -> pa.Table:
    """Returns `tables.PROPERTIES` of rows with `image_id` and `row`: each image is read where it lies and measured."""
    fetched_images = in_place(load).fetched(rows["row"].to_pylist())
    columns = (
        rows["image_id"].to_pylist(),
        rows["row"].to_pylist(),
        fetched_images.keys.to_pylist(),
        fetched_images.data,
        fetched_images.errors,
    )
    records = []
    for image_id, row, key, data, error in zip(*columns, strict=True):
        record: dict[str, object] = {"image_id": image_id, "row": row, "key": key, "error": error}
        if data is not None:
            record["content"] = content_of(data)
        if error is None:
            try:
                record |= file_properties(data or b"")
            except ImageError as reason:
                record["error"] = str(reason)
        records.append(record)
    return pa.Table.from_pylist(records, PROPERTIES)


def file_properties(data: bytes) -> dict[str, float | str | None]:
    """Returns all properties of an encoded image, by column. Raises ImageError, with the reason, where it cannot be
    decoded."""
    # Twice as fine as it is measured: libjpeg's own reduction is coarser than the one that follows.
    pixels, (height, width) = decode_reduced(data, 2 * SIDE)
    return {
        **pixel_properties(pixels),
        "resolution": height * width / 1e6,
        "aspect_ratio": width / height,
        "jpeg_quality": jpeg_quality(data),
    }


def pixel_properties(pixels: Pixels) -> dict[str, float | str | None]:
    """Returns the properties of a picture's pixels, uint8 (height, width, 3), by column."""
    red, green, blue = planes = at_one_size(pixels)  # one after the other in memory: in a third of the time
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    largest = np.maximum(np.maximum(red, green), blue)
    chroma = largest - np.minimum(np.minimum(red, green), blue)
    coloured = chroma >= COLOURED
    share = float(coloured.mean())
    return {
        "brightness": _float(luma.mean(dtype=np.float64)),
        "contrast": _float(luma.std(dtype=np.float64)),
        "sharpness": sharpness(luma),
        "colourfulness": _colourfulness(red - green, (red + green) / 2 - blue),
        "saturation": _float(np.mean(chroma / np.maximum(largest, 1), dtype=np.float64)),
        "hue": None if share <= LEAST_COLOURED else _hue(planes[:, coloured], largest[coloured], chroma[coloured]),
        "greyness": 1 - share,
        "noise": noise(luma),
        "entropy": entropy(luma),
        "border_edges": border_edges(luma),
    }


def at_one_size(pixels: Pixels) -> Floats:
    """Returns the picture scaled to about SIDE² pixels in its own aspect ratio, float32 (3, height, width), 0 to
    255."""
    height, width = pixels.shape[:2]
    scale = SIDE / math.sqrt(height * width)
    size = tuple(max(FEWEST_PIXELS, round(side * scale)) for side in (width, height))
    if size != (width, height):
        pixels = np.asarray(Image.fromarray(pixels).resize((size[0], size[1]), Image.Resampling.BILINEAR))
    return np.ascontiguousarray(np.moveaxis(pixels, -1, 0), np.float32)


def sharpness(luma: Floats) -> float | None:
    """Returns the variance of the Laplacian (4 neighbours) over the variance of luma; None where luma is constant."""
    inner = luma[1:-1, 1:-1]
    laplacian = luma[:-2, 1:-1] + luma[2:, 1:-1] + luma[1:-1, :-2] + luma[1:-1, 2:] - 4 * inner
    spread = _float(luma.var(dtype=np.float64))
    return _float(laplacian.var(dtype=np.float64)) / spread if spread > 1e-6 else None


def noise(luma: Floats) -> float:
    """Returns Immerkær's estimate of the standard deviation of noise."""
    rows = luma[:-2] - 2 * luma[1:-1] + luma[2:]
    second_difference = rows[:, :-2] - 2 * rows[:, 1:-1] + rows[:, 2:]
    return math.sqrt(math.pi / 2) / 6 * _float(np.abs(second_difference).mean(dtype=np.float64))


def entropy(luma: Floats) -> float:
    """Returns the entropy of luma, rounded to whole levels, in bits."""
    counts = np.bincount(np.rint(luma).astype(np.int64).ravel(), minlength=256)
    p = counts[counts > 0] / luma.size
    return _float(-(p * np.log2(p)).sum()) + 0.0  # no negative zero


def border_edges(luma: Floats) -> float | None:
    """Returns the mean gradient in the outer tenth of each side over the whole picture's; None without any."""
    smooth_down = luma[:-2] + 2 * luma[1:-1] + luma[2:]
    smooth_across = luma[:, :-2] + 2 * luma[:, 1:-1] + luma[:, 2:]
    length = np.hypot(smooth_down[:, 2:] - smooth_down[:, :-2], smooth_across[2:] - smooth_across[:-2])
    height, width = length.shape
    top, left = max(1, round(BORDER * height)), max(1, round(BORDER * width))
    inner = length[top : height - top, left : width - left]
    total, ring = _float(length.sum(dtype=np.float64)), length.size - inner.size
    outer = total - _float(inner.sum(dtype=np.float64))
    return (outer / ring) / (total / length.size) if total > 1e-6 and ring else None


def jpeg_quality(data: bytes) -> float | None:
    """Returns the quality of libjpeg whose luminance table has the file's mean step; None where it is no JPEG.

    libjpeg scales the standard's table by (200 − 2q) % for a quality q of 50 and more, and by 5000/q % below.
    """
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    try:
        tables = JpegImagePlugin.JpegImageFile(BytesIO(data), "").quantization
    except Exception:  # Pillow's readers answer malformed files with whatever exception the malformation causes
        return None
    if 0 not in tables:
        return None
    mean = float(np.mean(tables[0]))
    return float(1 + np.argmin(np.abs(_mean_steps() - mean)))


def _mean_steps() -> NDArray[np.float64]:
    """Returns the mean of libjpeg's luminance table at the qualities 1 to 100."""
    quality = np.arange(1, 101)
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    return np.asarray(np.clip((_STANDARD[None] * scale[:, None] + 50) // 100, 1, 255).mean(axis=1))


def _colourfulness(rg: Floats, yb: Floats) -> float:
    spread = math.hypot(*(_float(channel.std(dtype=np.float64)) for channel in (rg, yb)))
    return spread + 0.3 * math.hypot(*(_float(channel.mean(dtype=np.float64)) for channel in (rg, yb)))


def _hue(rgb: Floats, largest: Floats, chroma: Floats) -> str:
    """Returns the name of the hue with the most chroma. `rgb`: (3, n), of coloured pixels; `largest`, `chroma`:
    (n,)."""
    red, green, blue = rgb
    is_red, is_green = largest == red, largest == green
    next_channel = np.where(is_red, green, np.where(is_green, blue, red))
    last_channel = np.where(is_red, blue, np.where(is_green, red, green))
    degrees = (60 * ((next_channel - last_channel) / chroma + np.where(is_red, 0, np.where(is_green, 2, 4)))) % 360
    # Every border is a multiple of 15 degrees.
    sums = np.bincount((degrees // 15).astype(np.int64) % 24, chroma, 24)
    of_names = {
        name: sum(sums[hue_bin % 24] for hue_bin in range(low // 15, (high + 360 * (high < low)) // 15))
        for name, (low, high) in HUES.items()
    }
    return max(of_names, key=of_names.__getitem__)


def _float(value: np.floating | np.number) -> float:
    return float(value)


# Describes how a picture looks without a model: its texture, its colours, and both of its border.


TEXTURE, COLOURS, BACKGROUND = LOOK_NAMES = ("texture", "colours", "background")
DESCRIPTORS = "1"
"""A part of the id of each description: another number where the descriptors change."""
SCALES = 4
LOOKS_BORDER = 0.15
LEAST_SIDE = 3
"""Of a scale: the patterns are of 3 × 3 pixels."""
_PATTERNS, _ORIENTATIONS, _LENGTHS = 59, 8, 8
_OF_SCALE = _PATTERNS + _ORIENTATIONS + _LENGTHS
_LUMA, _CHROMA = 4, 8
_RING = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
"""The neighbours of a pixel, row and column in its 3 × 3 pixels, one after the other around it."""


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
            values.ravel() if chosen is None else values[chosen]
            for values in (self.pattern, self.orientation, self.length)
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
                properties: Mapping[str, Floats] = looks(decode_reduced(data or b"", 2 * SIDE)[0])
                record |= properties
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
    top, left = max(2, round(LOOKS_BORDER * height)), max(2, round(LOOKS_BORDER * width))
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
