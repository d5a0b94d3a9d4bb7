"""Ctrl-C in the middle of `c2b audit`, as a terminal sends it: to every process of the group."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from c2b_ray import load_run
from c2b_ray.world import CLASSES
from c2b_ray.world.table import write_sample

SCENES = 1800
PATIENCE_S = 120


def audit(folder: Path, via: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "c2b_ray", "audit", "audit.yaml", "--out", "run", "--json", "--via", via]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "RAY_ADDRESS": "local"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    table = tmp_path_factory.mktemp("scenes") / "scenes.parquet"
    write_sample(table, SCENES, seed=1002)
    return str(table)


@pytest.mark.parametrize("via", ["here", "actors"])
def test_ctrl_c_leaves_a_run_that_the_same_command_ends(tmp_path, scenes, via):
    asked = {
        "task": "Name the thing.",
        "classes": list(CLASSES),
        "classifier": "world:resnet-control-0",
        "images": {"source": "labelled", "table": scenes},
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(asked))

    first = audit(tmp_path, via)
    deadline = time.monotonic() + PATIENCE_S
    while not (held := list(tmp_path.glob("run/predictions/part-*.parquet"))):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline, "no prediction was written"
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGINT)
    out, err = first.communicate(timeout=PATIENCE_S)
    assert (first.returncode, out) == (130, "")
    assert err.strip().endswith("interrupted; run the same command again to resume")
    assert "Traceback" not in err
    assert load_run(tmp_path / "run").manifest["status"] == "running"
    before = {part: part.stat().st_mtime_ns for part in held}

    second = audit(tmp_path, via)
    out, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, err
    assert sum(json.loads(out)["verdicts"].values()) == load_run(tmp_path / "run").scores.num_rows
    predicted = load_run(tmp_path / "run").predictions["image_id"].to_pylist()
    assert len(predicted) == len(set(predicted)) == SCENES
    assert before == {part: part.stat().st_mtime_ns for part in held}, "what was written was done again"
