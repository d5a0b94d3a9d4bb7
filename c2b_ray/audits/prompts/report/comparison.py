"""The texts of a comparison of two generators by the prompts and words that expose them, for the page and a terminal.

Knows the columns of `tables.prompts.PROMPTS_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.prompts.report.rows import method_name
from c2b_ray.report import words
from c2b_ray.report.comparison import Heading, Pages, Rows, difference_texts
from c2b_ray.report.redact import clean

HEADINGS = (
    Heading("measure"),
    Heading("attribute"),
    Heading("value"),
    Heading("prompts or word"),
    Heading("A", number=True),
    Heading("B", number=True),
    Heading("difference", number=True),
    Heading("interval", number=True, small=True),
    Heading("q", number=True),
    Heading("verdict", page_only=True),
)
RAISES = "raises"
_MEASURES = {"gain": "gain", "frequency": "frequency", "word": "effect of a word"}


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    word = row["measure"] == "word"
    return (
        _MEASURES[row["measure"]],
        clean(row["attribute"]),
        clean(row["value"]),
        f"“{clean(row['name'])}”" if word else method_name(row["name"]),
        *(_amount(row, row[f"value_{side}"]) for side in "ab"),
        *difference_texts(row),
        f"{_verdict(row['verdict_a'])} → {_verdict(row['verdict_b'])}" if word else "",
    )


def _amount(row: Mapping[str, Any], value: float | None) -> str:
    if value is None:
        return words.UNKNOWN
    return words.percent(value) if row["measure"] == "frequency" else words.signed(value)


def _verdict(verdict: str | None) -> str:
    return {"none": "does not raise", None: "not tested"}.get(verdict, str(verdict))


def _remark(rows: Rows) -> str:
    of_words = [row for row in rows if row["measure"] == "word"]
    only_in_b = [row["name"] for row in of_words if row["verdict_b"] == RAISES != row["verdict_a"]]
    only_in_a = [row["name"] for row in of_words if row["verdict_a"] == RAISES != row["verdict_b"]]
    in_both = sum(row["verdict_a"] == row["verdict_b"] == RAISES for row in of_words)
    if not (only_in_b or only_in_a or in_both):
        return ""
    return (
        f"Words that raise a value: {in_both} on both, of A alone {_listed(only_in_a)}, of B alone "
        f"{_listed(only_in_b)}. That a word is established on one side alone is no difference by itself: see its own."
    )


def _listed(names: list[str]) -> str:
    return words.listed(sorted({clean(name) for name in names})) if names else "none"


PAGES = Pages(
    "prompts_comparison.html.j2",
    {"worse": "Rises", "better": "Falls", "undetermined": "Not told apart"},
    HEADINGS,
    _texts,
    _remark,
    rising=True,
)
