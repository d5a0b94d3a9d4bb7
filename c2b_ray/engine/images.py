"""The stages of an audit that touch every image: fetching or making it, verifying what it shows, classifying it.

It knows which step runs over which table, and leaves reading, writing and resuming to `stage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.engine.here import preparing, usable
from c2b_ray.engine.numbered import numbered, one_at_a_time
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.rows import SecondTable
from c2b_ray.engine.stage import Rows, Runner, StageConfig, StageResult
from c2b_ray.roles import Captioner, Classifier, ImageGenerator, LanguageModel, Shape, TextImageEncoder
from c2b_ray.steps import draw
from c2b_ray.steps.classify import Classification, LoadedClassifier, check_revision, predict_all
from c2b_ray.steps.decode import BATCH_PIXELS, pixels_of
from c2b_ray.steps.draw import ImageSource, fetch
from c2b_ray.steps.fetch import COLUMNS, FILE, Load, Others, completed, look, reading_before, with_reading
from c2b_ray.steps.observe import Checks, verify
from c2b_ray.storage.parts import DIGEST, Digests, OnDisk, Parts, RecordBuffer, absent, among, digests, distinct, opened
from c2b_ray.tables import IMAGES, PREDICTIONS, VERIFICATIONS
from c2b_ray.tables.path import PLACED_IMAGES

OnProgress = Callable[[Progress], None]
FETCH = StageConfig(IMAGES, stage="fetch", rows_per_file=1024)
GENERATE = StageConfig(IMAGES, stage="generate", rows_per_file=512)
VERIFY = StageConfig(VERIFICATIONS, stage="verify", rows_per_file=1024, weigh=pixels_of, most_weight=BATCH_PIXELS)
CLASSIFY = replace(VERIFY, schema=PREDICTIONS, stage="classify")
MOST_READS = 512
"""The most blocks of part names. Each block costs a driver on Ray some memory, however small."""


M = TypeVar("M", Captioner, ImageGenerator, LanguageModel, TextImageEncoder)


def of_revision(factory: Callable[[], M], revision: str, spec: str) -> M:
    """Loads and returns the model. Raises WeightsError where its revision differs from the described one."""
    model = factory()
    check_revision(spec, model.revision, revision)
    return model


@dataclass(frozen=True)
class AuditedClassifier:
    """A classifier of an audit: how to load it, what to ask it, and how pictures are prepared for it, where another
    process can do that. `takes_files`: whether it decodes encoded images itself (`roles.FileClassifier`)."""

    classifier: Callable[[], Classifier]
    question: Classification
    shape: Shape | None = None
    takes_files: bool = False


@dataclass(frozen=True)
class Selection:
    """Some of the images in a stage's parts.

    `blocks`: tables of names, together of the parts that hold any of them. `total`: how many there are. `marks`: the
    sorted digests of their ids; None where all images are selected, because the digests of millions take memory.
    """

    parts: Parts
    blocks: list[pa.Table]
    total: int
    marks: Digests | None

    def of(self, images: pa.Table) -> pa.Table:
        """Returns the selected rows of a part."""
        return images if self.marks is None else images.filter(pa.array(~absent(images["image_id"], self.marks)))


def selected(images: str, wanted: Callable[[], Iterable[Digests]]) -> Selection:
    """Selects the wanted images of the parts under `images`.

    `wanted` yields digests of their ids, some at a time and in any order; an id may come again.
    """
    parts = opened(images)
    total, all_wanted = _compared(parts, wanted)
    if all_wanted:
        return Selection(parts, _name_blocks(parts.names()), total, None)
    buffer = RecordBuffer(DIGEST)
    for block in wanted():
        buffer.add(block)
    ids = np.unique(buffer.whole())
    return Selection(parts, _name_blocks(_holding(parts, ids)), total, ids)


def image_rows(images: Selection, id_column: str, ids_of: Callable[[list[str]], pa.Array]) -> Rows:
    """Returns the selected images as the rows of a stage, with their files where the parts hold them.

    `ids_of`: returns the ids of the rows of images with these ids; it can be sent to workers.
    """

    def ids() -> Iterator[pa.Array]:
        for table in images.parts.each(("image_id",)):
            yield ids_of(images.of(table)["image_id"].to_pylist())

    return Rows(images.blocks, partial(_with_ids, images, id_column, ids_of), images.total, ids)


def _with_ids(
    images: Selection, id_column: str, ids_of: Callable[[list[str]], pa.Array], names: pa.Table
) -> Iterator[pa.Table]:
    for name in names["name"].to_pylist():
        rows = images.of(completed(images.parts.read(name, COLUMNS)))
        yield rows.append_column(id_column, ids_of(rows["image_id"].to_pylist()))


def _compared(parts: Parts, wanted: Callable[[], Iterable[Digests]]) -> tuple[int, bool]:
    """Returns how many ids are wanted, and whether they are all that the parts hold, in memory that does not grow with
    the rows."""
    total, all_wanted = 0, True
    folder = parts.path if parts.local else None
    with OnDisk(DIGEST, folder) as wanted_ids, OnDisk(DIGEST, folder) as part_ids:
        for block in wanted():
            wanted_ids.add(block)
        for table in parts.each(("image_id",)):
            part_ids.add(digests(table["image_id"]))
        for block, part_block in zip(wanted_ids.in_order(), part_ids.in_order(), strict=True):
            block = distinct(block)
            total += len(block)
            all_wanted = all_wanted and among(part_block, block)
    return total, all_wanted


@dataclass(frozen=True)
class ImageStages:
    """The stages of one audit, all run by `runner`."""

    runner: Runner

    def collect(
        self,
        wanted: draw.RowNumbers,
        revision: str,
        source: Callable[[], ImageSource],
        out: str,
        on_progress: OnProgress,
        keep: bool = False,
    ) -> StageResult:
        """Fetches the `wanted` rows of `source` and writes the images into Parquet parts under `out`.

        `revision`: of the source; the images' ids contain it. `keep`: whether the parts hold the images' bytes, which
        are otherwise read where they lie by the stages that need them.
        """
        config = replace(FETCH, total=len(wanted), schema=IMAGES if keep else PLACED_IMAGES)
        rows, load, step = numbered(wanted, revision), partial(one_at_a_time, source), partial(fetch, keep=keep)
        return self.runner.run(rows, step, load, out, id_column="image_id", config=config, on_progress=on_progress)

    def generate(
        self, wanted: pa.Table, generator: Callable[[], ImageGenerator], out: str, on_progress: OnProgress
    ) -> StageResult:
        """Generates the `wanted` images (`image_id`, `prompt`, `seed`) and writes them into Parquet parts under
        `out`."""
        rows, config = Rows.of(wanted, GENERATE.rows_per_file), replace(GENERATE, total=wanted.num_rows)
        step = draw.generate
        return self.runner.run(rows, step, generator, out, id_column="image_id", config=config, on_progress=on_progress)

    def verify(
        self,
        images: str,
        wanted: pa.Table,
        captioner: Callable[[], Captioner],
        questions: Checks,
        out: str,
        on_progress: OnProgress,
        source: Load | None = None,
    ) -> StageResult:
        """Asks the captioner what it sees in each of the `wanted` images (`image_id`, `target_class`,
        `verification_id`). `source`: of those whose bytes are not in the parts."""
        parts = opened(images)
        names = _name_blocks(_holding(parts, np.unique(digests(wanted["image_id"]))))
        expand, ids = (
            partial(images_wanted, parts=parts, wanted=RowsByImage.by_image(wanted)),
            wanted["verification_id"],
        )
        rows = Rows(names, expand, wanted.num_rows, lambda: iter([ids]))
        step, role = with_reading(partial(verify, checks=questions), captioner, source)
        config = replace(VERIFY, total=wanted.num_rows)
        return self.runner.run(
            rows, step, role, out, id_column="verification_id", config=config, on_progress=on_progress
        )

    def classify(
        self,
        images: Selection,
        classifiers: Sequence[AuditedClassifier],
        out: str,
        on_progress: OnProgress,
        source: Load | None = None,
    ) -> StageResult:
        """Writes all classifiers' predictions of the selected images into Parquet parts under `out`.

        It makes one pass: an image is read and decoded once for all classifiers. `source`: of those whose bytes are not
        in the parts.
        """
        total = images.total * len(classifiers)
        questions = [classifier.question for classifier in classifiers]
        expand = partial(_images_to_classify, images=images, questions=questions)
        rows = Rows(images.blocks, expand, total, partial(prediction_ids, questions, images))
        prepare = reading_before(source, preparing(classifier.shape for classifier in classifiers))
        step, role = with_reading(predict_all, partial(loaded, classifiers), source, prepare)
        config = replace(CLASSIFY, total=total)
        return self.runner.run(
            rows,
            step,
            role,
            out,
            id_column="prediction_id",
            config=config,
            on_progress=on_progress,
            prepare=prepare,
        )


def loaded(classifiers: Sequence[AuditedClassifier]) -> list[LoadedClassifier]:
    return [LoadedClassifier(classifier.classifier(), classifier.question) for classifier in classifiers]


def prediction_ids(questions: Sequence[Classification], images: Selection) -> Iterator[pa.Array]:
    """Yields the ids of all predictions of the selected images, a part at a time."""
    for table in images.parts.each(("image_id",)):
        names = images.of(table)["image_id"].to_pylist()
        for question in questions:
            yield pa.array(question.prediction_ids(names), pa.string())


def _images_to_classify(names: pa.Table, images: Selection, questions: Sequence[Classification]) -> Iterator[pa.Table]:
    for name in names["name"].to_pylist():
        yield with_prediction_ids(images.of(completed(images.parts.read(name, COLUMNS))), questions)


def with_prediction_ids(images: pa.Table, questions: Sequence[Classification]) -> pa.Table:
    """Returns the images with the ids of all predictions of each, a list per image."""
    names = images["image_id"].to_pylist()
    ids = list(zip(*(question.prediction_ids(names) for question in questions), strict=True))
    return images.append_column("prediction_id", pa.array(ids, pa.list_(pa.string())))


def images_wanted(names: pa.Table, parts: Parts, wanted: RowsByImage) -> Iterator[pa.Table]:
    """Yields for each of the named parts its wanted images: their row there, with the columns of what is wanted."""
    for name in names["name"].to_pylist():
        # Not a join of tables: Arrow's cannot carry binary columns of more than 2 GiB.
        images = completed(parts.read(name, COLUMNS))
        matches = wanted.of(images["image_id"])
        positions = pc.index_in(matches["image_id"].combine_chunks(), images["image_id"].combine_chunks())
        rows = images.take(positions)
        for column in matches.column_names:
            if column != "image_id":
                rows = rows.append_column(column, matches[column])
        yield rows


@dataclass(frozen=True)
class RowsByImage:
    """Rows sorted by their image, so that a few images' rows are looked up without reading all of them."""

    rows: pa.Table
    digests: Digests

    @staticmethod
    def by_image(rows: pa.Table) -> RowsByImage:
        keys = digests(rows["image_id"])
        order = np.argsort(keys, kind="stable")
        return RowsByImage(rows.take(order).combine_chunks(), keys[order])

    def of(self, images: pa.ChunkedArray) -> pa.Table:
        """Returns the rows of these images."""
        keys = np.unique(digests(images))
        first, last = (np.searchsorted(self.digests, keys, side=side) for side in ("left", "right"))
        ranges = [np.arange(a, b) for a, b in zip(first, last, strict=True)]
        return self.rows.take(np.concatenate([np.zeros(0, np.int64), *ranges]))


def _holding(parts: Parts, wanted: Digests) -> list[str]:
    """Returns the names of the parts that hold any wanted image, or the first part where none does.

    Bytes of other parts are not read.
    """
    names = parts.names()
    tables = zip(names, parts.each(("image_id",)), strict=True)
    return [name for name, table in tables if not absent(table["image_id"], wanted).all()] or names[:1]


def _name_blocks(names: Sequence[str]) -> list[pa.Table]:
    size = ceil(len(names) / MOST_READS)
    return [pa.table({"name": names[start : start + size]}) for start in range(0, len(names), size or 1)]


# One pass over images that are all to be classified: each is read where it lies, looked at, decoded and answered
# about once.


@dataclass(frozen=True)
class OutputDirectories:
    """Where a pass writes: `images` and `predictions` are directories of parts. `keep`: whether images hold bytes."""

    images: str
    predictions: str
    keep: bool = False


def look_and_classify(
    runner: Runner,
    rows: tuple[draw.RowNumbers, str],
    source: Load,
    classifiers: Sequence[AuditedClassifier],
    to: OutputDirectories,
    on_progress: OnProgress,
) -> StageResult:
    """Writes the images of `rows` of a source and all classifiers' predictions of them.

    `rows`: their numbers, and the source's revision, which the images' ids contain.
    """
    questions = [classifier.question for classifier in classifiers]
    numbers, revision = rows
    prediction_rows = numbered(numbers, revision, "prediction_id", partial(with_prediction_ids, questions=questions))
    total = len(numbers) * len(classifiers)
    views, all_usable = usable(classifier.shape for classifier in classifiers)
    others: Others = (
        "none" if all_usable else "files" if any(classifier.takes_files for classifier in classifiers) else "decoded"
    )
    return runner.run(
        replace(prediction_rows, total=total),
        _predicted,
        partial(loaded, classifiers),
        to.predictions,
        id_column="prediction_id",
        config=replace(CLASSIFY, total=total),
        on_progress=on_progress,
        prepare=partial(look, load=source, views=views, keep=to.keep, others=others),
        also=SecondTable(to.images, IMAGES if to.keep else PLACED_IMAGES, "image_id"),
    )


def _predicted(images: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    return pa.concat_tables([predict_all(batch.drop_columns(["bytes"]), classifiers) for batch in _in_memory(images)])


def _in_memory(images: pa.Table) -> Iterator[pa.Table]:
    """Yields the images, as many at a time as models may decode at once."""
    first = 0
    if FILE in images.column_names:
        undecoded = pc.if_else(pc.is_valid(images[FILE]), images["pixels"], 0)
        pixels = pc.fill_null(undecoded, 0).to_numpy().astype(np.int64)
        for row in range(1, images.num_rows):
            if pixels[first : row + 1].sum() > BATCH_PIXELS:
                yield images.slice(first, row - first)
                first = row
    yield images.slice(first)
