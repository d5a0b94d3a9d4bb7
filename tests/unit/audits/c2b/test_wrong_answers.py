"""Failures: the wrong answers of each cell, as many as its scores count."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from run_recipes import PLANTED, Recipe
from synthetic_run import make_run

from c2b_ray.audits.c2b.exports import failures_csv
from c2b_ray.tables import FAILURES


def test_failures_are_the_wrong_answers_that_the_scores_count(tmp_path: Path) -> None:
    recipe = Recipe(
        accuracy={(PLANTED, "bus", "snow"): 0.4}, images_per_cell=20, bad_images=3, pictures=False, shown={}
    )
    run = make_run(tmp_path / "run", recipe)
    table = run.wrong_answers()
    assert table.schema.equals(FAILURES)
    rows = table.to_pylist()
    for score in run.scores.to_pylist():
        own = [
            row
            for row in rows
            if (row["classifier"], row["truth"], row["attribute"], row["bias_class"])
            == (score["classifier"], score["target_class"], score["attribute"], score["bias_class"])
        ]
        assert len(own) == score["n"] - score["correct"]  # `shown` plants a near-duplicate in each cell
    snow = [row for row in rows if row["cell"] == "weather/snow" and row["truth"] == "bus"]
    assert {row["key"].split("/")[0] for row in snow} == {"photos"}
    assert {row["answer"] for row in snow} == {"boat", "umbrella"}
    assert all(0 < row["label_probability"] <= 1 for row in snow)
    told = list(csv.DictReader(io.StringIO(failures_csv(run).decode())))
    assert list(told[0]) == FAILURES.names
    assert len(told) == len(rows)
