"""The texts of a comparison of two classifiers by their failures, for the page and a terminal.

Knows the columns of `tables.failures.FAILURES_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, Rows, difference_texts
from c2b_ray.report.redact import clean

HEADINGS = (
    Heading("label"),
    Heading("taken for"),
    Heading("caption"),
    Heading("A", number=True),
    Heading("B", number=True),
    *DIFFERENCE,
    Heading("times", number=True, page_only=True),
    Heading("verdicts", page_only=True),
)
LONGEST = 400  # characters of a caption on the page


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    is_compared = row["p_value"] is not None
    verdicts = (row[f"verdict_{side}"] for side in "ab")
    return (
        clean(row["label"]),
        "any label" if row["target"] is None else clean(row["target"]),
        words.shortened(clean(row["caption"]), LONGEST),
        words.rate(row["rate_a"]) if row["draws_a"] else words.UNKNOWN,
        words.rate(row["rate_b"]) if row["draws_b"] else words.UNKNOWN,
        *difference_texts(row, _signed),
        words.times(row["ratio"]) if is_compared else words.UNKNOWN,
        " → ".join("not tested" if verdict is None else verdict.replace("_", " ") for verdict in verdicts),
    )


def _signed(difference: float) -> str:
    return f"{'+' if difference >= 0 else '−'}{words.rate(abs(difference))}"


def _not_compared(rows: Rows) -> str:
    """Tells how many captions only one of the two was measured on, and how many of these are findings."""
    parts = []
    for side in "ab":
        only_here = [row for row in rows if row["p_value"] is None and row[f"draws_{side}"]]
        findings = sum(row[f"verdict_{side}"] == "failure" for row in only_here)
        if only_here:
            hypothesis_count = f"{words.plural(len(only_here), 'hypothesis', 'hypotheses')} of {side.upper()} alone"
            parts.append(f"{hypothesis_count} ({words.plural(findings, 'finding')})")
    return f"Not compared: {words.listed(parts)}." if parts else ""


PAGES = Pages(
    kicker="Two classifiers compared",
    title="Where they fail",
    caption="Failure rates, the largest difference first",
    terms=(
        "Hypotheses are the same where label, wrong label, caption and generator are; each label’s baseline is "
        "compared too. Rates are from draws whose number was fixed before they were drawn, so that what each run "
        "stopped for has no part in them; the baseline of a label without any confirmation is that of discovery, "
        "whose number was fixed too.",
        "**More often** and **less often** where q is at most α\u00a0=\u00a0{alpha}: an exact test of how the "
        "failures of both divide among them (Przyborowski & Wilenski 1940), adjusted for the false discovery rate "
        "over all that both have (Benjamini & Hochberg 1995). Intervals of differences combine those of the rates "
        "(Newcombe 1998). Of runs with one seed and one generator both classifiers saw the same images, and "
        "counts alone are kept: tests and intervals hold however the failures of both go together, even where "
        "each fails on what the other gets right, and are too careful where both fail on the same images.",
    ),
    titles={"worse": "Fails more often", "better": "Fails less often", "undetermined": "Undetermined"},
    headings=HEADINGS,
    texts=_texts,
    remark=_not_compared,
)
