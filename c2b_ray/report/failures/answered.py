"""The answer to a question to a run of failures, in a line for each classifier and wrong label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

BEFORE = "asked before; these are the answers of then, and nothing was drawn now"


def answer_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """`rows`: hypotheses of confirmation (`schemas.HYPOTHESES`), with the counts of their baselines."""
    return [_line(row) for row in rows]


def _line(row: Mapping[str, Any]) -> str:
    towards = "any failure" if row["target"] is None else f"taken for {row['target']}"
    return (
        f"{row['classifier']} on {row['caption']!r}: {towards} {row['failures']} of {row['draws']} "
        f"({row['rate_low']:.2g} to {row['rate_high']:.2g}), baseline {row['baseline_failures']} of "
        f"{row['baseline_draws']}; {row['verdict'].replace('_', ' ')} (q {row['q_value']:.2g})"
    )
