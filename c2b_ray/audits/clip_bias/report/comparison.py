"""The texts of a comparison of two models by their biases, for the page and a terminal.

Knows the columns of `tables.clip_bias.CLIP_BIAS_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.clip_bias.report import method
from c2b_ray.report import words
from c2b_ray.report.comparison import Heading, Pages, difference_texts
from c2b_ray.report.redact import clean

HEADINGS = (
    Heading("dataset"),
    Heading("bias"),
    Heading("attribute"),
    Heading("images"),
    Heading("A", number=True),
    Heading("B", number=True),
    Heading("difference", number=True),
    Heading("interval", number=True, small=True),
    Heading("q", number=True),
    Heading("samples", page_only=True),
)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    is_compared = row["p_value"] is not None
    value_a, value_b = (
        words.UNKNOWN if row[f"value_{side}"] is None else method.amount(row[f"value_{side}"]) for side in "ab"
    )
    return (
        clean(row["dataset"]),
        method.metric(row["metric"]),
        clean(row["attribute"]),
        method.group(row["group"]),
        value_a,
        value_b,
        *difference_texts(row, _signed),
        "the same" if row["paired"] else "others" if is_compared else words.UNKNOWN,
    )


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{method.amount(value)}"


PAGES = Pages(
    "clip_bias_comparison.html.j2",
    {"worse": "More biased", "better": "Less biased", "undetermined": "Not told apart"},
    HEADINGS,
    _texts,
    rising=True,
)
