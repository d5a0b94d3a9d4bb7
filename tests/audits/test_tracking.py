"""Runs logged to a real MLflow server, and to W&B's offline mode."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from run_recipes import Recipe
from synthetic_run import make_run

from c2b_ray.audits.runs import check, write_report
from c2b_ray.audits.tracking import log
from c2b_ray.storage.run import Run

pytestmark = pytest.mark.long
MLFLOW = "mlflow==3.17.2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = Recipe(classifiers=("a?x=1", "b"), accuracy={("a?x=1", "bus", "fog"): 0.2}, images_per_cell=40)
    made = make_run(tmp_path_factory.mktemp("tracked") / "run", recipe)
    write_report(made)
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the URL of an MLflow tracking server that serves artifacts too. It has an environment of its own, since it
    wants an older pyarrow than the audits do."""
    folder = tmp_path_factory.mktemp("mlflow")
    uv, python = str(Path(sys.executable).with_name("uv")), str(folder / "env/bin/python")
    for step in (["venv", "--quiet", str(folder / "env")], ["pip", "install", "--quiet", "--python", python, MLFLOW]):
        subprocess.run([uv, *step], check=True, timeout=300)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        f"{folder}/artifacts",
    ]
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if process.poll() is not None:
                pytest.fail((folder / "log").read_text())
            try:
                if httpx.get(f"{url}/health", timeout=2).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(0.5)
        yield url
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def test_an_audit_is_one_run_of_mlflow_however_often_it_is_logged(run, server, tmp_path):
    from mlflow import MlflowClient

    to = f"mlflow:{server}|classifiers"
    first = log(run, to)
    client = MlflowClient(server)
    number = client.get_experiment_by_name("classifiers").experiment_id
    (logged,) = client.search_runs([number])
    assert logged.info.run_id in first
    assert logged.info.status == "FINISHED"
    assert logged.data.metrics["findings/a_x_1"] == 1  # MLflow takes no question mark in a name
    assert logged.data.params["task"] == run.record.config["task"]
    assert "c2b.gates" not in logged.data.tags
    checks = check(run, ["against"])
    assert log(run, to, checks) == first
    (logged,) = client.search_runs([number])
    assert logged.data.tags["c2b.gates"] == "failed"
    assert logged.data.metrics["gates/failed"] == 1
    there = {entry.path for entry in client.list_artifacts(logged.info.run_id)}
    assert there >= {"report.html", "results.parquet", "results.table.json", "gates.xml"}
    report = client.download_artifacts(logged.info.run_id, "report.html", str(tmp_path))
    assert Path(report).read_bytes() == Path(run.report).read_bytes()
    table = client.download_artifacts(logged.info.run_id, "results.parquet", str(tmp_path))
    assert pq.read_table(BytesIO(Path(table).read_bytes())).num_rows == run.scores.num_rows


def test_the_command_line_logs_a_finished_run_and_its_gates(run, server, c2b):
    to = f"mlflow:{server}|from-the-command-line"
    status, _, err = c2b("report", run.path, "--log", to)
    assert status == 0
    assert "logged: MLflow run" in err
    status, _, err = c2b("gate", run.path, "--fail-on", "against", "--log", to)
    assert status == 1
    assert "logged: MLflow run" in err


def test_a_server_that_does_not_answer_is_known_before_the_work(run, c2b, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    before = Path(run.report).stat().st_mtime_ns
    status, out, err = c2b("report", run.path, "--log", "mlflow:http://user:secret@127.0.0.1:9|x")
    assert (status, out) == (1, "")
    assert "MLflow at http://" in err
    assert "secret" not in err
    assert Path(run.report).stat().st_mtime_ns == before


def test_wandb_offline_holds_summary_table_report_and_files(run, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    said = log(run, "wandb:vision/classifiers", check(run, ["against"]))
    folder = Path(said.rpartition("wandb sync ")[2])
    (media,) = folder.rglob("report_*.html")
    assert media.read_bytes() == Path(run.report).read_bytes()
    assert list(folder.rglob("results_*.table.json"))
    (kept,) = folder.glob("*.wandb")  # W&B's log, whose texts stand there as they are
    sent = kept.read_bytes()
    assert {name for name in (b"findings", b"c2b.gates", b'"failed"', b"verdicts/against") if name not in sent} == set()
    assert f"c2b-{run.manifest['run_id']}".encode() in sent
