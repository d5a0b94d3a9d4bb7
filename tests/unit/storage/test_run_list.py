"""A list of runs of all kinds: results by their headlines, and a row with the reason for what cannot be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from run_recipes import PLANTED, Recipe
from synthetic_run import make_run

from c2b_ray.audits.runs import write_index
from c2b_ray.errors import SourceError
from c2b_ray.storage import files
from c2b_ray.storage.run import list_runs, load_run


@pytest.fixture(scope="module")
def fog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which the bus is answered wrong in fog."""
    path = tmp_path_factory.mktemp("made") / "fog"
    recipe = Recipe(
        classes=("bus", "boat"), classifiers=(PLANTED,), attributes={"weather": ("fog", "rain", "snow")},
        accuracy={(PLANTED, "bus", "fog"): 0.2}, images_per_cell=60, pictures=False,
    )  # fmt: skip
    make_run(path, recipe)
    return path


@pytest.fixture
def runs(fog: Path, tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    shutil.copytree(fog, root / "deep" / "fog")
    shutil.copytree(fog, root / "older")
    (root / "older" / "report.html").write_text("<p>report</p>")
    edit(root / "older", headline=None, finished="2020-01-01T00:00:00+00:00")
    shutil.copytree(fog, root / "damaged")
    edit(root / "damaged", headline=None, finished="2019-01-01T00:00:00+00:00")
    (root / "damaged" / "scores.parquet").write_bytes(b"PAR1 and no more")
    (root / "torn").mkdir()
    (root / "torn" / "run.json").write_text('{"format": 4,')
    (root / "future").mkdir()
    (root / "future" / "run.json").write_text('{"format": 99}')
    (root / "photos").mkdir()
    (root / "latest").symlink_to(root / "older")
    (root / "loop").symlink_to(root)
    return root


def edit(path: Path, **changes: object) -> None:
    manifest = {**json.loads((path / "run.json").read_text()), **changes}
    (path / "run.json").write_text(json.dumps({key: value for key, value in manifest.items() if value is not None}))


def test_a_finished_run_says_its_result_in_its_manifest(fog: Path) -> None:
    headline = json.loads((fog / "run.json").read_text())["headline"]
    assert headline["text"].startswith("bus, weather fog: ")
    assert "% right (φ −0." in headline["text"]
    assert headline["text"].endswith("undetermined")
    findings = [row for row in load_run(fog).read("scores").to_pylist() if row["verdict"] in ("for", "against")]
    assert headline["findings"] == {PLANTED: len(findings)}


def test_a_run_that_goes_on_has_no_result(fog: Path, tmp_path: Path) -> None:
    shutil.copytree(fog, tmp_path / "again")
    run = load_run(tmp_path / "again")
    run._ended = True
    run.begin_writing()
    assert "headline" not in run.manifest


def test_runs_are_listed_by_date_each_once_and_what_cannot_be_read_says_why(runs: Path) -> None:
    listed = list_runs(runs)
    assert [run.name for run in listed] == ["deep/fog", "latest", "damaged", "future", "torn"]
    of = {run.name: run for run in listed}
    # `latest` is a link to `older`, and either name is as good.
    assert of["latest"].headline == of["deep/fog"].headline  # read from its tables
    assert of["latest"].report
    assert not of["deep/fog"].report
    assert of["deep/fog"].classifiers == {PLANTED: PLANTED}
    assert (of["damaged"].state, of["damaged"].kind, of["damaged"].headline) == ("finished", "c2b", "")
    assert "its result cannot be read" in of["damaged"].problem
    assert of["torn"].state == of["future"].state == "unreadable"
    assert "is not JSON" in of["torn"].problem
    assert "install the newer c2b-ray" in of["future"].problem


def test_a_run_and_an_empty_folder_are_listed_too(fog: Path, tmp_path: Path) -> None:
    assert [run.name for run in list_runs(fog)] == ["fog"]
    assert list_runs(tmp_path) == []
    with pytest.raises(SourceError, match="no folder there"):
        list_runs(tmp_path / "absent")


def test_runs_in_a_bucket_are_listed_and_linked(fog: Path, s3: object) -> None:
    for name in ("run.json", "scores.parquet"):
        files.write_bytes(f"s3://photos/audits/fog/{name}", (fog / name).read_bytes())
    files.write_bytes("s3://photos/audits/fog/report.html", b"<p>report</p>")
    listed = write_index("s3://photos/audits", "s3://photos/pages")
    assert [(run.name, run.state) for run in listed] == [("fog", "finished")]
    page = files.read_bytes("s3://photos/pages/index.html").decode()
    assert 'href="../audits/fog/report.html"' in page


def test_the_commands_print_rows_json_and_a_page(c2b, runs: Path, tmp_path: Path) -> None:
    status, out, _ = c2b("runs", runs)
    assert status == 0
    assert "5 runs" in out
    assert "bus, weather fog:" in out
    assert "unreadable" in out
    status, out, _ = c2b("runs", runs, "--json", "--html", tmp_path / "page")
    assert status == 0
    assert {run["name"]: run["state"] for run in json.loads(out)["runs"]}["torn"] == "unreadable"
    assert (tmp_path / "page" / "index.html").is_file()
    assert c2b("runs", tmp_path / "page")[1].startswith("no run here")
    assert c2b("runs", tmp_path / "absent")[0] == 2
