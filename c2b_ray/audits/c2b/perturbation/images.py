"""Perturbs a picture: blur, noise, JPEG, dark, bright, fog, rotation, crop, grey and flip, each at levels.

Blur, noise, JPEG, bright and fog are those of ImageNet-C (Hendrycks & Dietterich, "Benchmarking Neural Network
Robustness to Common Corruptions and Perturbations", ICLR 2019, section 4.1), with the constants of the authors'
`imagenet_c/corruptions.py` for pictures of 224 pixels; the others are defined here. Written anew: the packages that
have them need releases of NumPy and scikit-image of years ago.

Every function maps uint8 (height, width, 3), RGB, to the same shape and type, leaves its argument as it is, and depends
on nothing but its arguments. `level`: 1 to 5. It knows pixels, not files, tables or models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.roles import Pixels, Shape
from c2b_ray.steps.classify import Classification, LoadedClassifier, predict_all
from c2b_ray.steps.decode import decoded
from c2b_ray.steps.draw import png
from c2b_ray.steps.fetch import Load, in_place
from c2b_ray.tables import PERTURBED_PREDICTIONS, content_id, seed_of

PICTURE = 256
"""ImageNet-C's pictures are the central 224 pixels of ones whose shorter side was resized to this."""

_BLUR = (1.0, 2.0, 3.0, 4.0, 6.0)
_NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)
_JPEG = (25, 18, 15, 10, 7)
_BRIGHT = (0.1, 0.2, 0.3, 0.4, 0.5)
_FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))
_ROTATION = (5.0, 10.0, 20.0, 30.0, 45.0)
_CROP = (0.9, 0.8, 0.7, 0.6, 0.5)
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)

Floats = NDArray[np.float32]


def perturbed(pixels: Pixels, perturbation: str, level: int, seed: int) -> Pixels:
    """Returns the picture as a perturbation shows it. `seed`: of its random parts, which are the same at every level,
    so that levels of one picture differ in strength alone.

    Raises KeyError for an unknown name, IndexError for a level that the perturbation does not have.
    """
    return _FUNCTIONS[perturbation](pixels, level, np.random.default_rng(seed))


def reduced(pixels: Pixels, side: int = PICTURE) -> Pixels:
    """Returns the picture with its shorter side reduced to `side` (bilinear, antialiased), as ImageNet-C has it before
    anything is perturbed; a smaller picture as it is. Noise of single pixels of a photograph of millions would be
    averaged away where a model reduces it, whatever its level."""
    height, width = pixels.shape[:2]
    if min(height, width) <= side:
        return pixels
    scale = side / min(height, width)
    size = max(side, round(width * scale)), max(side, round(height * scale))
    return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def blur(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """Gaussian blur with a standard deviation of 1, 2, 3, 4 or 6 pixels of a picture whose shorter side has 256: of one
    of another size, in proportion. ImageNet-C's `gaussian_blur` (cut off at 4 deviations, edges repeated)."""
    sigma = _BLUR[level - 1] * min(pixels.shape[:2]) / PICTURE
    return _to_bytes(scipy.ndimage.gaussian_filter(_unit(pixels), (sigma, sigma, 0), mode="nearest"))


def noise(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """x + c·N(0, 1), clipped, for each pixel and channel; c = .08, .12, .18, .26, .38 of the range from black to white.
    ImageNet-C's `gaussian_noise`."""
    return _to_bytes(_unit(pixels) + np.float32(_NOISE[level - 1]) * random.standard_normal(pixels.shape, np.float32))


def jpeg(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """JPEG of quality 25, 18, 15, 10 or 7, with Pillow's subsampling of colour. ImageNet-C's `jpeg_compression`."""
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=_JPEG[level - 1])
    return np.array(Image.open(file))


def dark(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """`level` stops less light: linear light (IEC 61966-2-1, sRGB) times 2^-level, as a shorter exposure has it. Not in
    ImageNet-C."""
    coded = np.arange(256) / 255
    light = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4) / 2**level
    darker = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return _to_bytes(darker.astype(np.float32))[pixels]


def bright(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """Value of HSV + .1, .2, .3, .4 or .5, at most 1; hue and saturation stay. ImageNet-C's `brightness`.

    Value is the largest channel, so all three are multiplied by the same factor; black becomes grey.
    """
    unit = _unit(pixels)
    value = unit.max(axis=2, keepdims=True)
    brightened = np.minimum(value + np.float32(_BRIGHT[level - 1]), 1)
    return _to_bytes(np.where(value > 0, unit * brightened / np.maximum(value, np.float32(1e-6)), brightened))


def fog(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """(x + c·plasma) · max(x) / (max(x) + c), with `plasma` in [0, 1] and (c, decay) = (1.5, 2), (2, 2), (2.5, 1.7),
    (2.5, 1.5), (3, 1.4). ImageNet-C's `fog`."""
    strength, decay = _FOG[level - 1]
    height, width = pixels.shape[:2]
    map_side = 1 << max(1, (max(height, width) - 1).bit_length())
    unit = _unit(pixels)
    most = float(unit.max())
    clouds = plasma(map_side, decay, random)[:height, :width, None]
    return _to_bytes((unit + np.float32(strength) * clouds) * np.float32(most / (most + strength)))


def plasma(side: int, decay: float, random: np.random.Generator) -> Floats:
    """Returns a fractal height map by diamonds and squares (Fournier, Fussell & Carpenter 1982), float32 (side, side)
    in [0, 1], periodic. `side`: a power of two, 2 or more; `decay`: 1 or more, larger is smoother.

    From each grid to the next finer one the random part shrinks by decay², as in ImageNet-C's `plasma_fractal`.
    """
    heights, step, spread = np.zeros((side, side), np.float32), side, 1.0
    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]

        def about(total: Floats, spread: float = spread) -> Floats:
            offsets: Floats = random.uniform(-spread, spread, total.shape).astype(np.float32)
            return total / np.float32(4) + offsets

        pairs = corners + np.roll(corners, -1, axis=0)
        centres = about(pairs + np.roll(pairs, -1, axis=1))
        rows = about(corners + np.roll(corners, -1, axis=1) + centres + np.roll(centres, 1, axis=0))
        columns = about(corners + np.roll(corners, -1, axis=0) + centres + np.roll(centres, 1, axis=1))
        heights[half::step, half::step] = centres
        heights[::step, half::step], heights[half::step, ::step] = rows, columns
        step, spread = half, spread / decay**2
    heights -= heights.min()
    plane: Floats = heights / heights.max()
    return plane


def rotation(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """Turned by 5, 10, 20, 30 or 45 degrees about the centre, to either side at random; what comes into the corners is
    the picture mirrored at its edge, for black corners would be a perturbation of their own. Not in ImageNet-C."""
    angle = _ROTATION[level - 1] * random.choice((-1.0, 1.0))
    return np.asarray(scipy.ndimage.rotate(pixels, angle, axes=(1, 0), reshape=False, order=1, mode="mirror"))


def crop(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """A part with 90, 80, 70, 60 or 50 % of each side, at a random place, enlarged to the size of the whole (bicubic).
    Not in ImageNet-C."""
    height, width = pixels.shape[:2]
    sides = [max(1, round(_CROP[level - 1] * side)) for side in (height, width)]
    down, right = random.uniform(size=2)
    top, left = round(down * (height - sides[0])), round(right * (width - sides[1]))
    part = pixels[top : top + sides[0], left : left + sides[1]]
    return np.array(Image.fromarray(part).resize((width, height), Image.Resampling.BICUBIC))


def grey(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """x + (luma - x) · level/5, luma = .299 R + .587 G + .114 B (ITU-R BT.601): level 5 has no colour. Not in
    ImageNet-C."""
    unit = _unit(pixels)
    return _to_bytes(unit + np.float32(level / 5) * ((unit @ _LUMA)[..., None] - unit))


def flip(pixels: Pixels, level: int, random: np.random.Generator) -> Pixels:
    """Mirrored left to right; of one level. Not in ImageNet-C."""
    if level != 1:
        raise IndexError(f"flip has level 1 only, not {level}")
    return np.ascontiguousarray(pixels[:, ::-1])


def _unit(pixels: Pixels) -> Floats:
    return pixels.astype(np.float32) / np.float32(255)


def _to_bytes(unit: Floats) -> Pixels:
    """Returns values of [0, 1], clipped and rounded. ImageNet-C's code cuts the fraction off, which darkens every
    picture by half a level of 255."""
    return np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8)


_FUNCTIONS: Mapping[str, Callable[[Pixels, int, np.random.Generator], Pixels]] = MappingProxyType(
    {function.__name__: function for function in (blur, noise, jpeg, dark, bright, fog, rotation, crop, grey, flip)}
)


# Turns an audit's images into rows of perturbed pictures, and answers these: a row for each picture and classifier.


UNPERTURBED = "none"
"""The name, at level 0, of the picture that is only reduced."""

FAST = 1
"""The compression of pictures, which are decoded at once and never kept."""

_AT_ONCE = 8
"""Images whose rows are made at once: each row may hold the image's bytes."""


@dataclass(frozen=True)
class Perturbing:
    """Which pictures are made of each image. `levels`: perturbations with their levels; `side`: pixels that the shorter
    side of a picture is reduced to; `seed`: of the audit."""

    levels: tuple[tuple[str, tuple[int, ...]], ...]
    side: int
    seed: int

    def each(self) -> Iterator[tuple[str, int]]:
        """Yields perturbation and level of each picture, the unperturbed one first."""
        yield UNPERTURBED, 0
        for name, levels in self.levels:
            yield from ((name, level) for level in levels)

    def picture_id(self, image_id: str, perturbation: str, level: int) -> str:
        return content_id("perturb", image_id, perturbation, level, self.side, self.seed)

    def picture(self, pixels: Pixels, image_id: str, perturbation: str, level: int) -> Pixels:
        """Returns a picture of an image, its random part from the image's id: it depends on no other image."""
        if perturbation == UNPERTURBED:
            return reduced(pixels, self.side)
        seed = seed_of("perturb", image_id, perturbation, self.seed)
        if perturbation == "jpeg":
            return reduced(perturbed(pixels, perturbation, level, seed), self.side)
        return perturbed(reduced(pixels, self.side), perturbation, level, seed)


def side_for(shapes: Iterable[Shape | None]) -> int:
    """Returns the side that pictures are reduced to: ImageNet-C's, or the largest that a classifier resizes its
    pictures to, where that is known to be more: it would be shown enlarged pictures otherwise."""
    sizes = [shape.size for shape in shapes if shape is not None and shape.size is not None]
    return max([PICTURE, *(size if isinstance(size, int) else min(size) for size in sizes)])


def picture_rows(images: pa.Table, perturbing: Perturbing, questions: Sequence[Classification]) -> Iterator[pa.Table]:
    """Yields the rows of images (columns of `tables.IMAGES`) a few at a time: each image once for each of its
    pictures, with `picture_id`, `perturbation`, `level`, and `prediction_id`, a list with one id per question."""
    kinds = list(perturbing.each())
    for start in range(0, images.num_rows, _AT_ONCE):
        chunk = images.slice(start, _AT_ONCE)
        rows = chunk.take(pa.array(np.repeat(np.arange(chunk.num_rows), len(kinds))))
        names, levels = zip(*kinds * chunk.num_rows, strict=True)
        pictures = [
            perturbing.picture_id(image_id, *kind) for image_id in chunk["image_id"].to_pylist() for kind in kinds
        ]
        ids = zip(*(question.prediction_ids(pictures) for question in questions), strict=True)
        rows = rows.append_column("picture_id", pa.array(pictures, pa.string()))
        rows = rows.append_column("perturbation", pa.array(names, pa.string()))
        rows = rows.append_column("level", pa.array(levels, pa.int8()))
        yield rows.append_column("prediction_id", pa.array(map(list, ids), pa.list_(pa.string())))


def with_pictures(rows: pa.Table, load: Load | None, perturbing: Perturbing) -> pa.Table:
    """Returns rows of `picture_rows` with each one's picture, a PNG, as its `bytes`, or an `error`.

    `load`: opens the source of images whose bytes are not in the rows. An image whose rows come one after another is
    read and decoded once.
    """
    ids = rows["image_id"].to_pylist()
    firsts = [row for row, image_id in enumerate(ids) if not row or ids[row - 1] != image_id]
    read = in_place(load).with_bytes(rows.select(_of_images(rows)).take(pa.array(firsts, pa.int64())))
    files: list[bytes | None] = []
    errors: list[str | None] = []
    kinds = list(zip(rows["perturbation"].to_pylist(), rows["level"].to_pylist(), strict=True))
    for first, end, data, error in zip(
        firsts, [*firsts[1:], len(ids)], read["bytes"], read["error"].to_pylist(), strict=True
    ):
        pixels, undecoded = (None, error) if error is not None else decoded(data.as_py())
        for kind in kinds[first:end]:
            files.append(None if pixels is None else png(perturbing.picture(pixels, ids[first], *kind), FAST))
            errors.append(undecoded)
    column_names = [name for name in rows.column_names if name not in ("bytes", "error", "pixels")]
    result = rows.select(column_names).append_column("bytes", pa.array(files, pa.large_binary()))
    return result.append_column("error", pa.array(errors, pa.string()))


def _of_images(rows: pa.Table) -> list[str]:
    added = ("picture_id", "perturbation", "level", "prediction_id")
    return [name for name in rows.column_names if name not in added]


def predict_pictures(rows: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    """Returns the classifiers' answers to rows of `with_pictures`: a table of `tables.PERTURBED_PREDICTIONS`."""
    index = rows.schema.get_field_index("image_id")
    of_pictures = rows.set_column(index, "image_id", rows["picture_id"])
    answers = predict_all(of_pictures, classifiers)
    positions = pc.index_in(answers["image_id"].combine_chunks(), rows["picture_id"].combine_chunks())
    index = answers.schema.get_field_index("image_id")
    answers = answers.set_column(index, "image_id", rows["image_id"].take(positions))
    for name in ("perturbation", "level"):
        answers = answers.append_column(name, rows[name].take(positions))
    return answers.select(PERTURBED_PREDICTIONS.names).cast(PERTURBED_PREDICTIONS)
