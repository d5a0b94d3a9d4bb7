"""Measures properties of images that need no model: how bright, sharp or colourful a picture is, and of what hue.

All but the properties of the file are computed on the upright RGB picture scaled to about 224 × 224 pixels in its own
aspect ratio (bilinear, over the area that a pixel covers), about what a classifier sees: sharpness, noise and entropy
of pictures of different sizes are not comparable otherwise. L is luma, 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601),
0 to 255. C is chroma, max(R, G, B) − min(R, G, B), 0 to 255.

    brightness     mean of L, 0 to 255
    contrast       standard deviation of L, 0 to 127.5 (RMS contrast: Peli 1990, J. Opt. Soc. Am. A 7:2032)
    sharpness      variance of the Laplacian of L over the variance of L, 0 to 64; none where L is constant. The
                   variance of the Laplacian alone (Pech-Pacheco et al. 2000, ICPR) grows with contrast squared, so that
                   every dark picture would be blurred
    colourfulness  √(σ²rg + σ²yb) + 0.3 √(μ²rg + μ²yb), rg = R − G, yb = (R + G)/2 − B, 0 to about 260 (Hasler and
                   Süsstrunk 2003, SPIE 5007, M^(3))
    saturation     mean of C / max(R, G, B), 0 to 1; a black pixel has 0 (HSV: Smith 1978)
    hue            the name with the most chroma among `HUES`; none where at most 5 % of the pixels are coloured, that
                   is, have C ≥ 26, a tenth of the range
    greyness       share of the pixels that are not coloured, 0 to 1
    noise          standard deviation of noise in L, 0 and above: √(π/2) / (6 (W−2) (H−2)) Σ |L ∗ N|, N the difference
                   of two Laplacians (Immerkær 1996, CVIU 64:300, the estimate by absolute values)
    entropy        of the histogram of L in 256 levels, in bits, 0 to 8 (Shannon 1948)
    border edges   mean length of the gradient of L (Sobel) in the outer tenth of each side over its mean in the whole
                   picture, 0 and above; 1: as much as elsewhere; none without any. High where things are cut off
    resolution     width × height of the file, in megapixels
    aspect ratio   width over height of the upright picture
    JPEG quality   1 to 100: that of libjpeg whose luminance quantisation table is nearest to the file's; none for other
                   formats

It knows bytes and pixels; nothing of classes, answers or files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image, JpegImagePlugin

from c2b_ray.errors import ImageError
from c2b_ray.roles import Pixels
from c2b_ray.steps.decode import decode_reduced
from c2b_ray.steps.fetch import Load, in_place
from c2b_ray.tables import PROPERTIES, content_of

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
