"""What a job has made, for reading: its tables, images, report and documents. Routes and pages read through it.

Of an audit it reads the run directory, of a dataset its shards, of a question its answer. A name is looked up among
those that there are, never part of a path. It loads no model.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.endpoint.api.problems import ProblemError, not_found
from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.report.kit.export import exported
from c2b_ray.report.kit.pictures import read_pictures
from c2b_ray.schemas.dataset import DATASET_ROWS
from c2b_ray.store import files
from c2b_ray.store.failure_dataset import FailureDataset, open_dataset
from c2b_ray.store.run import MANIFEST, Run, load_run

ROWS, ANSWER, REPORT = "rows", "answer.json", "report.html"
_REMEMBERED, _SECONDS = 64, 300.0
_known: OrderedDict[str, tuple[float, Made]] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class Made:
    """What lies at a job's path. `run`: of an audit; `dataset`: of a dataset whose build has ended; else neither."""

    job: Job
    path: str
    run: Run | None = None
    dataset: FailureDataset | None = None

    @property
    def tables(self) -> dict[str, pa.Schema]:
        """The schema of each table that is there."""
        if self.dataset is not None:
            return {ROWS: DATASET_ROWS}
        run = self.run
        return {} if run is None else {name: schema for name, schema in run.kind.tables.items() if run.has(name)}

    @property
    def exports(self) -> list[str]:
        if self.dataset is not None:
            return ["csv", "json", "parquet"]
        return [] if self.run is None else list(self.run.kind.exports)

    def rows(self, name: str) -> int:
        if self.dataset is not None:
            return self.dataset.rows
        record = None if self.run is None else (self.run.record.tables or {}).get(name)
        return record.rows if record is not None else self.table(name, [self.tables[name].names[0]]).num_rows

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """The whole table, with nothing in it that should stay on the machine. 404 where there is none."""
        if name not in self.tables:
            raise not_found("table")
        if self.dataset is not None:
            tables = list(self._shards(columns))
            table = pa.concat_tables(tables) if tables else DATASET_ROWS.empty_table().select(columns or [])
        else:
            assert self.run is not None
            table = self.run.read(name, columns)
        return exported(table)

    def page(self, name: str, start: int, limit: int) -> pa.Table:
        """Rows of a table from `start` on, without the bytes of images. 404 where there is no such table."""
        if name not in self.tables:
            raise not_found("table")
        columns = readable(self.tables[name])
        if self.dataset is None:
            assert self.run is not None
            return exported(self.run.read(name, columns).slice(start, limit))
        kept: list[pa.Table] = []
        for shard in self.dataset.shards:
            if start < shard.rows and limit > 0:
                for part in self.dataset.tables([shard.name], columns):
                    taken = part.slice(start, limit)
                    start, limit = max(0, start - part.num_rows), limit - taken.num_rows
                    kept.append(taken)
            else:
                start -= shard.rows
        return exported(pa.concat_tables(kept) if kept else DATASET_ROWS.empty_table().select(columns))

    def image(self, image_id: str) -> bytes:
        """Its encoded bytes. 404 where the run holds none with this id."""
        if self.dataset is not None:
            found = self._of_shards(image_id)
        elif self.run is not None and "images" in self.run.kind.tables:
            found = read_pictures(self.run, [image_id]).get(image_id)
        else:
            found = None
        if found is None:
            raise not_found("image")
        return found

    def document(self, name: str) -> bytes:
        """`report.html` or `answer.json`, as it was written. 404 where this job has none."""
        if not files.exists(f"{self.path}/{name}"):
            raise not_found("report" if name == REPORT else "answer")
        return files.read_bytes(f"{self.path}/{name}")

    def _shards(self, columns: list[str] | None) -> Iterator[pa.Table]:
        assert self.dataset is not None
        for shard in self.dataset.shards:
            yield from self.dataset.tables([shard.name], columns)

    def _of_shards(self, image_id: str) -> bytes | None:
        assert self.dataset is not None
        for shard in self.dataset.shards:
            for part in self.dataset.tables([shard.name], ["image_id"]):
                if image_id in part["image_id"].to_pylist():
                    for rows in self.dataset.tables([shard.name], ["image_id", "image"]):
                        ids = rows["image_id"].to_pylist()
                        if image_id in ids:
                            return bytes(rows["image"][ids.index(image_id)].as_py())
        return None


def made_by(job: Job, path: str) -> Made:
    """What a job has made so far; 409 where there is nothing to read yet."""
    if job.state == "finished":
        with _lock:
            known = _known.get(path)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
    made = _read(job, path)
    if job.state == "finished":
        with _lock:
            _known[path] = time.monotonic() + _SECONDS, made
            while len(_known) > _REMEMBERED:
                _known.popitem(last=False)
    return made


def finished(made: Made) -> Run:
    """The run of an audit that has ended well. 409 where it has not, or is none."""
    if made.run is None:
        raise ProblemError(409, "no_run", f"a {made.job.kind} has no run of an audit")
    if made.job.state != "finished":
        raise ProblemError(409, "not_finished", f"the job is {made.job.state}; wait until it is finished")
    return made.run


def forget(path: str) -> None:
    """What was remembered of a run that is being deleted."""
    with _lock:
        _known.pop(path, None)


def readable(schema: pa.Schema) -> list[str]:
    """The columns that JSON and CSV can hold: all but bytes, and structs with bytes inside."""
    return [field.name for field in schema if not _has_bytes(field.type)]


def _has_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_bytes(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_bytes(kind.value_type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _read(job: Job, path: str) -> Made:
    if job.kind == "question":
        return Made(job, path)
    if job.kind == "dataset":
        if not files.exists(f"{path}/manifest.json"):
            raise _too_early(job)
        return Made(job, path, dataset=open_dataset(path))
    if not files.exists(f"{path}/{MANIFEST}"):
        raise _too_early(job)
    return Made(job, path, run=load_run(path))


def _too_early(job: Job) -> ProblemError:
    return ProblemError(409, "nothing_yet", f"the job is {job.state} and has made nothing that can be read")


def answer_of(made: Made) -> Any:
    return json.loads(made.document(ANSWER))
