"""Copies a dataset of failures into a format that other tools read, for `c2b dataset export`.

    shards → files, a stage that resumes → files about the whole export → OUT

An export appears whole: it is written beside OUT and renamed. On an object store, which cannot rename, its
`.c2b-export.json` is written last. Each file is written by one worker from a few shards, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from c2b_ray.audits.dataset.formats import ExportedRows, FiftyOne, Format, HuggingFace, ImageFolder, WebDataset
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.errors import Argument, ConfigError, nearest
from c2b_ray.report.formats.folder import WORK, Folder, destination
from c2b_ray.storage import resolve
from c2b_ray.storage.failure_dataset import FailureDataset, classifiers_of, open_dataset, without_rows
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import DATASET_ROWS

FORMATS: dict[str, Callable[[tuple[str, ...], int], Format]] = {
    "imagefolder": lambda labels, total: ImageFolder(labels),
    "webdataset": lambda labels, total: WebDataset(labels),
    "huggingface": lambda labels, total: HuggingFace(labels, total),
    "fiftyone": lambda labels, total: FiftyOne(labels),
}
FILE_ROWS, FILE_BYTES = 5_000, 256 * 2**20
ALONE = Session()
EXPORTED = pa.schema([("file_id", pa.string()), ("number", pa.int64()), ("rows", pa.int64()), ("bytes", pa.int64())])


@dataclass(frozen=True)
class Exported:
    """`files`: shards, Parquet files, or groups of images that one worker wrote."""

    out: str
    format: str
    rows: int
    labels: int
    files: int
    bytes: int


def export(dataset: str, format: str, out: str, classifier: str | None = None, session: Session = ALONE) -> Exported:
    """Writes the dataset, or the failures of `classifier` in it, to `out` in a format of `FORMATS`.

    Raises ConfigError for an unknown format or classifier; RunError where `out` holds files; SourceError where nothing
    is left to export. After an interruption the same call resumes.
    """
    if format not in FORMATS:
        raise ConfigError(Argument.FORMAT, f"there is no format {format!r}; {nearest(format, FORMATS)}")
    failures = open_dataset(dataset, classifier)
    if not failures.rows:
        raise without_rows(failures)
    steps = Steps(session.listener)
    groups = groups_of(failures)
    identity = {"dataset": failures.id, "format": format, "classifier": classifier, "version": 1}
    with destination(out, identity) as folder, session.backend(lambda: 0) as models:
        models.runner.check_paths(folder.location, {dataset: "DIR"})
        with steps.step("count labels"):
            labels = dict(sorted(failures.label_counts().items()))
            if not labels:
                raise without_rows(failures)
        kind = FORMATS[format](tuple(labels), len(groups))
        with steps.step("write files") as on_progress:
            rows = Rows([_block(failures, number, group) for number, group in enumerate(groups)], total=len(groups))
            config = StageConfig(EXPORTED, Placement(batch=1), rows_per_file=1, total=len(groups))
            step = partial(_write, dataset=failures, folder=folder)
            parts = f"{folder.location}/{WORK}/files"
            models.runner.run(
                rows, step, partial(_same, kind), parts, id_column="file_id", config=config, on_progress=on_progress
            )
        with steps.step("write what is about all files"):
            written = read_stage(parts).sort_by("number")
            count, size = sum(written["rows"].to_pylist()), sum(written["bytes"].to_pylist())
            numbers = written["number"].to_pylist()
            kind.finish(
                folder, ExportedRows(count, labels, failures.config, failures.manifest, classifier, size, numbers)
            )
    return Exported(str(out), format, count, len(labels), len(groups), size)


def groups_of(dataset: FailureDataset) -> list[list[str]]:
    """Returns the names of the shards of each file: adjacent ones, until there are enough rows or bytes."""
    groups: list[list[str]] = []
    rows = size = 0
    for shard in dataset.shards:
        if not groups or rows + shard.rows > FILE_ROWS or size + shard.bytes > FILE_BYTES:
            groups.append([])
            rows = size = 0
        groups[-1].append(shard.name)
        rows, size = rows + shard.rows, size + shard.bytes
    return groups


def _block(dataset: FailureDataset, number: int, shards: list[str]) -> pa.Table:
    kinds = pa.schema([("file_id", pa.string()), ("number", pa.int64()), ("shards", pa.list_(pa.string()))])
    row = {"file_id": content_id(dataset.id, number, shards), "number": number, "shards": shards}
    return pa.Table.from_pylist([row], kinds)


def _write(batch: pa.Table, kind: Format, dataset: FailureDataset, folder: Folder) -> pa.Table:
    rows = []
    for row in batch.to_pylist():
        written = kind.write(row["number"], dataset.tables(row["shards"]), folder)
        rows.append({"file_id": row["file_id"], "number": row["number"], **asdict(written)})
    return pa.Table.from_pylist(rows, EXPORTED)


def _same(kind: Format) -> Format:
    return kind


# Loads a dataset of failures as Arrow's `Dataset`, which reads only the columns and rows of a query.


def load_dataset(location: str | Path, classifier: str | None = None) -> ds.Dataset:
    """Returns the rows of a finished dataset, of `tables.dataset.DATASET_ROWS`, without reading them.

    `classifier`: only the rows that this one of its classifiers fails on; the columns stay the same, and its answer is
    in `answers`. Raises SourceError where there is no finished dataset; ConfigError for an unknown classifier.
    """
    dataset = open_dataset(str(location), classifier)
    filesystem, path = resolve(location)
    names = [f"{path}/shards/{shard.name}" for shard in dataset.shards]
    rows = ds.dataset(names, schema=DATASET_ROWS, format="parquet", filesystem=filesystem)
    if classifier is None:
        return rows
    index = classifiers_of(dataset).index(dataset.name_of(classifier))
    return rows.filter(pc.struct_field(pc.list_element(ds.field("answers"), index), "failed"))
