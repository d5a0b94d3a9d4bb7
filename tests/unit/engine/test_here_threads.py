"""Threads of a stage in this process: one more prepares than calls the model, so that a wait leaves no core idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from c2b_ray.engine.here import InProcess
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.storage import files
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False)])


class Inside:
    """Counts the threads in a function, and the most at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.005)
        yield
        with self._lock:
            self.now -= 1


@pytest.mark.parametrize("threads", [1, 2])
def test_one_more_prepares_than_calls_the_model(tmp_path: Path, threads: int) -> None:
    preparing, answering = Inside(), Inside()
    waiting_for_more = threading.Barrier(threads + 1, timeout=60)
    met: list[int] = []

    def prepare(rows: pa.Table) -> pa.Table:
        with preparing.counted():
            if not met:
                waiting_for_more.wait()  # breaks where fewer prepare at once
                met.append(1)
        return rows

    assert run(tmp_path, threads, prepare, answering) == 40
    assert (preparing.most, answering.most) == (threads + 1, threads)


def test_what_needs_no_preparation_has_no_thread_more(tmp_path: Path) -> None:
    answering = Inside()
    assert run(tmp_path, 2, None, answering) == 40
    assert answering.most == 2


@pytest.mark.parametrize(("seconds", "row_bytes", "most"), [(0.0, 1, 2), (0.25, 1, 1), (0.0, 2**18, 1)])
def test_batches_that_are_fast_and_small_are_prepared_several_at_once_and_answered_one_by_one(
    tmp_path: Path, seconds: float, row_bytes: int, most: int
) -> None:
    prepared: list[int] = []
    answered: list[list[str]] = []

    def prepare(rows: pa.Table) -> pa.Table:
        prepared.append(rows.num_rows)
        return rows.append_column("pixels", pa.array([bytes(row_bytes)] * rows.num_rows))

    def step(rows: pa.Table, role: None) -> pa.Table:
        time.sleep(seconds)
        answered.append(rows["id"].to_pylist())
        return rows

    batch = 32
    table = pa.table({"id": [f"{n:04}" for n in range(20 * batch)]}, SCHEMA)
    config = StageConfig(SCHEMA, Placement(batch=batch, threads=1))
    out = str(tmp_path)
    InProcess().run(Rows.of(table, batch), step, lambda: None, out, id_column="id", config=config, prepare=prepare)
    assert max(prepared) == most * batch
    ids = table["id"].to_pylist()
    assert sorted(answered) == [ids[start : start + batch] for start in range(0, len(ids), batch)]
    assert sorted(read_stage(out)["id"].to_pylist()) == ids


def test_an_error_among_batches_that_are_prepared_at_once_keeps_the_answers_before_it(tmp_path: Path) -> None:
    def step(rows: pa.Table, role: None) -> pa.Table:
        if "0030" in rows["id"].to_pylist():
            raise ValueError("row 30")
        return rows

    table = pa.table({"id": [f"{n:04}" for n in range(40)]}, SCHEMA)
    config = StageConfig(SCHEMA, Placement(batch=1, threads=1))
    with pytest.raises(ValueError, match="row 30"):
        InProcess().run(
            Rows.of(table, 1), step, lambda: None, str(tmp_path), id_column="id", config=config, prepare=lambda row: row
        )
    assert read_stage(str(tmp_path))["id"].to_pylist() == table["id"].to_pylist()[:30]


def run(folder: Path, threads: int, prepare: Callable[[pa.Table], pa.Table] | None, answering: Inside) -> int:
    """Runs a stage of 40 rows, one a batch; returns how many it has written."""

    def step(rows: pa.Table, role: None) -> pa.Table:
        with answering.counted():
            return rows

    table = pa.table({"id": [f"{n:02}" for n in range(40)]}, SCHEMA)
    out = str(folder / "out")
    files.make_directory(out)
    config = StageConfig(SCHEMA, Placement(batch=1, threads=threads))
    result = InProcess().run(Rows([table]), step, lambda: None, out, id_column="id", config=config, prepare=prepare)
    assert read_stage(out)["id"].to_pylist() == table["id"].to_pylist()  # the order of the rows
    return result.rows
