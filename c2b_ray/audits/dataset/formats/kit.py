"""Helpers of all export formats of datasets: what is told of the exported rows, and a row as JSON.

It knows rows of `tables.dataset`; it knows no format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from c2b_ray.report.formats.folder import Folder


@dataclass(frozen=True)
class ExportedRows:
    """The exported rows, described for cards and metadata. `labels`: with their numbers of rows, by name."""

    rows: int
    labels: Mapping[str, int]
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    classifier: str | None
    bytes: int = 0
    files: Sequence[int] = field(default_factory=tuple)  # the number of each file


class Format(Protocol):
    """A format whose files, or each file's images, can be written separately."""

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> ExportedFiles:
        """Writes the rows of one file; written again, it is the same."""
        ...

    def finish(self, folder: Folder, about: ExportedRows) -> None:
        """Writes the files about the whole export."""
        ...


@dataclass(frozen=True)
class ExportedFiles:
    rows: int
    bytes: int


def record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row without its image, as JSON values. The fingerprint has 16 hexadecimal digits, because many readers
    take JSON's numbers for floats."""
    return {name: value for name, value in row.items() if name != "image"} | {
        "fingerprint": f"{row['fingerprint']:016x}"
    }
