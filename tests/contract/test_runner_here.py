"""The contract of runners, for the one that runs stages in this process; and what holds for it alone."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runner_contract import RunnerContract, ids_in, ids_of, left_behind, named, rows, run
from toy_preparations import deadly, erring, signed

from c2b_ray.engine.here import InProcess
from c2b_ray.engine.rows import SecondTable
from c2b_ray.engine.stage import Prepare, Rows, StageConfig, StageResult
from c2b_ray.errors import SourceError
from c2b_ray.storage.parts import read_stage


@pytest.fixture
def runner() -> InProcess:
    return InProcess()


class Fed(InProcess):
    """Prepares every stage's rows in two other processes."""

    def run(self, *args: Any, config: StageConfig, prepare: Prepare | None = None, **kwargs: Any) -> StageResult:
        config = replace(config, placement=replace(config.placement, decoders=2))
        return super().run(*args, config=config, prepare=prepare or as_it_is, **kwargs)


def as_it_is(rows: pa.Table) -> pa.Table:
    return rows


class TestFed(RunnerContract):
    @pytest.fixture
    def runner(self) -> InProcess:
        return Fed()

    def test_other_processes_prepare(self, runner: InProcess, tmp_path: Path) -> None:
        also = SecondTable(str(tmp_path / "second"), pa.schema([("id", pa.string()), ("pid", pa.int64())]), "id")
        run(runner, rows(200), tmp_path / "first", prepare=signed, also=also)
        pids = set(read_stage(also.out)["pid"].to_pylist())
        assert 1 <= len(pids) <= 2
        assert os.getpid() not in pids

    def test_a_row_that_ends_its_process_is_an_error_and_no_other_is_lost(
        self, runner: InProcess, tmp_path: Path
    ) -> None:
        run(runner, rows(200), tmp_path, erring, prepare=deadly)
        table = read_stage(str(tmp_path))
        assert ids_in(tmp_path) == ids_of(200)
        errors = {row["id"]: row["error"] for row in table.to_pylist() if row["error"]}
        assert set(errors) == {"r00017", "r00018", "r00150"}
        assert "exit status 3" in errors["r00017"]
        assert "SIGKILL" in errors["r00150"]

    def test_what_a_preparation_raises_arrives_as_itself(self, runner: InProcess, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"^r00040 is not liked$"):
            run(runner, rows(200), tmp_path, prepare=disliking)
        assert run(runner, rows(200), tmp_path).resumed % 16 == 0
        assert ids_in(tmp_path) == ids_of(200)


def disliking(batch: pa.Table) -> pa.Table:
    if "r00040" in batch["id"].to_pylist():
        raise SourceError("r00040 is not liked")
    return batch


class TestHere(RunnerContract):
    def test_an_interrupt_keeps_what_was_answered_and_begins_no_other_batch(
        self, runner: InProcess, tmp_path: Path
    ) -> None:
        begun: list[int] = []

        def step(batch: pa.Table, role: str) -> pa.Table:
            begun.append(batch.num_rows)
            if len(begun) == 5:
                raise KeyboardInterrupt  # as where Ctrl-C meets the thread that waits for this batch
            return named(batch, role)

        with pytest.raises(KeyboardInterrupt):
            run(runner, rows(5000), tmp_path, step)
        assert left_behind(tmp_path) == []
        assert ids_in(tmp_path) == ids_of(4 * 16)
        time.sleep(0.1)
        assert len(begun) < 10
        assert run(runner, rows(5000), tmp_path).resumed == 4 * 16
        assert ids_in(tmp_path) == ids_of(5000)

    def test_a_source_is_read_ahead_and_never_all_at_once(self, runner: InProcess, tmp_path: Path) -> None:
        given, answered, most = [0], [0], [0]

        def expand(block: pa.Table) -> Iterator[pa.Table]:
            for start in range(0, 4000, 16):
                given[0] += 16
                most[0] = max(most[0], given[0] - answered[0])
                yield pa.table({"id": ids_of(4000)[start : start + 16]})

        def step(batch: pa.Table, role: str) -> pa.Table:
            answered[0] += batch.num_rows
            return named(batch, role)

        run(runner, Rows([pa.table({"block": [0]})], expand), tmp_path, step)
        assert ids_in(tmp_path) == ids_of(4000)
        assert 16 < most[0] <= 16 * 8
