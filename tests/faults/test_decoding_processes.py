"""Processes that decode: killed in a run, which loses nothing; gone when the process that started them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from c2b_ray.engine.here import InProcess
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import Prepare, Rows, StageConfig
from c2b_ray.errors import SourceError
from c2b_ray.storage.folders import Readers
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([("id", pa.string()), ("error", pa.string())])
PROGRAM = """
import sys
from test_decoding_processes import stage
stage(sys.argv[1])
"""


def slowly(rows: pa.Table) -> pa.Table:
    """A preparation, which notes its process."""
    time.sleep(0.005 * rows.num_rows)
    Path(os.environ["C2B_TEST_PIDS"], str(os.getpid())).touch()
    return rows


def answer(rows: pa.Table, role: None) -> pa.Table:
    return pa.table({"id": rows["id"], "error": pa.nulls(rows.num_rows, pa.string())})


def stage(out: str, prepare: Prepare = slowly) -> int:
    rows = Rows([pa.table({"id": [f"r{i:05}" for i in range(start, start + 40)]}) for start in range(0, 1600, 40)])
    config = StageConfig(SCHEMA, Placement(batch=16, threads=2, decoders=3), rows_per_file=64)
    run = InProcess().run(rows, answer, lambda: None, out, id_column="id", config=config, prepare=prepare)
    return run.rows


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pids"
    folder.mkdir()
    monkeypatch.setenv("C2B_TEST_PIDS", str(folder))
    return folder


def alive(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir() if Path(f"/proc/{file.name}").exists() and _runs(file.name)]


def _runs(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def started(out: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(out)], env=environment)


def test_killed_processes_cost_no_row(tmp_path: Path, pids: Path) -> None:
    child = started(tmp_path / "out")
    killed = 0
    while child.poll() is None and killed < 50:
        if there := alive(pids):
            with suppress(ProcessLookupError):
                os.kill(there[killed % len(there)], signal.SIGKILL)
                killed += 1
        time.sleep(0.5)
    assert child.wait(120) == 0
    assert killed >= 5
    table = read_stage(str(tmp_path / "out"))
    assert table["error"].null_count == 1600
    assert sorted(table["id"].to_pylist()) == [f"r{i:05}" for i in range(1600)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_killed_run_which_then_goes_on(tmp_path: Path, pids: Path, how: signal.Signals) -> None:
    before = set(os.listdir("/dev/shm"))
    child = started(tmp_path / "out")
    wait_for(lambda: len(list((tmp_path / "out").glob("part-*"))) > 2 if (tmp_path / "out").is_dir() else False)
    assert alive(pids)
    child.send_signal(how)
    child.wait(30)
    wait_for(lambda: not alive(pids), 5)
    assert set(os.listdir("/dev/shm")) <= before
    missing = stage(str(tmp_path / "out"))
    assert 0 < missing < 1600
    table = read_stage(str(tmp_path / "out"))
    assert sorted(table["id"].to_pylist()) == [f"r{i:05}" for i in range(1600)]


def from_a_folder_that_hangs(rows: pa.Table) -> pa.Table:
    """Reads as sources do. One file has no answer for as long as its server is away."""
    back = Path(os.environ["C2B_TEST_BACK"])

    def read(name: str) -> bytes:
        while name == "r00300" and not back.exists():
            time.sleep(0.02)
        return b""

    Readers().map(read, rows["id"].to_pylist(), lambda name: f"/photos/{name}.jpg")
    return slowly(rows)


def test_a_folder_that_hangs_in_a_process_that_decodes_ends_the_stage_which_resumes(
    tmp_path: Path, pids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("C2B_READ_TIMEOUT", "0.5")
    monkeypatch.setenv("C2B_TEST_BACK", str(tmp_path / "back"))
    out = str(tmp_path / "out")
    with pytest.raises(
        SourceError, match=r"/photos/r00300\.jpg: no answer for 0\.5 seconds.*run the same command again"
    ):
        stage(out, from_a_folder_that_hangs)
    wait_for(lambda: not alive(pids), 5)  # not even the process in which a thread still waits
    (tmp_path / "back").touch()
    missing = stage(out, from_a_folder_that_hangs)
    assert 1300 <= missing < 1600  # what was answered before the file is kept
    assert sorted(read_stage(out)["id"].to_pylist()) == [f"r{i:05}" for i in range(1600)]
