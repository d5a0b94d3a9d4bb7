"""The terminal summary of a run of `c2b latent`. Knows the report's words; knows nothing of terminals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.latent.report.page import method_rows, shown_first, target_of
from c2b_ray.report import words
from c2b_ray.report.words import Column, Summary
from c2b_ray.storage.run import Run
from c2b_ray.text import finite

MOST_ROWS, MOST_LEFT_OUT = 20, 5
COLUMNS = (
    *(Column(name) for name in ("classifier", "target", "method", "verdict", "name")),
    *(Column(name, number=True) for name in ("effect", "interval", "q", "|cos b|", "|cos t|")),
)


def summary(run: Run) -> Summary:
    rows = run.read("directions").to_pylist()
    shown_rows = shown_first(rows)[:MOST_ROWS]
    counts = run.record.counts
    lines = [
        f"{words.plural(counts.get('found', 0), 'direction')} found; {counts.get('excluded_problems', 0)} of "
        f"{words.plural(counts.get('problems', 0), 'problem')} and {counts.get('excluded_hyperplanes', 0)} of "
        f"{words.plural(counts.get('hyperplanes', 0), 'hyperplane')} left out."
    ]
    left_out = [row for row in run.read("problems").to_pylist() if row["status"] == "excluded"]
    lines += [f"Left out: {row['problem']}: {row['reason']}." for row in left_out[:MOST_LEFT_OUT]]
    if len(left_out) > MOST_LEFT_OUT:
        lines.append(f"And {words.count(len(left_out) - MOST_LEFT_OUT)} more left out, in problems.parquet.")
    lines += [
        f"{row.name}: Δcos {row.delta} ({row.interval}), leads {row.leading}, found {row.findings}"
        for row in method_rows(rows)
    ]
    found_rows = [row for row in shown_rows if row["verdict"] == "found"]
    return Summary(
        title=words.shown_of("Directions", len(shown_rows), len(rows)),
        columns=COLUMNS,
        rows=[_row(row) for row in shown_rows],
        marks=["bad" if row["verdict"] == "found" else "" for row in shown_rows],
        lines=lines,
        report=run.report,
        headline=". ".join([*map(_strongest, found_rows[:1]), lines[0].rstrip(".")]),
        findings={
            name: sum(row["verdict"] == "found" for row in rows if row["classifier"] == name)
            for name in sorted({row["classifier"] for row in rows})
        },
        to_json={
            "run": run.path,
            "report": run.report,
            "counts": dict(counts),
            "directions": finite(rows),
            "left_out": {row["problem"]: row["reason"] for row in left_out},
        },
    )


def _strongest(row: Mapping[str, Any]) -> str:
    return f"{row['name'] or 'a direction without a name'} moves {target_of(row)} by {words.signed(row['effect'])}"


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    unknown = row["effect"] is None
    return (
        row["classifier"],
        target_of(row),
        row["method"],
        row["verdict"],
        row["name"] or "",
        words.UNKNOWN if unknown else words.signed(row["effect"]),
        words.UNKNOWN if unknown else words.signed_range(row["effect_low"], row["effect_high"]),
        words.UNKNOWN if unknown else words.small_probability(row["q_value"]),
        words.UNKNOWN if row["cos_bias"] is None else f"{row['cos_bias']:.2f}",
        words.UNKNOWN if row["cos_target"] is None else f"{row['cos_target']:.2f}",
    )
