"""Real deaths: a stage in a process of its own, killed in every way; the same call ends with every row once.

Run as a program, this file is such a process: `python test_resume.py OUT ROWS`.
"""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray import cloudpickle

from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.errors import RunError, StorageError
from c2b_ray.storage.parts import read_stage, writing

SCHEMA = pa.schema([("id", pa.string()), ("payload", pa.binary()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=16), rows_per_file=32)
ROWS = 600
PARTS = ROWS // CONFIG.rows_per_file
MARK = "C2B_RAY_TEST_PROCESS"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")


@pytest.fixture(autouse=True, scope="module")
def steps_travel_by_value() -> Iterator[None]:
    """Workers have no path to this module."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def stage(out: str, rows: int, step: Callable[..., pa.Table], on_progress: Any = None) -> Any:
    ids = [f"r{i}" for i in range(rows)]
    source = Rows([pa.table({"id": ids[i : i + 50]}) for i in range(0, rows, 50)])
    return OnRay().run(source, step, str, out, id_column="id", config=CONFIG, on_progress=on_progress)


def slowly(batch: pa.Table, role: str) -> pa.Table:
    time.sleep(0.1)
    return with_payload(batch, 10)


def noise(batch: pa.Table, role: str) -> pa.Table:
    return with_payload(batch, 4096)


def with_payload(batch: pa.Table, size: int) -> pa.Table:
    payload = pa.array([os.urandom(size) for _ in range(batch.num_rows)], pa.binary())
    return pa.table({"id": batch["id"], "payload": payload, "error": pa.nulls(batch.num_rows, pa.string())})


class Process:
    """The stage in a process of its own, with a Ray cluster of its own."""

    def __init__(self, out: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.said = ""
        self.popen = subprocess.Popen(
            [sys.executable, __file__, str(out), str(ROWS)],
            env={**os.environ, MARK: self.mark, "RAY_ADDRESS": "local"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def until(self, parts: int) -> None:
        """Waits until this process has written so many parts."""
        assert self.popen.stdout is not None
        while parts:
            line = self.popen.stdout.readline()
            assert line, f"the process ended: {self.said}"
            self.said += line
            parts -= line.startswith("part")

    def everyone(self, name: str = "") -> list[int]:
        """The driver and all that it started, daemons of Ray included: told by the mark in their environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes()
                if ours and name in (folder / "cmdline").read_text(errors="replace"):
                    found.append(int(folder.name))
            except OSError:  # gone meanwhile
                continue
        return found

    def kill(self, processes: list[int]) -> None:
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def end(self) -> str:
        output, _ = self.popen.communicate(timeout=240)
        self.said += output
        return self.said


@contextmanager
def process(out: Path) -> Iterator[Process]:
    running = Process(out)
    try:
        yield running
    finally:
        while left := running.everyone():
            running.kill(left)
        running.popen.communicate()


def written(out: Path) -> Counter[str]:
    """How often each id is in the parts, every one of which must be whole."""
    ids: Counter[str] = Counter()
    for part in out.glob("part-*"):
        ids.update(pq.read_table(part, columns=["id"])["id"].to_pylist())
    return ids


@pytest.mark.timeout(1200)
def test_killed_at_any_moment_it_goes_on_and_ends_with_every_row_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    moments = random.Random(seed := random.randrange(10**6))
    print("seed", seed)

    def moment(running: Process) -> None:
        running.until(moments.randint(1, PARTS // 6))
        time.sleep(moments.uniform(0, 0.3))

    with process(out) as running:
        moment(running)
        running.kill(running.everyone())
    assert max(written(out).values(), default=1) == 1
    assert 0 < len(written(out)) < ROWS

    # The driver alone, and its successor while the workers of the first may still be writing.
    with process(out) as first:
        moment(first)
        first.kill([first.popen.pid])
        first.popen.wait()
        with process(out) as second:
            moment(second)
            with pytest.raises(RunError, match="another process is writing here"), writing(str(out)):
                pass
            # Ctrl-C at a terminal reaches the whole group.
            os.killpg(second.popen.pid, signal.SIGINT)
            assert "KeyboardInterrupt" in second.end()
            assert second.popen.returncode != 0
    assert 0 < (before := len(written(out))) < ROWS

    with process(out) as last:
        last.until(1)
        actors = last.everyone("MapWorker")
        assert actors
        last.kill(actors)
        output = last.end()
    assert last.popen.returncode == 0, output
    assert f"resumed {before}" in output
    assert written(out) == Counter({f"r{i}": 1 for i in range(ROWS)})
    assert {p.name for p in out.iterdir() if not p.name.startswith("part-")} <= {".lock"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with ensure_ray(num_cpus=2, object_store_mb=200):
        yield


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@root_only
@pytest.mark.usefixtures("cluster")
def test_a_full_disk_says_so_leaves_nothing_half_written_and_resumes(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=1m") as out:
        with pytest.raises(StorageError, match="the disk is full; free some space"):
            stage(str(out), ROWS, noise)
        held = written(out)
        assert 0 < len(held) < ROWS
        assert {p.name for p in out.iterdir() if not p.name.startswith("part-")} <= {".lock"}
        subprocess.run(["mount", "-o", "remount,size=20m", str(out)], check=True)
        assert stage(str(out), ROWS, noise).resumed == len(held)
        assert written(out) == Counter({f"r{i}": 1 for i in range(ROWS)})


@root_only
@pytest.mark.usefixtures("cluster")
def test_a_read_only_file_system_says_so(tmp_path: Path) -> None:
    with mounted(tmp_path / "fixed", "ro") as out, pytest.raises(StorageError, match="read-only"):
        stage(str(out / "stage"), 10, noise)


@pytest.mark.usefixtures("cluster")
def test_no_permission_to_write_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("root may write everywhere")
    with pytest.raises(StorageError, match="no permission to write there"):
        stage(str(tmp_path), 10, noise)
    with pytest.raises(StorageError, match="no permission to write there"):
        stage(str(tmp_path / "stage"), 10, noise)


def test_a_part_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"nothing")
    with pytest.raises(StorageError, match=r"part-0\.parquet cannot be read .*; delete it and run again"):
        read_stage(str(tmp_path))


def told(progress: Progress) -> None:
    if progress.rows:
        print("part", flush=True)


if __name__ == "__main__":
    with ensure_ray(num_cpus=2, object_store_mb=200):
        result = stage(sys.argv[1], int(sys.argv[2]), slowly, told)
        print("resumed", result.resumed, flush=True)
