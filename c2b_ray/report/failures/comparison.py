"""The texts of a comparison of two classifiers by their failures, for the page and a terminal.

Knows the columns of `schemas.FAILURES_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.report.kit import words
from c2b_ray.report.kit.comparison import Heading, Pages, Rows
from c2b_ray.report.kit.redact import clean

HEADINGS = (
    Heading("label"),
    Heading("taken for"),
    Heading("caption"),
    Heading("A", number=True),
    Heading("B", number=True),
    Heading("difference", number=True),
    Heading("interval", number=True, small=True),
    Heading("times", number=True, page_only=True),
    Heading("q", number=True),
    Heading("verdicts", page_only=True),
)
LONGEST = 400  # characters of a caption on the page


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    known = row["p_value"] is not None
    verdicts = (row[f"verdict_{side}"] for side in "ab")
    return (
        clean(row["label"]),
        "any label" if row["target"] is None else clean(row["target"]),
        words.shortened(clean(row["caption"]), LONGEST),
        words.rate(row["rate_a"]) if row["draws_a"] else words.UNKNOWN,
        words.rate(row["rate_b"]) if row["draws_b"] else words.UNKNOWN,
        _signed(row["difference"]) if known else words.UNKNOWN,
        f"{_signed(row['difference_low'])} to {_signed(row['difference_high'])}" if known else "",
        words.times(row["ratio"]) if known else words.UNKNOWN,
        words.small_probability(row["q_value"]) if known else words.UNKNOWN,
        " → ".join("not tested" if one is None else one.replace("_", " ") for one in verdicts),
    )


def _signed(difference: float) -> str:
    return f"{'+' if difference >= 0 else '−'}{words.rate(abs(difference))}"


def _not_compared(rows: Rows) -> str:
    """Tells how many captions only one of the two was measured on, and how many of these are findings."""
    parts = []
    for side in "ab":
        alone = [row for row in rows if row["p_value"] is None and row[f"draws_{side}"]]
        findings = sum(row[f"verdict_{side}"] == "failure" for row in alone)
        if alone:
            counted = f"{words.plural(len(alone), 'hypothesis', 'hypotheses')} of {side.upper()} alone"
            parts.append(f"{counted} ({words.plural(findings, 'finding')})")
    return f"Not compared: {words.listed(parts)}." if parts else ""


PAGES = Pages(
    "failures_comparison.html.j2",
    {"worse": "Fails more often", "better": "Fails less often", "undetermined": "Undetermined"},
    HEADINGS,
    _texts,
    _not_compared,
)
