"""Compares two things of two runs, B against A: a table, its gates, its page. Audits of several kinds share this.

It knows neither what is compared nor how; a kind provides the table, the text of its page, and the cells for its gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

import pyarrow as pa

from c2b_ray.audits import gate as gates
from c2b_ray.audits.kit.models import one_of, two_of
from c2b_ray.errors import Argument, RunError
from c2b_ray.report.comparison import Pages, tally
from c2b_ray.report.words import Summary
from c2b_ray.stats.intervals import benjamini_hochberg
from c2b_ray.storage import files, resolve
from c2b_ray.storage.run import NOTEBOOK, Run
from c2b_ray.tables.rows import ComparedRow

R = TypeVar("R", bound=Run)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `compare`. `paths`: of both runs. `names`: of classifiers or models, A's first. `cells`: a table of
    the kind's schema, with a column `change`. `gated`: its rows as cells for gates."""

    paths: tuple[str, str]
    names: tuple[str, str]
    alpha: float
    cells: pa.Table
    pages: Pages
    gated: Sequence[gates.GateCell]

    def __repr__(self) -> str:
        changes = ", ".join(f"{count} {change}" for change, count in tally(self.cells.to_pylist()).items())
        return f"<A: {self._shown[0]}, B: {self._shown[1]}: {changes}>"

    def _repr_html_(self) -> str:
        """In a notebook, a comparison is its page."""
        return str(resolve_name(f"{NOTEBOOK}:framed")(self.page()))

    def check(self, fail_on: Sequence[str], allow_unchecked: bool = False) -> list[gates.Check]:
        """Checks gates on how B changed against A, and on B's numbers."""
        return gates.check(fail_on, list(self.gated), allow_unchecked)

    def page(self) -> str:
        """Returns the comparison as one HTML page."""
        return self.pages.page(self._shown, self.cells, self.alpha)

    def write(self, out: str | Path) -> str:
        """Writes comparison.parquet and comparison.html into a directory; returns the page's path."""
        files.make_directory(out)
        directory = str(out).rstrip("/")
        files.write_table(f"{directory}/comparison.parquet", self.cells)
        files.write_bytes(f"{directory}/comparison.html", self.page().encode())
        return f"{directory}/comparison.html"

    @property
    def _shown(self) -> tuple[str, str]:
        """The names; where both are one, with the last part of each run's path."""
        if self.names[0] != self.names[1] or self.paths[0] == self.paths[1]:
            return self.names
        a, b = (
            f"{name} of {path.rstrip('/').rpartition('/')[2]}"
            for name, path in zip(self.names, self.paths, strict=True)
        )
        return a, b

    def properties(self) -> dict[str, str]:
        return {"classifier_a": self.names[0], "classifier_b": self.names[1], "alpha": str(self.alpha)}

    def summaries(self) -> list[Summary]:
        return self.pages.summaries(self._shown, self.cells)

    def to_json(self) -> dict[str, Any]:
        rows = self.cells.to_pylist()
        return {
            "a": self.paths[0],
            "b": self.paths[1],
            "classifier_a": self.names[0],
            "classifier_b": self.names[1],
            "alpha": self.alpha,
            "changes": tally(rows),
            "cells": rows,
        }


def compared_names(
    runs: tuple[R, R],
    names: tuple[str | None, str | None],
    names_of: Callable[[R], Sequence[str]],
    check: Callable[[R, R], None],
) -> tuple[str, str]:
    """Returns the names of A and B: two of one run, or one of each of two runs that `check` accepts.

    `names`: as the user wrote them, needed where a run has several. `names_of`: returns the names in a run. Raises
    ConfigError where it is unclear which are meant; also what `check` raises.
    """
    run_a, run_b = runs
    if resolve(run_a.path)[1] == resolve(run_b.path)[1]:
        return two_of(names_of(run_a), *names, run_a.path)
    a = one_of(names_of(run_a), names[0], Argument.CLASSIFIER_A, run_a.path)
    b = one_of(names_of(run_b), names[1], Argument.CLASSIFIER_B, run_b.path)
    check(run_a, run_b)
    return a, b


def differing(run_a: Run, run_b: Run, fields: Sequence[str]) -> list[str]:
    """Returns the fields of the config in which the runs differ."""
    a, b = run_a.config, run_b.config
    return [name for name in fields if getattr(a, name, None) != getattr(b, name, None)]


def refuse(run_a: Run, run_b: Run, different: Sequence[str], why: str) -> None:
    """Raises RunError where anything is different. `why`: the consequence, and what to do."""
    if different:
        raise RunError(f"{run_a.path} and {run_b.path} differ in {', '.join(different)}, so {why}")


# Which rows of a comparison are changes for the worse or the better, and their order.


WORSE, BETTER, UNDETERMINED = "worse", "better", "undetermined"


def compared(
    difference: float | None = None,
    low: float | None = None,
    high: float | None = None,
    p_value: float | None = None,
) -> ComparedRow:
    """Returns what the rows of every comparison have; without arguments, of sides that cannot be compared."""
    return {
        "difference": difference,
        "difference_low": low,
        "difference_high": high,
        "p_value": p_value,
        "q_value": None,
        "change": UNDETERMINED,
    }


def decide(rows: Iterable[ComparedRow], alpha: float, rising: str = WORSE) -> None:
    """Fills in `q_value` of the comparable rows, which form one family (Benjamini & Hochberg 1995), and `change` of
    those where it is at most alpha. `rising`: what a positive difference is."""
    falling = BETTER if rising == WORSE else WORSE
    comparable = [(row, p_value) for row in rows if (p_value := row["p_value"]) is not None]
    q_values = benjamini_hochberg([p_value for _, p_value in comparable])
    for (row, _), q_value in zip(comparable, q_values.tolist(), strict=True):
        row["q_value"] = q_value
        if q_value <= alpha:
            row["change"] = rising if (row["difference"] or 0.0) > 0 else falling


def importance(row: ComparedRow) -> tuple[bool, float]:
    """Sorts changed rows first, then by rising q; those that cannot be compared come last."""
    return row["change"] == UNDETERMINED, 2.0 if row["q_value"] is None else row["q_value"]
