"""A stage on three nodes, of which one, a worker or the driver dies: every row is written once.

Run as a program, this file is a driver: `python test_stage_on_nodes.py OUT MEETING`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raylets import Raylets, kill, node_of_actor, program_environment

from c2b_ray.pipelines.cluster import ensure_ray
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.progress import Progress
from c2b_ray.pipelines.ray_stage import OnRay
from c2b_ray.pipelines.stage import Rows, StageConfig, StageResult

SCHEMA = pa.schema([("id", pa.string()), ("node", pa.string()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=20, min_actors=3, max_actors=3), rows_per_file=20)
ROWS = 1200
pytestmark = pytest.mark.timeout(900)


def slowly(batch: pa.Table, node: str) -> pa.Table:
    time.sleep(0.4)
    return named(batch, node)


def named(batch: pa.Table, node: str) -> pa.Table:
    nodes = pa.array([node] * batch.num_rows)
    return pa.table({"id": batch["id"], "node": nodes, "error": pa.nulls(batch.num_rows, pa.string())})


def source() -> Rows:
    ids = [f"r{i}" for i in range(ROWS)]
    return Rows([pa.table({"id": ids[i : i + 100]}) for i in range(0, ROWS, 100)])


def stage(out: Path, meeting: str, on_progress: Callable[[Progress], None] | None = None) -> StageResult:
    return OnRay().run(
        source(),
        slowly,
        partial(node_of_actor, meeting, 3),
        str(out),
        id_column="id",
        config=CONFIG,
        on_progress=on_progress,
    )


def written(out: Path) -> Counter[str]:
    """How often each id is in the parts, every one of which must be whole."""
    ids: Counter[str] = Counter()
    for part in out.glob("part-*"):
        ids.update(pq.read_table(part, columns=["id"])["id"].to_pylist())
    return ids


def rows_by_node(out: Path) -> Counter[str]:
    by: Counter[str] = Counter()
    for part in out.glob("part-*"):
        by.update(pq.read_table(part, columns=["node"])["node"].to_pylist())
    return by


EACH_ONCE = Counter({f"r{i}": 1 for i in range(ROWS)})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "stage"


class Once:
    """Calls `action` at the first progress after all three nodes have written rows; when that was."""

    def __init__(self, out: Path, action: Callable[[], object]) -> None:
        self.out, self.action = out, action
        self.rows: int | None = None

    def __call__(self, progress: Progress) -> None:
        if self.rows is None and len(rows_by_node(self.out)) == 3:
            self.rows = progress.rows
            self.action()


def test_a_node_dies(nodes: Raylets, third: str, out: Path, meeting: str) -> None:
    killing = Once(out, lambda: nodes.kill(third))
    result = stage(out, meeting, killing)
    assert killing.rows is not None
    assert killing.rows < ROWS / 2, "the node was killed too late to lose much"
    assert written(out) == EACH_ONCE
    assert (result.rows, result.resumed) == (ROWS, 0)


def test_a_worker_dies_on_another_node(nodes: Raylets, third: str, out: Path, meeting: str) -> None:
    def kill_actor() -> None:
        actors = nodes.nodes[third].processes("MapWorker")
        assert actors
        kill(actors)

    killing = Once(out, kill_actor)
    assert stage(out, meeting, killing).rows == ROWS
    assert killing.rows is not None
    assert killing.rows < ROWS / 2
    assert written(out) == EACH_ONCE


def test_the_driver_dies(nodes: Raylets, third: str, out: Path, meeting: str) -> None:
    command = [sys.executable, __file__, str(out), meeting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=program_environment()) as driver:
        assert driver.stdout is not None
        for _ in driver.stdout:
            if len(rows_by_node(out)) == 3:
                break
        else:
            pytest.fail("the driver ended before all nodes had written rows")
        driver.send_signal(signal.SIGKILL)
    before = written(out)
    assert 0 < len(before) < ROWS / 2
    assert max(before.values()) == 1
    result = stage(out, meeting)
    assert result.resumed >= len(before)
    assert written(out) == EACH_ONCE
    assert [name for name in os.listdir(out) if not name.startswith("part-")] == [".lock"]


def report(progress: Progress) -> Any:
    print(progress.rows, flush=True)


if __name__ == "__main__":
    from ray import cloudpickle

    for module in (__name__, "raylets"):
        cloudpickle.register_pickle_by_value(sys.modules[module])
    with ensure_ray():
        stage(Path(sys.argv[1]), sys.argv[2], report)
