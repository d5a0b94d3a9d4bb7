"""`c2b export`: to standard output or into a file, whole."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from run_recipes import Recipe
from synthetic_run import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = Recipe(classifiers=("a", "b"), accuracy={("a", "bus", "fog"): 0.2}, images_per_cell=40, pictures=False)
    return make_run(tmp_path_factory.mktemp("export") / "run", recipe)


def test_text_goes_to_standard_output(run, c2b):
    status, out, err = c2b("export", run.path, "--format", "csv")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 1 + run.scores.num_rows
    assert len(json.loads(c2b("export", run.path, "--format", "json")[1])["scores"]) == run.scores.num_rows


def test_a_file_is_written_with_its_directory(run, c2b, tmp_path):
    place = tmp_path / "deep" / "scores.parquet"
    status, out, _ = c2b("export", run.path, "--format", "parquet", "--out", place)
    assert (status, out) == (0, "")
    assert pq.read_table(place).num_rows == run.scores.num_rows
    assert [entry.name for entry in place.parent.iterdir()] == ["scores.parquet"]  # nothing half-written beside it


def test_a_folder_of_images_says_how_many_it_holds(c2b, tmp_path):
    pictured = make_run(tmp_path / "run", Recipe(classifiers=("a",), images_per_cell=20))
    status, out, _ = c2b("export", pictured.path, "--format", "label-studio", "--out", tmp_path / "out")
    count = len(json.loads((tmp_path / "out" / "tasks.json").read_text()))
    assert (status, out) == (0, f"{count} images, {count} of them copied: {tmp_path / 'out'}\n")


def test_a_model_card_is_of_one_classifier(run, c2b):
    status, out, _ = c2b("export", run.path, "--format", "model-card", "--classifier", "a")
    assert status == 0
    assert out.startswith("---\n")
    assert "**weather is fog**" in out
    status, _, err = c2b("export", run.path, "--format", "model-card")
    assert status == 2
    assert "predictions of a, b; name one" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "parquet"), "--out"),
        (("--format", "coco"), "--out"),
        (("--format", "jsn"), "did you mean 'json'"),
        (("--format", "csv", "--out", "."), "a directory is there"),
        (("--format", "model-card", "--classifier", "c"), "known: a, b"),
    ],
)
def test_bad_input_exits_2(run, c2b, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    status, out, err = c2b("export", run.path, *arguments)
    assert (status, out) == (2, "")
    assert words in err


def test_a_run_without_scores_says_so(c2b, tmp_path):
    run = make_run(tmp_path / "run", Recipe(images_per_cell=1, pictures=False, manifest={"status": "running"}))
    (tmp_path / "run" / "scores.parquet").unlink()
    status, _, err = c2b("export", run.path, "--format", "json")
    assert status == 2
    assert "no scores yet" in err
