"""The terminal summary of a run: a table, lines beneath it, and the same for programs. It knows no kind of run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Column:
    """A column. `number`: aligned to the right."""

    name: str
    number: bool = False


@dataclass(frozen=True)
class Summary:
    """`rows`: texts, one for each column; `marks`: "bad", "good" or "" for each row. `first`: lines above the
    table, about what puts all of it in doubt. `report`: the page's path, for people at that machine; "" without one.
    `to_json`: for programs. `headline`: the result in one line, for a list of runs. `findings`: how many each
    classifier has, by its name in the run; none where the kind of run has no findings of classifiers."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    marks: Sequence[str]
    lines: Sequence[str]
    report: str = ""
    to_json: Mapping[str, Any] = field(default_factory=dict)
    first: Sequence[str] = ()
    headline: str = ""
    findings: Mapping[str, int] = field(default_factory=dict)
