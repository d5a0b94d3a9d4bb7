"""A run directory of any kind: its tables, its manifest, and what it needs to know of the audit that made it.

Storage lies below the audits and imports none: an audit's declaration (`audits.audit.Audit`) is a `RunKind`, which is
found by name when a run is loaded.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Protocol, TypeVar, cast

import pyarrow as pa
from pydantic import BaseModel

from c2b_ray.errors import Argument, C2BError, ConfigError, RunError, SourceError
from c2b_ray.storage import absent_bucket, files, is_remote, tables, writers
from c2b_ray.storage.manifest import (
    FORMAT,
    Headline,
    Manifest,
    TableRecord,
    checked,
    differences,
    kind_name,
    merged,
    parse,
    stored_config,
    unnamed,
)
from c2b_ray.storage.tables import RowGroups

_AUDITS = "c2b_ray.audits.audit"
R = TypeVar("R", bound="Run")


class RunKind(Protocol):
    """A kind of run.

    `name`: in manifests. `command`: the command that makes such a run, such as "c2b audit". `tables`: the schema of
    each table. `in_parts`: tables that are directories of Parquet parts. `needed`: tables that every finished run has.
    `config_class`, `manifest`: the classes of its configs and manifests. `models`: the field of the config that names
    what a run is of.
    """

    @property
    def name(self) -> str: ...

    @property
    def command(self) -> str: ...

    @property
    def config_class(self) -> type[BaseModel]: ...

    @property
    def tables(self) -> Mapping[str, pa.Schema]: ...

    @property
    def in_parts(self) -> frozenset[str]: ...

    @property
    def needed(self) -> frozenset[str]: ...

    @property
    def manifest(self) -> type[Manifest]: ...

    @property
    def models(self) -> str: ...

    def new(self, path: str) -> Any:
        """Returns the run at `path`, of the kind's class. It need not exist yet."""
        ...

    def headline(self, run: Any) -> dict[str, Any]:
        """Returns a finished run's `headline` as its manifest has it."""
        ...


def kind_names() -> list[str]:
    """Returns the names of all kinds."""
    names: list[str] = resolve_name(f"{_AUDITS}:names")()
    return names


def kind_named(name: str) -> RunKind:
    """Returns the kind of this name. Raises ConfigError if there is none, or if its package cannot be loaded."""
    kind: RunKind = resolve_name(f"{_AUDITS}:audit_named")(name)
    return kind


MANIFEST = "run.json"
NOTEBOOK = "c2b_ray.audits.notebook"
ROW_GROUP = 16_384
"""The least rows in a row group of a table that is written in batches."""
HASHED_BYTES = 64 * 2**20
"""The most bytes of a finished run's table that are hashed. For larger tables only the size is compared, so that a run
loads fast."""


class TableOf:
    """A table of a run as an attribute of its class: `scores = TableOf()` reads the table `scores` from the run."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def __set_name__(self, owner: type[Run], name: str) -> None:
        self._name = self._name or name

    def __get__(self, run: Run | None, owner: type[Run]) -> pa.Table:
        return self if run is None else run.read(self._name)


class Run:
    """A run at `path`. Tables are Arrow tables; one that was not written yet is an empty table of its schema."""

    SINCE: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """For each table, columns that runs of older releases lack; they are read as null."""

    def __init__(self, path: str | Path, kind: RunKind) -> None:
        self.path = str(path).rstrip("/")
        self.kind = kind
        self._still_ours: Callable[[], None] = lambda: None
        self._ended = False

    def __repr__(self) -> str:
        return f"Run({self.path!r})"

    def location(self, name: str) -> str:
        return f"{self.path}/{name}"

    @property
    def record(self) -> Manifest:
        """The manifest, typed. Raises RunError if it is damaged or of another format."""
        location = self.location(MANIFEST)
        return parse(files.read_bytes(location), location, self.kind.manifest, self.kind.command)

    @property
    def manifest(self) -> dict[str, Any]:
        """The fields of `record` that are set, as a mapping."""
        return self.record.as_dict()

    @property
    def config(self) -> BaseModel:
        """The config that the run began with, of the class of its kind (`manifest.stored_config`). `record.config` has
        its fields as they are in the manifest."""
        return stored_config(self.record.config, self.kind.config_class, self.location(MANIFEST), self.kind.command)

    @property
    def report(self) -> str:
        return self.location("report.html")

    def update(self, changes: Mapping[str, Any]) -> None:
        """Merges `changes` into the manifest; nested mappings are merged one level deep.

        A run that becomes `finished` lists its tables as they are then, and its headline, so that a list of thousands
        of runs need not open their tables.
        """
        current = self.manifest
        if merged(current, changes) == current:
            return
        self.begin_writing()
        manifest = merged(self.manifest, changes)
        if changes.get("status") == "finished":
            entries = {name: self._listed(name) for name in self.kind.tables if self.has(name)}
            manifest["tables"] = {name: entry.model_dump(exclude_none=True) for name, entry in entries.items()}
            self._write_manifest(manifest)  # a summary reads the finished run
            manifest["headline"] = self.kind.headline(self)
        self._write_manifest(manifest)

    def begin_writing(self) -> None:
        """Marks an ended run as `running`. Call it before writing to the run's directories.

        `write` and `update` call it, unless the same content is there already. So a rerun that is refused before it
        changes anything leaves a finished run finished.
        """
        if self._ended:
            of_the_end = ("finished", "failure", "tables", "headline")
            entries = {key: value for key, value in self.manifest.items() if key not in of_the_end}
            self._write_manifest({**entries, "status": "running"})
            self._ended = False

    def check(self) -> None:
        """Raises RunError if a finished run lacks a table or part that it listed, or has another one."""
        record = self.record
        if record.status != "finished":
            return
        tables = record.tables or {}
        if unlisted := sorted(self.kind.needed - set(tables)):
            raise self._damaged(unlisted[0], "is not listed in its run.json, although the run is finished")
        for name, entry in tables.items():
            if name not in self.kind.tables:  # a table of an earlier release, which nothing reads now
                continue
            sizes = files.sizes(self.location(name), "part-") if entry.parts is not None else {}
            missing = sorted(set(entry.parts or {}) - set(sizes))
            if missing or not self.has(name):
                raise self._damaged(f"{name}/{missing[0]}" if missing else f"{name}.parquet", "is missing")
        self._check_changed(record)
        for name in self.kind.tables:
            if name not in tables and self.has(name):
                raise self._damaged(name, "was added after the run had finished", delete=True)

    def _check_changed(self, record: Manifest) -> None:
        """Raises RunError if a table or part differs from the one that the manifest lists."""
        for name, entry in (record.tables or {}).items():
            if entry.parts is not None:
                for part, size in files.sizes(self.location(name), "part-").items():
                    if entry.parts.get(part) != size:
                        raise self._damaged(f"{name}/{part}", "is not one that the run finished with", delete=True)
            elif self.has(name):
                path = self.location(f"{name}.parquet")
                same_size = files.size(path) == entry.bytes
                if not same_size or (entry.sha256 is not None and files.sha256(path)[0] != entry.sha256):
                    raise self._damaged(f"{name}.parquet", "is not the one that the run finished with", delete=True)

    def _listed(self, name: str) -> TableRecord:
        """Returns the record of a table as it is now."""
        rows, path = self.count(name), self.location(name)
        if self.in_parts(name):
            return TableRecord(rows=rows, parts=files.sizes(path, "part-"))
        size = files.size(f"{path}.parquet")
        sha256 = files.sha256(f"{path}.parquet")[0] if size <= HASHED_BYTES else None
        return TableRecord(rows=rows, bytes=size, sha256=sha256)

    def _damaged(self, table: str, problem: str, delete: bool = False) -> RunError:
        command = self.kind.command
        remedy = f"delete it and run the run's {command} again" if delete else f"run its {command} again"
        return RunError(
            f"{self.path}: the run is damaged: its table {table} {problem}; copy the run again from where it is whole, "
            f"or {remedy}, which makes what is missing",
            location=self.location(table),
            run=self.path,
        )

    def in_parts(self, name: str) -> bool:
        return name in self.kind.in_parts

    def has(self, name: str) -> bool:
        if name in self.kind.in_parts:
            return any(entry.startswith("part-") for entry in files.entries(self.location(name)))
        return files.exists(self.location(f"{name}.parquet"))

    def write(self, name: str, table: pa.Table) -> None:
        self._still_ours()
        location = self.location(f"{name}.parquet")
        data = files.encoded_table(table.select(self.kind.tables[name].names).cast(self.kind.tables[name]))
        if self._ended and files.exists(location) and files.read_bytes(location) == data:
            return
        self.begin_writing()
        files.write_bytes(location, data)

    def write_batches(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Like `write`, for a table that need not fit in memory."""
        self._still_ours()
        schema, location = self.kind.tables[name], self.location(f"{name}.parquet")
        parts = (table.select(schema.names).cast(schema) for table in _row_groups(batches))
        tables.write_tables(location, schema, parts, self.begin_writing)

    def count(self, name: str) -> int:
        """Returns the number of rows of a table, without reading them."""
        return tables.count_rows(self.location(self._entry(name))) if self.has(name) else 0

    def each(self, name: str, columns: list[str]) -> Iterator[pa.Table]:
        """Like `read`, but yields a part at a time."""
        if not self.has(name):
            yield self.read(name, columns)
            return
        for table in tables.read_parts(self.location(self._entry(name)), columns):
            yield self.complete(name, table, columns)

    def read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        schema = self.kind.tables[name]
        if not self.has(name):
            table = schema.empty_table()
            return table.select(columns) if columns else table
        return self.complete(name, files.read_table(self.location(self._entry(name)), columns), columns)

    def row_groups(self, name: str) -> RowGroups:
        """Returns the row groups of a table, in the order of `read`."""
        return RowGroups.of(files.table_files(self.location(self._entry(name))) if self.has(name) else [])

    def _entry(self, name: str) -> str:
        return name if name in self.kind.in_parts else f"{name}.parquet"

    def complete(self, name: str, table: pa.Table, columns: list[str] | None) -> pa.Table:
        """Returns the table, with nulls in columns that runs of older releases lack. Raises RunError if another column
        is missing."""
        for column in self.SINCE.get(name, ()):
            if column not in table.column_names and column in (columns or self.SINCE[name]):
                field = self.kind.tables[name].field(column)
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        expected = columns or self.kind.tables[name].names
        if missing := [column for column in expected if column not in table.column_names]:
            location = self.location(self._entry(name))
            raise RunError(
                f"{location}: no column {', '.join(missing)}: a table of another kind or release; run the "
                f"{self.kind.command} again, with another --out",
                location=location,
                run=self.path,
            )
        return table

    # In notebooks. The functions know what runs are about, so they lie above this package, like those of kinds.

    def _repr_html_(self) -> str:
        """Returns the run's headline with pictures."""
        return str(resolve_name(f"{NOTEBOOK}:html")(self))

    def to_pandas(self, table: str | None = None) -> Any:
        """Returns a table as a pandas DataFrame; by default the results, such as the scores of `c2b audit`."""
        return resolve_name(f"{NOTEBOOK}:to_pandas")(self, table)

    def failures(self, classifier: str | None = None) -> Any:
        """Returns the images that were answered wrong, as `audits.notebook.Failures`: pictures in a notebook, `table`
        for programs. Raises ConfigError for a run without images."""
        return resolve_name(f"{NOTEBOOK}:failures")(self, classifier)

    def show(self, height: int = 800) -> Any:
        """Returns the report, which a notebook shows `height` pixels high."""
        return resolve_name(f"{NOTEBOOK}:show")(self, height)

    def _begin(self, run_id: str, config: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        header = {"format": FORMAT, "kind": self.kind.name, "run_id": run_id}
        self._write_manifest({**header, "status": "running", "created": now, "config": dict(config)})

    def _resume(self, run_id: str, config: Mapping[str, Any]) -> None:
        """Resumes the run. Raises RunError if the directory contains another run."""
        if (kind := _kind_of(self.location(MANIFEST))).name != self.kind.name:
            raise RunError(
                f"{self.path} holds a run of {kind.command}; choose another --out, or delete it", run=self.path
            )
        manifest = self.manifest
        if manifest["run_id"] != run_id:
            changed = differences(manifest["config"], config)
            raise RunError(
                f"{self.path} holds another run, {manifest['run_id']}, and this is {run_id} (its {changed} differs); "
                f"choose another --out, or delete it{unnamed(config)}",
                run=self.path,
            )
        if manifest["status"] != "running":
            self._check_changed(self.record)
            self._ended = True

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self._still_ours()
        checked(dict(manifest), self.location(MANIFEST), self.kind.manifest, self.kind.command)
        text = json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=False)
        files.write_bytes(self.location(MANIFEST), text.encode())


def load_run(path: str | Path) -> Run:
    """Loads an existing run as the class of its kind.

    Raises SourceError if there is none at `path`. Raises RunError if its format or kind is unknown, or if it is
    finished and its tables are not those that it finished with.
    """
    location = f"{str(path).rstrip('/')}/{MANIFEST}"
    if not files.exists(location):
        raise SourceError(absent_bucket(path) or f"{path}: no run there (expected {MANIFEST}); c2b audit makes one")
    run = read_run(path)
    run.check()
    return run


def load_run_of(path: str | Path | Run, kind: RunKind, run_class: type[R]) -> R:
    """Does what `load_run` does for a run of this kind, of the class `run_class`. Raises ConfigError for a run of
    another kind."""
    run = path if isinstance(path, Run) else load_run(path)
    if not isinstance(run, run_class):
        raise ConfigError(Argument.RUN, f"{run.path} is a run of {run.kind.command}; this needs one of {kind.command}")
    return run


def opener_of(
    kind: RunKind, run_class: type[R]
) -> Callable[[str | Path, str, Mapping[str, Any]], AbstractContextManager[R]]:
    """Returns `open_run` for runs of this kind, which are of the class `run_class`."""

    def open_run_of_kind(path: str | Path, run_id: str, config: Mapping[str, Any]) -> AbstractContextManager[R]:
        return cast(AbstractContextManager[R], open_run(path, run_id, config, kind))

    return open_run_of_kind


def read_run(path: str | Path) -> Run:
    """Returns an existing run as the class of its kind, without a look at its tables. Raises RunError if its format or
    kind is unknown."""
    run: Run = _kind_of(f"{str(path).rstrip('/')}/{MANIFEST}").new(str(path))
    return run


def finished(run: str | Path | Run) -> Run:
    """Returns the run, loaded if it was a path. Raises RunError if it did not come to its end."""
    loaded = run if isinstance(run, Run) else load_run(run)
    if not (record := loaded.record).has_results:
        raise RunError(
            f"{loaded.path}: the run is not finished (status: {record.status}); run its {loaded.kind.command} again "
            "first",
            run=loaded.path,
        )
    return loaded


def _kind_of(location: str) -> RunKind:
    name = kind_name(files.read_bytes(location), location)
    if name not in (kinds := kind_names()):
        raise RunError(
            f"{location}: a run of the kind {name!r}, which this release does not know ({', '.join(kinds)}): install "
            "the release or the package that made it",
            location=location,
        )
    return kind_named(name)


@contextmanager
def open_run(path: str | Path, run_id: str, config: Mapping[str, Any], kind: RunKind) -> Iterator[Run]:
    """Opens a new run at `path`, or resumes the one with the same id, for this process alone to write.

    It is `running` until it is updated to `finished`. A run that ended before is `running` again from its first change.
    Raises RunError if `path` contains another run or other files, or if another process writes it; StorageError if the
    file system refuses.
    """
    run: Run = kind.new(str(path))
    files.make_directory(path)
    with writers.single_writer(run.path) as still_ours:
        run._still_ours = still_ours
        for name in files.entries(path):
            if _leftover(name, kind):  # left by a killed writer; no other writer is active now
                files.remove_file(run.location(name))
        if files.exists(run.location(MANIFEST)):
            run._resume(run_id, config)
        else:
            foreign = [name for name in files.entries(path) if name not in writers.FILES]
            if foreign:
                raise RunError(f"{path} is not empty and holds no run ({foreign[0]} …); choose an empty --out")
            run._begin(run_id, config)
        yield run


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(map(len, pending)) >= ROW_GROUP:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)


def _leftover(name: str, kind: RunKind) -> bool:
    return (
        re.fullmatch(rf"(?:run\.json|report\.html|(?:{'|'.join(kind.tables)})\.parquet)\.tmp-[0-9a-f]{{8}}", name)
        is not None
    )


# The runs below a folder, of every kind: what each is of, its state and its result in a line.


UNREADABLE = "unreadable"
REPORT = "report.html"


@dataclass(frozen=True)
class ListedRun:
    """One run. `name`: its path below the folder that is listed.

    `state`: finished, running (or interrupted), failed, or unreadable; `date`: when it finished, else when it began, in
    ISO 8601, "" if unknown. `classifiers`: name in the run → spec. `findings`: by name of a classifier. `problem`: why
    the run, or its result, cannot be read.
    """

    path: str
    name: str
    kind: str = ""
    state: str = UNREADABLE
    date: str = ""
    classifiers: Mapping[str, str] = field(default_factory=dict)
    headline: str = ""
    findings: Mapping[str, int] = field(default_factory=dict)
    report: bool = False
    problem: str = ""


def list_runs(folder: str | Path) -> list[ListedRun]:
    """Returns the runs in a folder or bucket and below, the newest first; unreadable ones last.

    Raises SourceError if there is no such folder.
    """
    root = str(folder).rstrip("/") or "/"
    if not files.is_directory(root):
        raise SourceError(absent_bucket(root) or f"{root}: no folder there; name the one that holds your runs")
    runs = [_listed(path, root, names) for path, names in _runs_below(root, set())]
    return sorted(sorted(runs, key=lambda run: run.name), key=lambda run: run.date, reverse=True)


def _runs_below(path: str, visited: set[str]) -> Iterator[tuple[str, Mapping[str, bool]]]:
    """Yields each run's path and what is in it. A run holds no other runs; a link to what was seen is no other one."""
    if not is_remote(path):
        real = os.path.realpath(path)
        if real in visited:
            return
        visited.add(real)
    try:
        names = files.contents(path)
    except C2BError:  # a folder that this user may not open holds no run of theirs
        return
    if names.get(MANIFEST) is False:
        yield path, names
        return
    for name, is_folder in names.items():
        if is_folder and not name.startswith("."):
            yield from _runs_below(f"{path.rstrip('/')}/{name}", visited)


def _listed(path: str, root: str, names: Mapping[str, bool]) -> ListedRun:
    name = posixpath.basename(root) if path == root else path.removeprefix(root).lstrip("/")
    try:
        run = read_run(path)
        record = run.record
    except C2BError as error:
        return ListedRun(path, name, problem=str(error))
    headline, problem = record.headline or Headline(), ""
    if record.headline is None and record.has_results:
        try:
            headline = Headline.model_validate(run.kind.headline(run))
        # A damaged table breaks its readers in as many ways as there are kinds of damage.
        except Exception as error:
            problem = f"its result cannot be read: {error or type(error).__name__}"
    return ListedRun(
        path=path,
        name=name,
        kind=run.kind.name,
        state=record.status,
        date=record.finished or record.created,
        classifiers=_classifiers(record, run.kind.models),
        headline=headline.text or (record.failure or ""),
        findings=headline.findings,
        report=names.get(REPORT) is False,
        problem=problem,
    )


def _classifiers(record: Manifest, field_name: str) -> dict[str, str]:
    classifiers: Any = record.config.get(field_name) or {}
    if isinstance(classifiers, Mapping):
        return {str(name): str(spec) for name, spec in classifiers.items()}
    return {str(spec): str(spec) for spec in (classifiers if isinstance(classifiers, list) else [classifiers])}
