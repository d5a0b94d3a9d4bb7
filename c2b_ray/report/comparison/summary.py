"""The summary of a comparison for terminals and programs: what got worse, what got better, and the counts.

Knows the columns of `schemas.COMPARISON`; knows nothing of terminals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from c2b_ray.report.comparison.page import by_change, left_out, one_caption_line, pooled_lines, tally
from c2b_ray.report.kit.summary import Column, Summary

MOST_ROWS = 15
MARKS = {"worse": "bad", "better": "good"}
COLUMNS = (
    *(Column(name) for name in ("class", "attribute", "value")),
    *(Column(name, number=True) for name in ("A right", "B right", "difference", "interval", "change of φ", "n")),
)


def summaries(classifiers: tuple[str, str], tables: tuple[pa.Table, pa.Table], images: Sequence[str]) -> list[Summary]:
    """`tables`: of `schemas.COMPARISON` and `schemas.COMPARISON_POOLED`; `images`: those that only one of the two got
    right, in words."""
    rows = tables[0].to_pylist()
    result = [Summary("", COLUMNS, [], [], [f"A: {classifiers[0]}", f"B: {classifiers[1]}"])]
    for change, mark in MARKS.items():
        chosen = by_change(rows, change)
        shown = [_row(row) for row in chosen[:MOST_ROWS]]
        result.append(Summary(f"Got {change} ({len(shown)} of {len(chosen)})", COLUMNS, shown, [mark] * len(shown), []))
    lines = [*images[:MOST_ROWS], *pooled_lines(tables[1].to_pylist()), tally(rows), left_out(rows)]
    return [*result, Summary("", COLUMNS, [], [], [line for line in (*lines, one_caption_line(rows)) if line])]


def counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts the cells by change, and the images that were left out."""
    return {
        "changes": {
            name: sum(row["change"] == name for row in rows) for name in ("worse", "better", "same", "undetermined")
        },
        "left_out": {name: sum(row[name] for row in rows) for name in ("unshared", "unanswered")},
    }


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["target_class"],
        row["attribute"],
        row["bias_class"],
        f"{row['accuracy_a']:.0%}",
        f"{row['accuracy_b']:.0%}",
        f"{row['difference']:+.2f}",
        f"{row['difference_low']:+.2f} … {row['difference_high']:+.2f}",
        f"{row['phi_difference']:+.2f}",
        str(row["n"]),
    )
