"""The terminal summary of a run of `c2b clip-bias`: biases beyond chance, and transfer.

Knows the run's tables; knows nothing of terminals.
"""

from __future__ import annotations

import math
from typing import TypedDict

from c2b_ray.audits.clip_bias.report import method
from c2b_ray.report import words
from c2b_ray.report.redact import clean
from c2b_ray.report.summary import Column, Summary
from c2b_ray.storage.run import Run
from c2b_ray.text import finite

MOST_ROWS = 15
COLUMNS = (
    *(Column(name) for name in ("model", "dataset", "metric", "attribute", "view")),
    *(Column(name, number=True) for name in ("bias", "interval", "by chance", "q")),
)


def summary(run: Run) -> Summary:
    biases = run.read("clip_bias").to_pylist()
    transfer = [row for row in run.read("transfer").to_pylist() if math.isfinite(row["rho"])]
    alpha = float(run.config.get("alpha", 0.05))
    significant = sorted(
        (row for row in biases if row["q_value"] <= alpha), key=lambda row: (row["q_value"], -row["value"])
    )
    moved = [row for row in transfer if row["q_value"] <= alpha]
    known = sum(math.isfinite(row["value"]) for row in biases)
    lines = [
        f"{words.count(len(significant))} of {words.plural(known, 'bias', 'biases')} beyond chance at a false "
        f"discovery rate of {words.decimal(alpha)}.",
        *(
            [
                f"{words.count(len(moved))} of {words.plural(len(transfer), 'rank correlation')} of pre-training with "
                "downstream bias established."
            ]
            if transfer
            else []
        ),
        *(clean(note) for note in run.manifest.get("notes") or ()),
    ]
    shown = significant[:MOST_ROWS]
    return Summary(
        title=f"Biases ({len(shown)} of {len(significant)})",
        columns=COLUMNS,
        rows=[_row(row) for row in shown],
        marks=["bad"] * len(shown),
        lines=lines,
        report=run.report,
        headline=lines[0].rstrip("."),
        findings={
            name: sum(row["model"] == name for row in significant) for name in sorted({row["model"] for row in biases})
        },
        to_json={
            "run": run.path,
            "report": run.report,
            "biases": finite(significant),
            "transfer": finite(moved),
            "measured": known,
            "correlations": len(transfer),
        },
    )


class BiasRow(TypedDict):
    """The shown columns of a row of `tables.clip_bias.CLIP_BIAS`."""

    model: str
    dataset: str
    metric: str
    attribute: str
    view: str
    group: str
    value: float
    value_low: float
    value_high: float
    expected: float
    q_value: float


def _row(row: BiasRow) -> tuple[str, ...]:
    view = row["view"] if row["group"] == "all" else f"group {row['group']}"
    return (
        clean(row["model"]), clean(row["dataset"]), row["metric"], clean(row["attribute"]), view,
        method.amount(row["value"]), method.amounts(row["value_low"], row["value_high"]),
        method.amount(row["expected"]), words.small_probability(row["q_value"]),
    )  # fmt: skip
