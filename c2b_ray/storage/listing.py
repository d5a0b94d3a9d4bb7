"""Lists the tables of a finished run, and checks whether they are still those that it finished with.

It knows files, their sizes and hashes, not their content: each read checks what it reads (`storage.sealed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from c2b_ray.errors import RunError
from c2b_ray.storage import files
from c2b_ray.storage.kinds import RunKind
from c2b_ray.storage.manifest import Manifest, TableRecord

HASHED_BYTES = 64 * 2**20
"""The most bytes that are hashed. For larger tables only the size is compared, so that a run loads fast."""


class Tables(Protocol):
    """The part of a run that concerns its tables."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> RunKind: ...

    def location(self, name: str) -> str: ...

    def in_parts(self, name: str) -> bool: ...

    def has(self, name: str) -> bool: ...

    def count(self, name: str) -> int: ...


def listed(run: Tables, name: str) -> TableRecord:
    """Returns the record of the table `name` as it is now."""
    rows = run.count(name)
    path = run.location(name)
    if run.in_parts(name):
        return TableRecord(rows=rows, parts=files.sizes(path, "part-"))
    size = files.size(f"{path}.parquet")
    sha256 = files.sha256(f"{path}.parquet")[0] if size <= HASHED_BYTES else None
    return TableRecord(rows=rows, bytes=size, sha256=sha256)


def check_missing(run: Tables, record: Manifest) -> None:
    """Raises RunError if a finished run lacks a table or part that it listed."""
    tables = record.tables or {}
    if unlisted := sorted(run.kind.needed - set(tables)):
        raise _damaged(run, unlisted[0], "is not listed in its run.json, although the run is finished")
    for name, entry in tables.items():
        if name not in run.kind.tables:  # a table of an earlier release, which nothing reads now
            continue
        there = files.sizes(run.location(name), "part-") if entry.parts is not None else {}
        gone = sorted(set(entry.parts or {}) - set(there))
        if gone or not run.has(name):
            lost = f"{name}/{gone[0]}" if gone else f"{name}.parquet"
            raise _damaged(run, lost, "is missing")


def check_changed(run: Tables, record: Manifest) -> None:
    """Raises RunError if a table or part of a finished run differs from the one it listed."""
    tables = record.tables or {}
    for name, entry in tables.items():
        if entry.parts is not None:
            for part in _other_parts(files.sizes(run.location(name), "part-"), entry.parts):
                raise _damaged(run, f"{name}/{part}", "is not one that the run finished with", delete=True)
        elif run.has(name) and not _same_file(run.location(f"{name}.parquet"), entry):
            raise _damaged(run, f"{name}.parquet", "is not the one that the run finished with", delete=True)


def check_added(run: Tables, record: Manifest, names: Iterator[str]) -> None:
    """Raises RunError if a finished run has one of the tables `names` that it did not list."""
    for name in names:
        if name not in (record.tables or {}) and run.has(name):
            raise _damaged(run, name, "was added after the run had finished", delete=True)


def _other_parts(there: Mapping[str, int], entries: Mapping[str, int]) -> list[str]:
    return [name for name, size in there.items() if entries.get(name) != size]


def _same_file(path: str, entry: TableRecord) -> bool:
    if files.size(path) != entry.bytes:
        return False
    return entry.sha256 is None or files.sha256(path)[0] == entry.sha256


def _damaged(run: Tables, table: str, what: str, delete: bool = False) -> RunError:
    command = run.kind.command
    again = f"delete it and run the run's {command} again" if delete else f"run its {command} again"
    return RunError(
        f"{run.path}: the run is damaged: its table {table} {what}; copy the run again from where it is whole, or "
        f"{again}, which makes what is missing",
        location=run.location(table),
        run=run.path,
    )
