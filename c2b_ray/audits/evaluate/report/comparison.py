"""What a terminal shows of a run of `c2b evaluate`, the hits of each method in both directions; and the texts of a
comparison of two such runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from c2b_ray.audits.evaluate.report.page import results_of
from c2b_ray.report import words
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, difference_texts
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Summary
from c2b_ray.storage.run import Run
from c2b_ray.tables.evaluate import AgreementRow

COLUMNS = (
    Column("method"), Column("of the biases"),
    *(Column(name, number=True) for name in ("HIT", "FH", "MISS", "HIT − FH", "interval", "biases")),
)  # fmt: skip
DIRECTIONS = {"truth_to_detected": "of the ground truth", "detected_to_truth": "detected"}


def summary(run: Run) -> Summary:
    results = results_of(run)
    thresholds, table_rows = results["thresholds"], results["tables"]
    kind = next((kind for kind, value in thresholds.items() if value is not None), "")
    shown_rows = [
        row
        for row in table_rows["agreement"]
        if (row["classifier"], row["rule"], row["threshold_kind"]) == ("", "tested", kind) and row["biases"]
    ]
    lines = [
        f"{clean(row['method'])}: agreement with pseudo-labels {row['agreement']:+.2f}; {of_biased(row)}"
        for row in table_rows["vqa"]
        if row["classifier"] == "" and row["rule"] == "tested" and row["biases"]
    ]
    if not shown_rows:
        lines.insert(0, "Neither the ground truth nor a method has a bias, as tested.")
    if kind:
        lines.append(f"names match from a cosine of {thresholds[kind]:.2f}, {kind}")
    return Summary(
        title="Detected biases, held against ground truth",
        columns=COLUMNS,
        rows=[_row(row) for row in shown_rows],
        marks=[""] * len(shown_rows),
        lines=[*lines, *map(clean, results["notes"])],
        report=run.report,
        headline=_headline(shown_rows, lines),
        to_json={"run": run.path, "report": run.report, **results},
    )


def _headline(rows: Sequence[AgreementRow], lines: Sequence[str]) -> str:
    """Returns the hit and false-hit rates of each method, else the first line."""
    if not rows:
        return clean(lines[0]).rstrip(".") if lines else ""
    return "; ".join(
        f"{clean(row['method'])}, {DIRECTIONS[row['direction']]}: hit {words.percent(row['hit'])}, false hit "
        f"{words.percent(row['false_hit'])}"
        for row in rows
    )


def of_biased(row: Mapping[str, Any]) -> str:
    """Returns what the agreement is worth: two sides that find nothing agree in full."""
    of_biased = row["agreement_of_biased"]
    if of_biased is None or of_biased != of_biased:
        return f"of {words.plural(row['biases'], 'possible bias', 'possible biases')} neither finds any"
    return f"of the biases that either finds {of_biased:+.2f}"


def _row(row: AgreementRow) -> tuple[str, ...]:
    low, high = row["hit_minus_false_low"], row["hit_minus_false_high"]
    nan = float("nan")
    return (
        clean(row["method"]), DIRECTIONS[row["direction"]],
        *map(words.percent, (row["hit"], row["false_hit"], row["miss"])),
        words.signed(row["hit_minus_false"]),
        words.signed_range(nan if low is None else low, nan if high is None else high), words.count(row["biases"]),
    )  # fmt: skip


# The texts of a comparison of two evaluations, for the page and a terminal.


HEADINGS = (
    Heading("methods"),
    Heading("of the biases"),
    Heading("rule"),
    Heading("threshold"),
    Heading("A", number=True),
    Heading("B", number=True),
    *DIFFERENCE,
    Heading("biases", number=True),
)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    values = [row[f"hit_minus_false_{side}"] for side in "ab"]
    value_a, value_b = (words.UNKNOWN if value is None else words.signed(value) for value in values)
    return (
        " and ".join(dict.fromkeys(clean(row[f"method_{side}"]) for side in "ab")),
        DIRECTIONS[row["direction"]],
        row["rule"],
        row["threshold_kind"],
        value_a,
        value_b,
        *difference_texts(row),
        f"{words.count(row['biases_a'])}, {words.count(row['biases_b'])}",
    )


PAGES = Pages(
    kicker="Two evaluations compared",
    title="Whose methods find the biases that are there",
    caption="HIT − FH, the surest difference first",
    terms=(
        "Both evaluations have one ground truth, of the same classifiers, and the same settings. The classifiers’ "
        "classes are drawn with replacement, the same for both sides, since biases of one class share images; p "
        "is at least what flipping the signs of the classes that differ gives, since draws of few of them are too "
        "sure. A change where q is at most α\u00a0=\u00a0{alpha}, adjusted for the false discovery rate over all "
        "rows (Benjamini & Hochberg 1995). Where all biases are of one class of one classifier nothing can be "
        "drawn, and the row is not compared.",
    ),
    titles={
        "worse": "Hits less, or is misled more",
        "better": "Hits more, or is misled less",
        "undetermined": "Not told apart",
    },
    headings=HEADINGS,
    texts=_texts,
)
