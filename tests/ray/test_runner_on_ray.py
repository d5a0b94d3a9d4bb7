"""The contract of runners, for the one that runs stages on Ray; and what holds for it alone."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import ray
import runner_contract
import toy_preparations
from ray import cloudpickle
from runner_contract import CONFIG, SCHEMA, RunnerContract, ids_in, ids_of, named, rows, run
from toy_preparations import deadly, erring, signed

from c2b_ray.engine.placement import Placement
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.rows import SecondTable
from c2b_ray.engine.stage import StageConfig
from c2b_ray.errors import ServiceError
from c2b_ray.storage.parts import read_stage


@pytest.fixture(scope="module", autouse=True)
def contract_travels_by_value() -> Iterator[None]:
    for module in (runner_contract, toy_preparations):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (runner_contract, toy_preparations):
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def runner() -> OnRay:
    return OnRay()


FED = StageConfig(SCHEMA, Placement(batch=16, cpus=0.3, decoders=2, threads=2), rows_per_file=32)


def test_tasks_prepare_what_actors_answer(runner: OnRay, tmp_path: Path) -> None:
    also = SecondTable(str(tmp_path / "second"), pa.schema([("id", pa.string()), ("pid", pa.int64())]), "id")

    def by_process(batch: pa.Table, role: str) -> pa.Table:
        return named(batch, str(os.getpid()))

    first = tmp_path / "first"
    assert run(runner, rows(200), first, by_process, config=FED, prepare=signed, also=also).rows == 200
    answering, preparing = read_stage(str(first)), read_stage(also.out)
    assert sorted(answering["id"].to_pylist()) == sorted(preparing["id"].to_pylist()) == ids_of(200)
    assert not set(answering["by"].to_pylist()) & {str(pid) for pid in preparing["pid"].to_pylist()}


def test_a_row_that_ends_its_task_is_an_error_and_no_other_is_lost(runner: OnRay, tmp_path: Path) -> None:
    run(runner, rows(100), tmp_path, erring, config=FED, prepare=deadly)
    assert ids_in(tmp_path) == ids_of(100)
    errors = {row["id"]: row["error"] for row in read_stage(str(tmp_path)).to_pylist() if row["error"]}
    assert set(errors) == {"r00017", "r00018"}
    assert "exit status 3" in errors["r00017"]


class TestOnRay(RunnerContract):
    def test_neither_lock_nor_writers_folder_is_in_a_readers_way(self, runner: OnRay, tmp_path: Path) -> None:
        run(runner, rows(60), tmp_path)
        assert ray.data.read_parquet(str(tmp_path)).count() == 60

    def test_an_actor_begins_the_next_block_before_the_last_one_ends(self, runner: OnRay, tmp_path: Path) -> None:
        def step(batch: pa.Table, role: threading.Barrier) -> pa.Table:
            role.wait()  # for a batch of another block: each has only one
            return named(batch, "")

        config = StageConfig(SCHEMA, Placement(batch=16, threads=2), rows_per_file=16)
        run(runner, rows(64, block=16), tmp_path, step, lambda: threading.Barrier(2, timeout=30), config)
        assert ids_in(tmp_path) == ids_of(64)

    def test_more_actors_than_processors_still_leave_one_to_read(self, runner: OnRay, tmp_path: Path) -> None:
        config = StageConfig(SCHEMA, Placement(batch=8, cpus=1.0, min_actors=3, max_actors=3), rows_per_file=8)
        assert run(runner, rows(60), tmp_path, config=config).rows == 60

    def test_a_bug_in_a_step_keeps_its_type_and_says_where(self, runner: OnRay, tmp_path: Path) -> None:
        with pytest.raises(KeyError, match="nope") as raised:
            run(runner, rows(20), tmp_path, lambda batch, role: batch["nope"])
        assert "In a worker of Ray" in raised.value.__notes__[0]

    def test_an_actor_that_always_dies_ends_the_stage(self, runner: OnRay, tmp_path: Path) -> None:
        config = StageConfig(SCHEMA, CONFIG.placement, rows_per_file=32, restarts=1)
        with pytest.raises(ServiceError, match="died 2 times over the same rows"):
            run(runner, rows(20), tmp_path, lambda batch, role: os._exit(1), config=config)
