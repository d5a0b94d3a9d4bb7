"""What the process that starts a stage holds of rows that no actor has taken yet does not grow with the rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from c2b_ray.pipelines import few_waiting
from c2b_ray.pipelines.few_waiting import FewWaiting
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.ray_stage import OnRay
from c2b_ray.pipelines.stage import Rows, StageConfig
from c2b_ray.store.parts import read_stage

SCHEMA = pa.schema([("id", pa.string())])


def same(batch: pa.Table, role: str) -> pa.Table:
    return batch.select(["id"])


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks waited for the actors, each time that Ray asked whether their source may go on."""
    seen: list[int] = []
    real = FewWaiting.can_add_input

    def look(self: FewWaiting, op: object) -> bool:
        seen.extend(pool.total_enqueued_input_blocks() for source, pool in self._fed.items() if source is op)
        return real(self, op)

    monkeypatch.setattr(FewWaiting, "can_add_input", look)
    return seen


def test_few_blocks_wait_for_actors_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: list[int]
) -> None:
    monkeypatch.setattr(few_waiting, "FEWEST", 4)
    monkeypatch.setattr(few_waiting, "FOR_EACH_ACTOR", 1)
    ids = [f"r{i}" for i in range(96)]
    rows = Rows([pa.table({"id": ids[start : start + 4]}) for start in range(0, 96, 4)])
    config = StageConfig(SCHEMA, Placement(batch=2), rows_per_file=2)
    assert OnRay().run(rows, same, str, str(tmp_path), id_column="id", config=config).rows == 96
    assert sorted(read_stage(str(tmp_path))["id"].to_pylist()) == sorted(ids)
    # Before the actor has loaded nothing holds the source back but this; a task that ran then adds its two blocks.
    assert 4 <= max(waiting) <= 4 + 2 * 2 * 2, waiting
