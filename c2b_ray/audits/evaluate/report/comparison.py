"""The texts of a comparison of two evaluations, for the page and a terminal.

Knows the columns of `tables.evaluate.EVALUATION_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.evaluate.report.summary import DIRECTIONS
from c2b_ray.report import words
from c2b_ray.report.comparison import Heading, Pages
from c2b_ray.report.redact import clean

HEADINGS = (
    Heading("methods"),
    Heading("of the biases"),
    Heading("rule"),
    Heading("threshold"),
    Heading("A", number=True),
    Heading("B", number=True),
    Heading("difference", number=True),
    Heading("interval", number=True, small=True),
    Heading("q", number=True),
    Heading("biases", number=True),
)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    known = row["p_value"] is not None
    values = [row[f"hit_minus_false_{side}"] for side in "ab"]
    value_a, value_b = (words.UNKNOWN if value is None else words.signed(value) for value in values)
    return (
        " and ".join(dict.fromkeys(clean(row[f"method_{side}"]) for side in "ab")),
        DIRECTIONS[row["direction"]],
        row["rule"],
        row["threshold_kind"],
        value_a,
        value_b,
        words.signed(row["difference"]) if known else words.UNKNOWN,
        words.signed_range(row["difference_low"], row["difference_high"]) if known else "",
        words.small_probability(row["q_value"]) if known else words.UNKNOWN,
        f"{words.count(row['biases_a'])}, {words.count(row['biases_b'])}",
    )


PAGES = Pages(
    "evaluate_comparison.html.j2",
    {
        "worse": "Hits less, or is misled more",
        "better": "Hits more, or is misled less",
        "undetermined": "Not told apart",
    },
    HEADINGS,
    _texts,
)
