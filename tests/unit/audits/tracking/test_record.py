"""What trackers get of a run, and texts of `--log` that name none."""

from __future__ import annotations

import json

import failures_recipes
import pytest
import synthetic_failures
from run_recipes import Recipe
from synthetic_run import make_run

from c2b_ray.audits.runs import check, write_report
from c2b_ray.audits.tracking import tracker
from c2b_ray.audits.tracking.record import record
from c2b_ray.errors import ConfigError, RunError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    classifiers = ("onnx:/srv/private/a.onnx", "b")
    recipe = Recipe(classifiers=classifiers, accuracy={(classifiers[0], "bus", "fog"): 0.2}, images_per_cell=40)
    made = make_run(tmp_path_factory.mktemp("tracked") / "run", recipe)
    write_report(made)
    return made


def test_numbers_are_those_of_the_run(run):
    logged = record(run)
    verdicts = run.scores["verdict"].to_pylist()
    assert logged.metrics["findings"] == logged.metrics["findings/onnx:a.onnx"] == verdicts.count("against")
    assert logged.metrics["findings/b"] == 0
    assert logged.metrics["verdicts/undetermined"] == verdicts.count("undetermined")
    assert logged.metrics["seconds/retrieve"] == 3.4
    cells = [row for row in run.scores.to_pylist() if row["classifier"] == "b" and row["attribute"] == "weather"]
    right, images = (sum(row[name] for row in cells) for name in ("correct", "n"))
    assert logged.metrics["accuracy/b"] == right / images
    assert logged.table.num_rows == run.scores.num_rows
    assert {"report.html", "results.csv", "results.json", "results.parquet"} == set(logged.files)
    assert logged.passed is None
    assert logged.ended == 1_795_194_660.0  # 2026-11-20 17:11:00 UTC


def test_gates_are_logged_by_outcome(run):
    checks = check(run, ["against", "phi<-0.99"])
    logged = record(run, checks)
    outcomes = [one.outcome for one in checks]
    for name in ("failed", "passed", "skipped"):
        assert logged.metrics[f"gates/{name}"] == outcomes.count(name)
    assert outcomes.count("failed") == 1
    assert (logged.passed, logged.tags["c2b.gates"]) == (False, "failed")
    assert len(json.loads(logged.files["gates.json"])) == len(checks)
    assert logged.files["gates.xml"].count(b"<testcase") == len(checks)
    assert record(run, check(run, ["phi<-0.99"])).tags["c2b.gates"] == "passed"


def test_nothing_that_is_logged_names_a_folder_of_this_machine(run):
    logged = record(run, check(run, ["against"]))
    texts = [*logged.settings.values(), *logged.tags.values(), *logged.metrics]
    texts += [data.decode(errors="ignore") for data in logged.files.values()]
    assert not [text for text in texts if "/srv/private" in text or run.path in text]
    assert json.loads(logged.settings["images"])["index"] == "photographs"


def test_other_kinds_are_logged_by_their_own_numbers(tmp_path):
    run = synthetic_failures.make_run(tmp_path / "run", failures_recipes.Recipe(pictures=False))
    logged = record(run)
    hypotheses = [row for row in run.hypotheses.to_pylist() if row["stage"] == "confirmation"]
    assert logged.metrics["verdicts/failure"] == sum(row["verdict"] == "failure" for row in hypotheses) > 0
    assert "report.html" not in logged.files  # none was written


def test_a_run_that_is_not_finished_is_not_logged(tmp_path):
    run = make_run(tmp_path / "run", Recipe(images_per_cell=1, pictures=False, manifest={"status": "running"}))
    with pytest.raises(RunError, match="not finished"):
        record(run)


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("mlfow:http://host|audits", "did you mean 'mlflow'"),
        ("mlflow", "write mlflow:URI"),
        ("http://user:secret@host", "no tracker"),
    ],
)
def test_a_text_that_names_no_tracker_says_how_to_write_one(to, words):
    with pytest.raises(ConfigError, match=words) as error:
        tracker(to)
    assert "secret" not in str(error.value)
