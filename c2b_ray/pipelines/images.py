"""The two stages of an audit that touch every image: fetching bytes into a run, and classifying them.

It knows which step runs over which table, and leaves reading, writing and resuming to `stage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
import ray

from c2b_ray.pipelines.parts import Parts, opened, read_stage
from c2b_ray.pipelines.places import CPUS
from c2b_ray.pipelines.stage import Progress, StageConfig, StageResult, run_stage
from c2b_ray.roles import Classifier
from c2b_ray.schemas import IMAGES, PREDICTIONS
from c2b_ray.steps.draw import ImageSource, fetch
from c2b_ray.steps.predict import Question, predict

OnProgress = Callable[[Progress], None]
# Fetching is bound by reads, so a little CPU is enough; what it leaves lets the reads run.
FETCH = StageConfig(schema=IMAGES, batch_size=256, rows_per_file=1024, num_cpus_per_actor=0.25)
# One model for all cores: each thread decodes, prepares and classifies images of its own.
CLASSIFY = StageConfig(schema=PREDICTIONS, batch_size=32, rows_per_file=1024, threads=0, num_cpus_per_actor=0.5)


def collect(wanted: pa.Table, source: Callable[[], ImageSource], out: str, on_progress: OnProgress) -> StageResult:
    """The bytes of the `wanted` images (`image_id`, `row`) from `source` into Parquet parts under `out`."""
    rows = ray.data.from_arrow(_blocks(wanted, FETCH.batch_size))
    config = replace(FETCH, total=wanted.num_rows)
    return run_stage(rows, fetch, source, out, id_column="image_id", config=config, on_progress=on_progress)


def classify(
    images: str, classifier: Callable[[], Classifier], asked: Question, out: str, on_progress: OnProgress
) -> StageResult:
    """The classifier's predictions of every image under `images`, into Parquet parts under `out`."""
    parts = opened(images)
    # The names as rows, not `read_parquet`: its listing of files is an operator with a worker of its own, and starting
    # one costs seconds of a core.
    names = ray.data.from_arrow([pa.table({"name": [name]}) for name in parts.names()])
    rows = names.map_batches(
        partial(_images_to_ask, parts=parts, asked=asked), batch_format="pyarrow", batch_size=None, num_cpus=CPUS
    )
    config = replace(CLASSIFY, total=len(read_stage(images, ["image_id"])))
    step = partial(_predict, asked=asked)
    return run_stage(rows, step, classifier, out, id_column="prediction_id", config=config, on_progress=on_progress)


def _images_to_ask(names: pa.Table, parts: Parts, asked: Question) -> Iterator[pa.Table]:
    for name in names["name"].to_pylist():
        images = parts.read(name)
        ids = [asked.prediction_id(image_id) for image_id in images["image_id"].to_pylist()]
        yield images.append_column("prediction_id", pa.array(ids, pa.string()))


def _predict(batch: pa.Table, classifier: Classifier, asked: Question) -> pa.Table:
    return predict(batch, classifier, asked)


def _blocks(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)]
