"""The contract of runners, for the one that runs stages in this process; and what holds for it alone."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from runner_contract import RunnerContract, ids_in, ids_of, left_behind, named, rows, run

from c2b_ray.pipelines.here import Here
from c2b_ray.pipelines.stage import Rows


@pytest.fixture
def runner() -> Here:
    return Here()


class TestHere(RunnerContract):
    def test_an_interrupt_keeps_what_was_answered_and_begins_no_other_batch(self, runner: Here, tmp_path: Path) -> None:
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

    def test_a_source_is_read_ahead_and_never_all_at_once(self, runner: Here, tmp_path: Path) -> None:
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
