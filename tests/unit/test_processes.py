"""Processes that call a function: what the death of one says of a row, and what it does not."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.processes import TRIES_ALONE, TRIES_KILLED, Processes


class Dying:
    """Returns rows as they are. The first `times` processes that are to answer row `b`, or to load this, are killed."""

    def __init__(self, notes: Path, times: int, how: str, loading: bool = False) -> None:
        self.notes, self.times, self.how, self.loading = notes, times, how, loading

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        if self.loading:
            self._die()

    def __call__(self, rows: pa.Table) -> pa.Table:
        if not self.loading and "error" not in rows.column_names and "b" in rows["id"].to_pylist():
            self._die()
        return rows

    def _die(self) -> None:
        if len(list(self.notes.iterdir())) < self.times:
            (self.notes / str(os.getpid())).touch()
            if self.how == "crash":
                os._exit(3)
            os.kill(os.getpid(), signal.SIGBUS if self.how == "no room" else signal.SIGKILL)


def imported(rows: pa.Table) -> pa.Table:
    pa.array(["a list", None])
    return pa.table({"pandas": ["pandas" in sys.modules]})


def large(rows: pa.Table) -> pa.Table:
    """Returns 40 MB, as much as a batch for a GPU, and the pages that this process has got from the system so far."""
    pixels = np.ones((256, 160_000), np.uint8)
    column = pa.Array.from_buffers(pa.binary(160_000), 256, [None, pa.py_buffer(pixels)])
    return pa.table({"pixels": column, "pages": [resource.getrusage(resource.RUSAGE_SELF).ru_minflt] * 256})


def threads(rows: pa.Table) -> pa.Table:
    before = set(os.listdir("/proc/self/task"))
    import scipy.linalg  # noqa: F401 — with a library of linear algebra of its own

    return pa.table({"threads": [len(set(os.listdir("/proc/self/task")) - before)]})


ROWS = pa.table({"id": ["a", "b", "c"]})


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.fixture
def answer() -> Callable[[Dying], list[dict[str, str]]]:
    def ask(function: Dying) -> list[dict[str, str]]:
        with Processes(function, 1, 1) as processes:
            rows: list[dict[str, str]] = processes.submit(ROWS).result().to_pylist()
            assert processes.cannot is None
            return rows

    return ask


def test_a_row_is_not_blamed_for_processes_that_are_killed_from_outside(answer, notes):
    # One over the batch, then as many over the row alone as may be killed, less one.
    assert answer(Dying(notes, TRIES_KILLED, "kill")) == ROWS.to_pylist()
    assert len(list(notes.iterdir())) == TRIES_KILLED


def test_a_row_over_which_processes_crash_is_an_error_after_a_second_try(answer, notes):
    rows = answer(Dying(notes, 100, "crash"))
    assert [row["id"] for row in rows if row.get("error")] == ["b"]
    assert "exit status 3" in rows[1]["error"]
    assert len(list(notes.iterdir())) == 1 + TRIES_ALONE


def test_a_row_is_not_blamed_for_memory_that_the_system_does_not_have(notes):
    """A full disk behind a deleted file, or no page for memory without a name, ends a process by SIGBUS."""
    with Processes(Dying(notes, TRIES_KILLED, "no room"), 1, 1) as processes:
        assert processes.submit(ROWS).result().to_pylist() == ROWS.to_pylist()


def test_processes_that_are_killed_while_they_start_are_replaced(answer, notes):
    assert answer(Dying(notes, 3, "kill", loading=True)) == ROWS.to_pylist()


def test_a_function_that_ends_each_process_is_called_by_a_thread_of_this_one(notes):
    with Processes(Dying(notes, 1, "crash", loading=True), 1, 1) as processes:
        assert processes.submit(ROWS).result().to_pylist() == ROWS.to_pylist()
        assert "exit status 3" in (processes.cannot or "")


def test_a_worker_does_not_import_pandas_for_pyarrow():
    with Processes(imported, 1, 1) as processes:
        assert processes.submit(ROWS).result().to_pylist() == [{"pandas": False}]


def test_a_worker_starts_no_threads_for_linear_algebra():
    with Processes(threads, 1, 1) as processes:
        assert processes.submit(ROWS).result()["threads"].to_pylist() == [0]


def test_a_worker_keeps_the_memory_of_its_batches():
    with Processes(large, 1, 2) as processes:
        pages = [processes.submit(ROWS).result()["pages"][0].as_py() for _ in range(8)]
    per_batch = 256 * 160_000 / resource.getpagesize()
    assert pages[-1] - pages[3] < 0.1 * 4 * per_batch


def test_results_come_through_a_deleted_file_where_memory_must_have_a_name(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with Processes(imported, 1, 1) as processes:
        assert processes.submit(ROWS).result().to_pylist() == [{"pandas": False}]
        assert processes.cannot is None


def larger(rows: pa.Table) -> pa.Table:
    """Returns as many bytes as each row asks for, of its number."""
    return pa.table({"data": [bytes([row["n"]]) * row["size"] for row in rows.to_pylist()]})


def test_deleted_files_grow_and_leave_nothing_in_the_folder(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sizes = [10, 3 << 20, 100, 5 << 20, 0]
    with Processes(larger, 2, 3) as processes:
        for n, size in enumerate(sizes * 3):
            found = processes.submit(pa.table({"n": [n], "size": [size]})).result()
            assert found["data"][0].as_py() == bytes([n]) * size
            del found
        assert list(tmp_path.iterdir()) == []


def test_a_full_disk_behind_deleted_files_is_said_and_no_row_is_blamed(tmp_path):
    """A real one: 2 MB, mounted for this process alone."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mounting a small disk needs root")
    (tmp_path / "disk").mkdir()
    program = (
        "import os, pyarrow as pa, c2b_ray.processes as pool, test_processes\n"
        "del os.memfd_create\n"
        "with pool.Processes(test_processes.larger, 1, 1) as processes:\n"
        "    print(processes.submit(pa.table({'n': [1, 2], 'size': [9, 4 << 20]})).result())"
    )
    inside = f'mount -t tmpfs -o size=2m tmpfs {tmp_path / "disk"} && exec {sys.executable} -c "$PROGRAM"'
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", inside],
        env={**os.environ, "PROGRAM": program, "PYTHONPATH": path, "TMPDIR": str(tmp_path / "disk")},
        capture_output=True,
        text=True,
    )
    if "unshare" in ran.stderr and "Operation not permitted" in ran.stderr:
        pytest.skip("this container's root may not mount")
    said = f"again (SIGBUS), most often for want of memory, or of room in {tmp_path / 'disk'}"
    assert said in ran.stderr
