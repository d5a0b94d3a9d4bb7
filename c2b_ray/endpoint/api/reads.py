"""Reads the results of a job: its tables, images, report and documents. Routes and pages use it.

For an audit it reads the run directory, for a dataset its shards, for a question its answer. Names are looked up among
those that exist, and never become part of a path. It loads no model.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.audit import audit_of
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.problems import ProblemError, not_found
from c2b_ray.endpoint.ledger.tables import Job
from c2b_ray.errors import C2BError
from c2b_ray.report.export import SPECS, Names, exported, names_in
from c2b_ray.report.pictures import shown
from c2b_ray.report.redact import clean
from c2b_ray.storage import files
from c2b_ray.storage.failure_dataset import FailureDataset, open_dataset
from c2b_ray.storage.manifest import TableRecord
from c2b_ray.storage.run import MANIFEST, Run, load_run, read_run
from c2b_ray.storage.tables import IdIndex, RowGroups
from c2b_ray.tables.dataset import DATASET_ROWS, with_keys

ROWS, ANSWER, REPORT = "rows", "answer.json", "report.html"
INDEX_BYTES = 256 * 2**20
"""The most memory of all indexes of images together: enough for 16 million images."""
SLICE = 5000
"""The most rows of a table that are in memory at once where a table is streamed, beside those of its row group."""
_REMEMBERED, _SECONDS = 64, 300.0
_known: OrderedDict[str, tuple[float, Results]] = OrderedDict()
_indexes: OrderedDict[str, IdIndex] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class Results:
    """The results at a job's path. `run`: of an audit; `dataset`: of a dataset whose build has ended; both None
    otherwise. `layout`, `names`: the row groups of tables that were requested, and the names of texts by column.
    `listed`: the tables that the run listed when it was read."""

    job: Job
    path: str
    run: Run | None = None
    dataset: FailureDataset | None = None
    layout: dict[str, RowGroups] = field(default_factory=dict, compare=False)
    names: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict, compare=False)
    listed: Mapping[str, TableRecord] | None = None

    @property
    def is_current(self) -> bool:
        """Whether the tables are those that were read: a question to a run adds rows to it."""
        return self.run is None or (self.listed is not None and self.run.record.tables == self.listed)

    @property
    def tables(self) -> dict[str, pa.Schema]:
        """The schema of each table that exists."""
        if self.dataset is not None:
            return {ROWS: DATASET_ROWS}
        run = self.run
        return {} if run is None else {name: schema for name, schema in run.kind.tables.items() if run.has(name)}

    @property
    def exports(self) -> list[str]:
        if self.dataset is not None:
            return ["csv", "json", "parquet"]
        return [] if self.run is None else list(audit_of(self.run).export_names)

    def rows(self, name: str) -> int:
        if self.dataset is not None:
            return self.dataset.rows
        record = None if self.run is None else (self.run.record.tables or {}).get(name)
        return record.rows if record is not None else self._groups(name).rows

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Returns the whole table, without what must not leave the machine. Raises 404 if there is none."""
        return pa.concat_tables(self.slices(name, columns)[1])

    def slices(self, name: str, columns: list[str] | None = None) -> tuple[pa.Schema, Iterator[pa.Table]]:
        """Returns the schema of `table` and its rows, at most `SLICE` at a time. Raises 404 if there is none.

        It reads the texts of the whole table first, for their names, and then a row group at a time.
        """
        groups = self._groups(name)
        columns = columns or self.tables[name].names
        empty = self._joined(name, columns, [])

        def parts() -> Iterator[pa.Table]:
            yield empty
            for group in range(len(groups.ends)):
                rows = groups.read(group, columns)
                for start in range(0, rows.num_rows, SLICE):
                    yield self._joined(name, columns, [rows.slice(start, SLICE)])

        return empty.schema, parts()

    def page(self, name: str, start: int, limit: int) -> pa.Table:
        """Returns rows of a table from `start` on, without the bytes of images. It reads only the row groups that
        contain them. Raises 404 if there is no such table."""
        groups, columns = self._groups(name), readable(self.tables[name])
        return self._page(name, columns, groups.page(start, limit, columns))

    def rows_at(self, name: str, rows: Sequence[int], columns: list[str] | None = None) -> pa.Table:
        """Like `page`, but returns the rows with these numbers, in this order. `columns` may include those with
        bytes."""
        groups, columns = self._groups(name), columns or readable(self.tables[name])
        return self._page(name, columns, groups.take(rows, columns))

    def image(self, image_id: str) -> bytes:
        """Returns an image's encoded bytes, or where the run does not hold them, the picture that its report shows.

        Never what lies elsewhere: a tenant's run may name a folder of this machine. Raises 404 if there is neither.
        """
        name, column = (ROWS, "image") if self.dataset is not None else ("images", "bytes")
        if name not in self.tables:
            raise not_found("image")
        groups = self._groups(name)
        for group in self._index(name, groups).groups_of(image_id):
            rows = groups.read(group, ["image_id", column])
            if column not in rows.column_names:  # images that the run holds no bytes of
                continue
            matches = rows.filter(pc.and_(pc.equal(rows["image_id"], image_id), pc.is_valid(rows[column])))
            if matches.num_rows:
                return bytes(matches[column][0].as_py())
        if self.run is not None and (data := shown(self.run).get(image_id)) is not None:
            return data
        raise not_found("image")

    def document(self, name: str) -> bytes:
        """Returns `report.html` or `answer.json` as written. Raises 404 if this job has none."""
        if name == REPORT and self.dataset is not None:
            forms = ", ".join(self.exports)
            detail = f"a dataset has no report; its table {ROWS!r} has its rows, and so have its exports: {forms}"
            raise ProblemError(404, "not_found", detail)
        if not files.exists(f"{self.path}/{name}"):
            raise not_found("report" if name == REPORT else "answer")
        return files.read_bytes(f"{self.path}/{name}")

    def _groups(self, name: str) -> RowGroups:
        if name not in self.tables:
            raise ProblemError(
                404, "not_found", f"this job has no such table; it has {', '.join(self.tables) or 'none'}"
            )
        if name not in self.layout:
            groups = self.dataset.row_groups() if self.dataset is not None else self._run.row_groups(name)
            self.layout[name] = groups
        return self.layout[name]

    def _index(self, name: str, groups: RowGroups) -> IdIndex:
        """Returns the index of images by id, which is cached for finished jobs."""
        with _lock:
            index = _indexes.get(self.path)
        if index is None:
            index = IdIndex.of(groups, "image_id")
            if self.job.state == "finished":
                _keep(self.path, index)
        return index

    def _page(self, name: str, columns: list[str], tables: Iterable[pa.Table]) -> pa.Table:
        """Like `_joined`. Until the job has finished, nothing is kept from one page to the next: only models are then
        named by the whole table, and other texts by this page."""
        if self.job.state == "finished":
            return self._joined(name, columns, tables)
        page = self._together(name, columns, tables)
        models = self._names(
            name, pa.schema([schema_field for schema_field in page.schema if schema_field.name in SPECS])
        )
        text_schema = pa.schema([schema_field for schema_field in page.schema if schema_field.name not in SPECS])
        return exported(page, {**models, **names_in(text_schema, lambda _: [page])})

    def _joined(self, name: str, columns: list[str], tables: Iterable[pa.Table]) -> pa.Table:
        """Returns the parts of a table as one, without what must not leave the machine."""
        table = self._together(name, columns, tables)
        return exported(table, self._names(name, table.schema))

    def _together(self, name: str, columns: list[str], tables: Iterable[pa.Table]) -> pa.Table:
        parts = [self._completed(name, columns, table) for table in tables]
        return pa.concat_tables(parts) if parts else self.tables[name].empty_table().select(columns)

    def _names(self, name: str, schema: pa.Schema) -> Names:
        """Returns the names of the texts in these columns of the whole table, so that all its parts agree."""
        missing = pa.schema(
            [
                schema_field
                for schema_field in schema
                if pa.types.is_string(schema_field.type) and (name, schema_field.name) not in self.names
            ]
        )
        if missing.names:
            groups = self._groups(name)
            names = names_in(missing, lambda columns: (self._completed(name, columns, t) for t in groups.each(columns)))
            self.names.update({(name, column): names.get(column, {}) for column in missing.names})
        return {column: self.names[name, column] for column in schema.names if (name, column) in self.names}

    def _completed(self, name: str, columns: list[str], table: pa.Table) -> pa.Table:
        completed = with_keys(table) if self.dataset is not None else self._run.complete(name, table, columns)
        return completed.select(columns)

    @property
    def _run(self) -> Run:
        assert self.run is not None
        return self.run


def results_of(job: Job, path: str) -> Results:
    """Returns the results of a job so far. Raises 409 if there are none yet."""
    if job.state == "finished":
        with _lock:
            cached = _known.get(path)
        if cached is not None and time.monotonic() < cached[0] and cached[1].is_current:
            return cached[1]
    results = _read(job, path)
    if job.state == "finished":
        with _lock:
            _known[path] = time.monotonic() + _SECONDS, results
            while len(_known) > _REMEMBERED:
                _known.popitem(last=False)
    return results


def finished(results: Results) -> Run:
    """Returns the run of a finished audit. Raises 409 if it is not finished, or is no audit."""
    if results.run is None:
        raise ProblemError(409, "no_run", f"a job of the kind {results.job.kind} has no run of an audit")
    if results.job.state != "finished":
        raise ProblemError(409, "not_finished", f"the job is {results.job.state}; wait until it is finished")
    return results.run


def forget(path: str) -> None:
    """Removes a run that is being deleted from the caches."""
    with _lock:
        _known.pop(path, None)
        _indexes.pop(path, None)


def _keep(path: str, index: IdIndex) -> None:
    """Caches the index of a run's images, and drops the oldest ones if all together take too much memory."""
    with _lock:
        _indexes[path] = index
        while len(_indexes) > 1 and sum(cached.nbytes for cached in _indexes.values()) > INDEX_BYTES:
            _indexes.popitem(last=False)


def readable(schema: pa.Schema) -> list[str]:
    """Returns the columns that JSON and CSV can hold: all except bytes, and structs that contain bytes."""
    return [field.name for field in schema if not _has_bytes(field.type)]


def _has_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_bytes(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_bytes(kind.value_type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _read(job: Job, path: str) -> Results:
    if job.kind == "question":
        return Results(job, path)
    if job.kind == "dataset":
        if not files.exists(f"{path}/manifest.json"):
            raise _too_early(job)
        return Results(job, path, dataset=open_dataset(path))
    if not files.exists(f"{path}/{MANIFEST}"):
        raise _too_early(job)
    run = load_run(path)
    return Results(job, path, run=run, listed=run.record.tables)


def headline_of(context: Context, job: Job) -> str | None:
    """Returns what a finished job found, in one line; None of one without a run, such as a dataset or a question."""
    if job.state != "finished":
        return None
    try:
        headline = read_run(job.run_path or context.run_path(job.tenant_id, job.id)).record.headline
    except C2BError:  # it has no run, or one that is damaged or gone
        return None
    return None if headline is None else clean(headline.text)


def _too_early(job: Job) -> ProblemError:
    ended = job.state in ("failed", "cancelled")
    return ProblemError(409, "nothing_yet", f"the job is {job.state} and has no results{'' if ended else ' yet'}")


def answer_of(results: Results) -> Any:
    return json.loads(results.document(ANSWER))
