"""The stages of an audit that touch every image: fetching or making it, verifying what it shows, classifying it.

It knows which step runs over which table, and leaves reading, writing and resuming to `stage`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.pipelines.progress import Progress
from c2b_ray.pipelines.stage import Rows, Runner, StageConfig, StageResult
from c2b_ray.roles import Captioner, Classifier, ImageGenerator
from c2b_ray.schemas import IMAGES, PREDICTIONS, VERIFICATIONS
from c2b_ray.steps import draw
from c2b_ray.steps.decode import BATCH_PIXELS, pixels_of
from c2b_ray.steps.draw import ImageSource, fetch, image_ids
from c2b_ray.steps.predict import Classification, LoadedClassifier, check_revision, predict_all
from c2b_ray.steps.verify import Checks
from c2b_ray.steps.verify import verify as verify_step
from c2b_ray.store.parts import Digests, Parts, absent, digests, opened

OnProgress = Callable[[Progress], None]
FETCH = StageConfig(IMAGES, stage="fetch", rows_per_file=1024)
GENERATE = StageConfig(IMAGES, stage="generate", rows_per_file=512)
VERIFY = StageConfig(VERIFICATIONS, stage="verify", rows_per_file=1024, weigh=pixels_of, most_weight=BATCH_PIXELS)
CLASSIFY = replace(VERIFY, schema=PREDICTIONS, stage="classify")
FETCHED_AT_ONCE = 256
MOST_BLOCKS, MOST_READS = 128, 512
"""The most blocks of row numbers, and of part names. Each block costs a driver on Ray some memory, however small."""


M = TypeVar("M", Captioner, ImageGenerator)


def of_revision(factory: Callable[[], M], revision: str, spec: str) -> M:
    """Loads and returns the model. Raises WeightsError where its revision differs from the described one."""
    model = factory()
    check_revision(spec, model.revision, revision)
    return model


@dataclass(frozen=True)
class Contestant:
    """A classifier of an audit: how to load it, and what to ask it."""

    classifier: Callable[[], Classifier]
    question: Classification


@dataclass(frozen=True)
class ImageStages:
    """The stages of one audit, all run by `runner`."""

    runner: Runner

    def collect(
        self,
        wanted: draw.Rows,
        revision: str,
        source: Callable[[], ImageSource],
        out: str,
        on_progress: OnProgress,
    ) -> StageResult:
        """Fetches the `wanted` rows of `source` and writes the images' bytes into Parquet parts under `out`.

        `revision`: of the source; the images' ids contain it.
        """
        # Ids are made where the rows are fetched: as text they take eight times the memory of the numbers.
        size = max(FETCHED_AT_ONCE, ceil(len(wanted) / MOST_BLOCKS))
        blocks = [pa.table({"row": wanted[start : start + size]}) for start in range(0, max(1, len(wanted)), size)]
        named = partial(_with_ids, revision=revision)
        rows = Rows(blocks, named, len(wanted), lambda: (part["image_id"] for block in blocks for part in named(block)))
        config = replace(FETCH, total=len(wanted))
        load = partial(_one_at_a_time, source)
        return self.runner.run(rows, fetch, load, out, id_column="image_id", config=config, on_progress=on_progress)

    def generate(
        self, wanted: pa.Table, generator: Callable[[], ImageGenerator], out: str, on_progress: OnProgress
    ) -> StageResult:
        """Generates the `wanted` images (`image_id`, `prompt`, `seed`) and writes them into Parquet parts under
        `out`."""
        rows = Rows(_blocks(wanted, GENERATE.rows_per_file), total=wanted.num_rows)
        config, step = replace(GENERATE, total=wanted.num_rows), draw.generate
        return self.runner.run(rows, step, generator, out, id_column="image_id", config=config, on_progress=on_progress)

    def verify(
        self,
        images: str,
        wanted: pa.Table,
        captioner: Callable[[], Captioner],
        questions: Checks,
        out: str,
        on_progress: OnProgress,
    ) -> StageResult:
        """Asks the captioner what it sees in each of the `wanted` images (`image_id`, `target_class`,
        `verification_id`)."""
        parts = opened(images)
        names, _ = _holding(parts, np.unique(digests(wanted["image_id"])))
        expand, ids = partial(_images_to_verify, parts=parts, wanted=Wanted.by_image(wanted)), wanted["verification_id"]
        rows = Rows(names, expand, wanted.num_rows, lambda: iter([ids]))
        config, step = replace(VERIFY, total=wanted.num_rows), partial(_verify, questions=questions)
        return self.runner.run(
            rows, step, captioner, out, id_column="verification_id", config=config, on_progress=on_progress
        )

    def classify(
        self,
        images: str,
        wanted: Callable[[], Digests],
        classifiers: Sequence[Contestant],
        out: str,
        on_progress: OnProgress,
    ) -> StageResult:
        """Writes all classifiers' predictions of the `wanted` images into Parquet parts under `out`.

        It makes one pass: an image is read and decoded once for all classifiers. `wanted`: computes the digests of the
        ids, sorted, each once. They are not held while images are classified, unless some images are not wanted.
        """
        parts, digests_wanted = opened(images), wanted()
        total = len(digests_wanted) * len(classifiers)
        questions = [one.question for one in classifiers]
        names, others = _holding(parts, digests_wanted)
        left_out = digests_wanted if others else None
        del digests_wanted
        expand = partial(_images_to_classify, parts=parts, questions=questions, wanted=left_out)
        rows = Rows(names, expand, total, partial(prediction_ids, questions, parts, wanted))
        config, role = replace(CLASSIFY, total=total), partial(_loaded, classifiers)
        return self.runner.run(
            rows, predict_all, role, out, id_column="prediction_id", config=config, on_progress=on_progress
        )


class _OneAtATime:
    """A source that serves one thread at a time, because it may keep what it reads. Sources of other processes are not
    affected."""

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._lock = threading.Lock()

    @property
    def revision(self) -> str:
        return self._source.revision

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        with self._lock:
            return self._source.fetch(ids)


def _one_at_a_time(load: Callable[[], ImageSource]) -> ImageSource:
    return _OneAtATime(load())


def _loaded(classifiers: Sequence[Contestant]) -> list[LoadedClassifier]:
    return [LoadedClassifier(one.classifier(), one.question) for one in classifiers]


def prediction_ids(
    questions: Sequence[Classification], images: Parts, wanted: Callable[[], Digests]
) -> Iterator[pa.Array]:
    """Yields the ids of all predictions of the `wanted` images (computes digests, sorted) that the parts hold, a part
    at a time."""
    those = wanted()
    for table in images.each(("image_id",)):
        names = table["image_id"].filter(pa.array(~absent(table["image_id"], those))).to_pylist()
        for question in questions:
            yield pa.array(question.prediction_ids(names), pa.string())


def _images_to_classify(
    names: pa.Table, parts: Parts, questions: Sequence[Classification], wanted: Digests | None
) -> Iterator[pa.Table]:
    """`wanted`: None where all images of these parts are wanted."""
    for name in names["name"].to_pylist():
        images = parts.read(name)
        if wanted is not None:
            images = images.filter(pa.array(~absent(images["image_id"], wanted)))
        names_of = images["image_id"].to_pylist()
        ids = list(zip(*(question.prediction_ids(names_of) for question in questions), strict=True))
        yield images.append_column("prediction_id", pa.array(ids, pa.list_(pa.string())))


def _images_to_verify(names: pa.Table, parts: Parts, wanted: Wanted) -> Iterator[pa.Table]:
    for name in names["name"].to_pylist():
        # Not a join of tables: Arrow's cannot carry binary columns of more than 2 GiB.
        images = parts.read(name)
        of_part = wanted.of(images["image_id"])
        at = pc.index_in(of_part["image_id"].combine_chunks(), images["image_id"].combine_chunks())
        rows = images.take(at)
        for column in ("target_class", "verification_id"):
            rows = rows.append_column(column, of_part[column])
        yield rows


@dataclass(frozen=True)
class Wanted:
    """Rows sorted by their image, so that a few images' rows are looked up without reading all of them."""

    rows: pa.Table
    digests: Digests

    @staticmethod
    def by_image(rows: pa.Table) -> Wanted:
        marks = digests(rows["image_id"])
        order = np.argsort(marks, kind="stable")
        return Wanted(rows.take(order).combine_chunks(), marks[order])

    def of(self, images: pa.ChunkedArray) -> pa.Table:
        """Returns the rows of these images."""
        marks = np.unique(digests(images))
        first, last = (np.searchsorted(self.digests, marks, side=side) for side in ("left", "right"))
        ranges = [np.arange(a, b) for a, b in zip(first, last, strict=True)]
        return self.rows.take(np.concatenate([np.zeros(0, np.int64), *ranges]))


def _with_ids(rows: pa.Table, revision: str) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, FETCHED_AT_ONCE):
        some = rows.slice(start, FETCHED_AT_ONCE)
        yield some.append_column("image_id", image_ids(some["row"].to_numpy(), revision))


def _holding(parts: Parts, wanted: Digests) -> tuple[list[pa.Table], bool]:
    """Returns the names of the parts that hold any wanted image, and whether they may hold other images too.

    Bytes of other parts are not read. Where no part holds a wanted image, it returns the first part.
    """
    names, holding, others = parts.names(), [], False
    for name, table in zip(names, parts.each(("image_id",)), strict=True):
        lacking = absent(table["image_id"], wanted)
        if not lacking.all():
            holding.append(name)
            others = others or bool(lacking.any())
    chosen = holding or names[:1]
    size = ceil(len(chosen) / MOST_READS)
    blocks = [pa.table({"name": chosen[start : start + size]}) for start in range(0, len(chosen), size or 1)]
    return blocks, others or not holding


def _verify(batch: pa.Table, captioner: Captioner, questions: Checks) -> pa.Table:
    return verify_step(batch, captioner, questions)


def _blocks(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)]
