"""The stages of an audit that touch every image: fetching or making it, verifying what it shows, classifying it.

It knows which step runs over which table, and leaves reading, writing and resuming to `stage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import ray

from c2b_ray.pipelines.sources.files import CPUS
from c2b_ray.pipelines.stage import Progress, StageConfig, StageResult, run_stage
from c2b_ray.pipelines.worker_errors import carried_rows
from c2b_ray.roles import Captioner, Classifier, ImageGenerator
from c2b_ray.schemas import IMAGES, PREDICTIONS, VERIFICATIONS
from c2b_ray.steps import draw
from c2b_ray.steps.decode import BATCH_PIXELS, pixels_of
from c2b_ray.steps.draw import ImageSource, fetch
from c2b_ray.steps.predict import Question, predict
from c2b_ray.steps.verify import Checks
from c2b_ray.steps.verify import verify as verify_step
from c2b_ray.store.parts import THREADS, Parts, opened

OnProgress = Callable[[Progress], None]
# Fetching is bound by reads, so a little CPU is enough; what it leaves lets the reads run.
FETCH = StageConfig(schema=IMAGES, batch_size=256, rows_per_file=1024, num_cpus_per_actor=0.25)
GENERATE = StageConfig(schema=IMAGES, batch_size=64, rows_per_file=512, num_cpus_per_actor=0.5)
VERIFY = StageConfig(
    schema=VERIFICATIONS,
    batch_size=64,
    rows_per_file=1024,
    num_cpus_per_actor=0.5,
    weigh=pixels_of,
    most_weight=BATCH_PIXELS,
)
# One model for all cores: each thread decodes, prepares and classifies images of its own.
CLASSIFY = replace(VERIFY, schema=PREDICTIONS, batch_size=32, threads=0)


def collect(wanted: pa.Table, source: Callable[[], ImageSource], out: str, on_progress: OnProgress) -> StageResult:
    """The bytes of the `wanted` images (`image_id`, `row`) from `source` into Parquet parts under `out`."""
    rows = ray.data.from_arrow(_blocks(wanted, FETCH.batch_size))
    config = replace(FETCH, total=wanted.num_rows)
    return run_stage(rows, fetch, source, out, id_column="image_id", config=config, on_progress=on_progress)


def generate(
    wanted: pa.Table, generator: Callable[[], ImageGenerator], out: str, on_progress: OnProgress
) -> StageResult:
    """The `wanted` images (`image_id`, `prompt`, `seed`) of a generator into Parquet parts under `out`."""
    rows = ray.data.from_arrow(_blocks(wanted, GENERATE.rows_per_file))
    config = replace(GENERATE, total=wanted.num_rows)
    return run_stage(rows, draw.generate, generator, out, id_column="image_id", config=config, on_progress=on_progress)


def verify(
    images: str,
    wanted: pa.Table,
    captioner: Callable[[], Captioner],
    asked: Checks,
    out: str,
    on_progress: OnProgress,
) -> StageResult:
    """What the captioner sees in each of the `wanted` images (`image_id`, `target_class`, `verification_id`)."""
    parts = opened(images)
    rows = _names(parts, wanted["image_id"].combine_chunks()).map_batches(
        partial(_images_to_verify, parts=parts, wanted=ray.put(wanted)),
        batch_format="pyarrow",
        batch_size=None,
        num_cpus=CPUS,
    )
    config = replace(VERIFY, total=wanted.num_rows)
    step = partial(_verify, asked=asked)
    return run_stage(rows, step, captioner, out, id_column="verification_id", config=config, on_progress=on_progress)


def classify(
    images: str,
    wanted: pa.Array,
    classifier: Callable[[], Classifier],
    asked: Question,
    out: str,
    on_progress: OnProgress,
) -> StageResult:
    """The classifier's predictions of the `wanted` images (ids, each once), into Parquet parts under `out`."""
    parts = opened(images)
    rows = _names(parts, wanted).map_batches(
        partial(_images_to_ask, parts=parts, asked=asked, wanted=ray.put(wanted)),
        batch_format="pyarrow",
        batch_size=None,
        num_cpus=CPUS,
    )
    config = replace(CLASSIFY, total=len(wanted))
    step = partial(_predict, asked=asked)
    return run_stage(rows, step, classifier, out, id_column="prediction_id", config=config, on_progress=on_progress)


@carried_rows
def _images_to_ask(
    names: pa.Table, parts: Parts, asked: Question, wanted: ray.ObjectRef[pa.Array]
) -> Iterator[pa.Table]:
    ids = ray.get(wanted)
    for name in names["name"].to_pylist():
        images = parts.read(name)
        images = images.filter(pc.is_in(images["image_id"], ids))
        of_images = [asked.prediction_id(image_id) for image_id in images["image_id"].to_pylist()]
        yield images.append_column("prediction_id", pa.array(of_images, pa.string()))


@carried_rows
def _images_to_verify(names: pa.Table, parts: Parts, wanted: ray.ObjectRef[pa.Table]) -> Iterator[pa.Table]:
    asked = ray.get(wanted)
    for name in names["name"].to_pylist():
        # Not a join of tables: Arrow's cannot carry binary columns of more than 2 GiB.
        images = parts.read(name)
        own = asked.filter(pc.is_in(asked["image_id"], images["image_id"].combine_chunks()))
        at = pc.index_in(own["image_id"].combine_chunks(), images["image_id"].combine_chunks())
        found = images.take(at)
        for column in ("target_class", "verification_id"):
            found = found.append_column(column, own[column])
        yield found


def _names(parts: Parts, wanted: pa.Array) -> ray.data.Dataset:
    """The parts that hold any wanted image, so that no other's bytes are read; the first of all where none does.

    As rows, not `read_parquet`: its listing of files is an operator with a worker of its own, and starting one costs
    seconds of a core.
    """
    names = parts.names()
    with ThreadPoolExecutor(THREADS) as pool:
        held = pool.map(lambda name: parts.read(name, ("image_id",))["image_id"], names)
    holding = [name for name, ids in zip(names, held, strict=True) if pc.any(pc.is_in(ids, wanted)).as_py()]
    return ray.data.from_arrow([pa.table({"name": [name]}) for name in holding or names[:1]])


def _verify(batch: pa.Table, captioner: Captioner, asked: Checks) -> pa.Table:
    return verify_step(batch, captioner, asked)


def _predict(batch: pa.Table, classifier: Classifier, asked: Question) -> pa.Table:
    return predict(batch, classifier, asked)


def _blocks(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)]
