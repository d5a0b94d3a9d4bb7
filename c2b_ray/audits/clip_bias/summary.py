"""The terminal summary of a run of `c2b clip-bias`: biases beyond chance, and transfer."""

from __future__ import annotations

import math

from c2b_ray.audits.clip_bias import wording
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.steps.measure import ALL
from c2b_ray.report import words
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Summary
from c2b_ray.tables.clip_bias import BiasRow
from c2b_ray.text import finite

MOST_ROWS = 15
COLUMNS = (
    *(Column(name) for name in ("model", "dataset", "metric", "attribute", "view")),
    *(Column(name, number=True) for name in ("bias", "interval", "by chance", "q")),
)


def summary(run: ClipBiasRun) -> Summary:
    biases = run.read("clip_bias").to_pylist()
    transfer = [row for row in run.read("transfer").to_pylist() if math.isfinite(row["rho"])]
    alpha = run.config.alpha
    significant = sorted(
        (row for row in biases if row["q_value"] <= alpha), key=lambda row: (row["q_value"], -row["value"])
    )
    moved = [row for row in transfer if row["q_value"] <= alpha]
    measured = sum(math.isfinite(row["value"]) for row in biases)
    lines = [
        f"{words.count(len(significant))} of {words.plural(measured, 'bias', 'biases')} beyond chance at a false "
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
    shown_rows = significant[:MOST_ROWS]
    return Summary(
        title=words.shown_of("Biases", len(shown_rows), len(significant)),
        columns=COLUMNS,
        rows=[_row(row) for row in shown_rows],
        marks=["bad"] * len(shown_rows),
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
            "measured": measured,
            "correlations": len(transfer),
        },
    )


def _row(row: BiasRow) -> tuple[str, ...]:
    view = row["view"] if row["group"] == ALL else f"group {clean(row['group'])}"
    return (
        clean(row["model"]), clean(row["dataset"]), row["metric"], clean(row["attribute"]), view,
        wording.amount(row["value"]), wording.amounts(row["value_low"], row["value_high"]),
        wording.amount(row["expected"]), words.small_probability(row["q_value"]),
    )  # fmt: skip
