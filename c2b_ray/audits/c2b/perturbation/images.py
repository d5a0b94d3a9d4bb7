"""Turns an audit's images into rows of perturbed pictures, and answers these: a row for each picture and classifier.

    images → a row for each (image, perturbation, level) → its picture as a file → predictions

Every picture, the unperturbed one too, is first reduced as ImageNet-C's are
(`audits.c2b.perturbation.pictures.reduced`), so that the
answers to one image differ by the perturbation alone; a JPEG is made of the picture at its own size, as a camera or a
website makes it, and then reduced. Pictures are passed on as files without loss, so that every classifier, also one
that decodes files itself or elsewhere, is asked as it is about any image. It knows no source and no statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.perturbation.pictures import PICTURE, perturbed, reduced
from c2b_ray.roles import Pixels, Shape
from c2b_ray.steps.classify import Classification, LoadedClassifier, predict_all
from c2b_ray.steps.decode import decoded
from c2b_ray.steps.fetch import Load, in_place
from c2b_ray.steps.generate import png
from c2b_ray.tables import PERTURBED_PREDICTIONS, content_id, seed_of

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
    """Yields the rows of images (columns of `schemas.IMAGES`) a few at a time: each image once for each of its
    pictures, with `picture_id`, `perturbation`, `level`, and `prediction_id`, a list with one id per question."""
    kinds = list(perturbing.each())
    for start in range(0, images.num_rows, _AT_ONCE):
        some = images.slice(start, _AT_ONCE)
        rows = some.take(pa.array(np.repeat(np.arange(some.num_rows), len(kinds))))
        names, levels = zip(*kinds * some.num_rows, strict=True)
        pictures = [
            perturbing.picture_id(image_id, *kind) for image_id in some["image_id"].to_pylist() for kind in kinds
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
    kept = [name for name in rows.column_names if name not in ("bytes", "error", "pixels")]
    result = rows.select(kept).append_column("bytes", pa.array(files, pa.large_binary()))
    return result.append_column("error", pa.array(errors, pa.string()))


def _of_images(rows: pa.Table) -> list[str]:
    added = ("picture_id", "perturbation", "level", "prediction_id")
    return [name for name in rows.column_names if name not in added]


def predict_pictures(rows: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    """Returns the classifiers' answers to rows of `with_pictures`: a table of `schemas.PERTURBED_PREDICTIONS`."""
    place = rows.schema.get_field_index("image_id")
    of_pictures = rows.set_column(place, "image_id", rows["picture_id"])
    answers = predict_all(of_pictures, classifiers)
    at = pc.index_in(answers["image_id"].combine_chunks(), rows["picture_id"].combine_chunks())
    place = answers.schema.get_field_index("image_id")
    answers = answers.set_column(place, "image_id", rows["image_id"].take(at))
    for name in ("perturbation", "level"):
        answers = answers.append_column(name, rows[name].take(at))
    return answers.select(PERTURBED_PREDICTIONS.names).cast(PERTURBED_PREDICTIONS)
