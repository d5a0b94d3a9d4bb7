"""What a stage waits for, as its parts' shares of the time say it."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from c2b_ray.engine.here import InProcess
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import BusyClock, Progress, Record, WorkerSeconds, busy_of
from c2b_ray.engine.stage import Rows, StageConfig, StageResult, measured
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([("id", pa.string())])


def test_a_share_is_of_all_workers_of_a_kind_from_its_first_work_on() -> None:
    clock = BusyClock({"decoders": (2, ("reading", "decoding")), "threads": (1, ("model",))})
    time.sleep(0.2)  # nothing has begun: this counts for nobody
    assert clock.busy() is None
    with clock.at_work("decoders", "decoding"):
        time.sleep(0.2)
    busy = clock.busy()
    assert busy is not None
    assert (busy.reading, busy.model, busy.gpu) == (0.0, None, None)
    assert busy.decoding is not None
    assert 0.4 < busy.decoding < 0.55  # one of two works


def spent(seconds: float, workers: int, **parts: float) -> WorkerSeconds:
    return WorkerSeconds(workers, dict(parts), began=100.0 - seconds)


@pytest.mark.parametrize(
    ("parts", "gpu", "limit"),
    [
        ({"decoders": spent(10, 2, reading=0.4, decoding=19.0), "threads": spent(10, 1, model=5.0)}, None, "decoding"),
        # Processes that wait for a slow disk are as busy, and more cores would not help.
        ({"decoders": spent(10, 2, reading=15.0, decoding=4.6), "threads": spent(10, 1, model=5.0)}, None, "reading"),
        ({"decoders": spent(10, 2, reading=0.4, decoding=9.0), "threads": spent(10, 1, model=9.5)}, 0.4, "model"),
        ({"decoders": spent(10, 2, reading=0.4, decoding=9.0), "threads": spent(10, 1, model=9.3)}, 0.97, "gpu"),
        # Threads that do all in turn are busy together, and spend most of the time on one part.
        ({"threads": spent(10, 2, reading=0.2, decoding=7.0, model=12.0)}, None, "model"),
        ({"reader": spent(10, 1, reading=9.6), "threads": spent(10, 2, model=12.0)}, None, "reading"),
        ({"reader": spent(10, 1, reading=0.6), "threads": spent(10, 2, model=12.0)}, None, None),
    ],
)
def test_the_busiest_workers_spend_most_of_their_time_on_the_limit(
    parts: dict[str, WorkerSeconds], gpu: float | None, limit: str | None
) -> None:
    busy = busy_of([Record(parts, gpu)], now=100.0)
    assert busy is not None
    assert busy.limit == limit
    assert busy.record().get("limit") == limit


def test_processes_that_come_and_go_count_as_many_as_work_at_once() -> None:
    """A process that Ray starts anew for the next block must not make the others look idle."""
    records = [Record({"decoders": spent(began, 1, reading=0.0, decoding=9.0)}) for began in (20, 20, 10, 10)]
    together = busy_of(records, {"decoders": 2}, now=100.0)
    assert together is not None
    assert together.decoding == pytest.approx(36 / 40)
    assert [Record.loads(record.dumps()) for record in records] == records


def test_gpus_are_as_busy_as_they_are_on_average() -> None:
    two = busy_of([Record({"threads": spent(10, 1, model=5.0)}, share) for share in (0.2, 0.6)], now=100.0)
    assert two is not None
    assert (two.gpu, two.model) == (pytest.approx(0.4), 0.5)


def as_it_is(rows: pa.Table) -> pa.Table:
    return rows


def test_a_stage_whose_model_is_slow_says_that_it_waits_for_the_model(tmp_path: Path) -> None:
    def slowly(rows: pa.Table, role: None) -> pa.Table:
        time.sleep(0.05)
        return rows

    seen: list[Progress] = []
    rows = Rows([pa.table({"id": [f"{i}" for i in range(start, start + 4)]}) for start in range(0, 160, 4)])
    config = StageConfig(SCHEMA, Placement(batch=4, decoders=1))
    out = str(tmp_path / "out")
    result = InProcess().run(
        rows, slowly, lambda: None, out, id_column="id", config=config, on_progress=seen.append, prepare=as_it_is
    )
    assert result.busy is not None
    assert result.busy.limit == "model"
    assert seen[-1].busy is not None
    entry = measured(measured(None, StageResult(40, 0, 0, 2.0)), result)
    assert entry["rows"] == 200
    assert entry["busy"]["model"] >= 0.9
    assert entry["busy"]["limit"] == "model"
    assert entry["busy"]["decoding"] < 0.5
    assert entry["rows_per_second"] == round(200 / (2 + result.seconds), 1)


def test_a_stage_whose_threads_do_all_says_how_long_each_part_took(tmp_path: Path) -> None:
    def slowly(rows: pa.Table) -> pa.Table:
        time.sleep(0.005 * rows.num_rows)
        return rows

    def answer(rows: pa.Table, role: None) -> pa.Table:
        time.sleep(0.007)
        return rows

    table = pa.table({"id": [f"{i}" for i in range(160)]})
    config = StageConfig(SCHEMA, Placement(batch=4, threads=1))
    runner = InProcess()
    rows = Rows.of(table, 4)
    result = runner.run(rows, answer, lambda: None, str(tmp_path), id_column="id", config=config, prepare=slowly)
    assert result.busy is not None
    assert result.busy.limit == "decoding"
    assert result.busy.decoding is not None
    assert result.busy.model is not None
    assert result.busy.decoding > 2 * result.busy.model > 0.2
    assert read_stage(str(tmp_path))["id"].to_pylist() == table["id"].to_pylist()
