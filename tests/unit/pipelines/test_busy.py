"""What a stage waits for, as its parts' shares of the time say it."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from c2b_ray.pipelines.busy import Busy, BusyClock
from c2b_ray.pipelines.here import Here
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.progress import Progress
from c2b_ray.pipelines.stage import Rows, StageConfig, StageResult, measured

SCHEMA = pa.schema([("id", pa.string())])


def test_a_share_is_of_all_workers_of_a_part_from_its_first_work_on() -> None:
    clock = BusyClock(decoders=2, threads=1)
    time.sleep(0.2)  # nothing has begun: this counts for nobody
    with clock.at_work("decoding"):
        time.sleep(0.2)
    busy = clock.busy()
    assert (busy.reading, busy.model) == (0.0, 0.0)
    assert 0.4 < busy.decoding < 0.55  # one of two works


def test_the_busiest_part_is_the_limit() -> None:
    assert Busy(0.2, 0.97, 0.5).limit == "decoding"
    assert Busy(0.2, 0.5, 0.93).limit == "model"
    assert Busy(0.2, 0.5, 0.8).limit is None


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
    result = Here().run(
        rows, slowly, lambda: None, out, id_column="id", config=config, on_progress=seen.append, prepare=as_it_is
    )
    assert result.busy is not None
    assert result.busy.limit == "model"
    assert seen[-1].busy is not None
    entry = measured(measured(None, StageResult(40, 0, 0, 2.0)), result)
    assert entry["rows"] == 200
    assert entry["busy"]["model"] >= 0.9
    assert entry["rows_per_second"] == round(200 / (2 + result.seconds), 1)
