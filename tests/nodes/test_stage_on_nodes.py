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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raylets import Raylets, kill, node_of_actor, program_environment

from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig, StageResult

SCHEMA = pa.schema([("id", pa.string()), ("node", pa.string()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=20, min_actors=3, max_actors=3), rows_per_file=20)
FED = replace(CONFIG, placement=Placement(batch=20, min_actors=3, max_actors=3, cpus=0.5, decoders=2))
"""Tasks prepare the rows, in other processes than those of the actors."""
ROWS = 1200
ATTEMPTS = 3
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


def prepared(rows: pa.Table) -> pa.Table:
    time.sleep(0.1)
    return rows


def stage(
    out: Path, meeting: str, on_progress: Callable[[Progress], None] | None = None, config: StageConfig = CONFIG
) -> StageResult:
    return OnRay().run(
        source(),
        slowly,
        partial(node_of_actor, meeting, 3),
        str(out),
        id_column="id",
        config=config,
        on_progress=on_progress,
        prepare=prepared if config is FED else None,
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


class Once:
    """Calls `action` at the first progress after all three nodes have written rows; `rows`: how many were done then."""

    def __init__(self, out: Path, action: Callable[[], object]) -> None:
        self.out, self.action = out, action
        self.rows: int | None = None

    def __call__(self, progress: Progress) -> None:
        if self.rows is None and len(rows_by_node(self.out)) == 3:
            self.rows = progress.rows
            self.action()


def stage_with(action: Callable[[], object], tmp_path: Path, config: StageConfig = CONFIG) -> tuple[Once, StageResult]:
    """A stage in which `action` was called, or the last of some in which it was not.

    Ray does not promise to spread three actors over three nodes: on a busy machine two may share one."""
    for attempt in range(ATTEMPTS):
        out, meeting = tmp_path / f"stage-{attempt}", tmp_path / f"meeting-{attempt}"
        meeting.mkdir()
        once = Once(out, action)
        result = stage(out, str(meeting), once, config)
        if once.rows is not None:
            break
    return once, result


BOTH = pytest.mark.parametrize("config", [CONFIG, FED], ids=["actors prepare", "tasks prepare"])


@BOTH
def test_a_node_dies(nodes: Raylets, third: str, tmp_path: Path, config: StageConfig) -> None:
    killing, result = stage_with(lambda: nodes.kill(third), tmp_path, config)
    assert killing.rows is not None, f"nodes with rows: {rows_by_node(killing.out)}"
    assert killing.rows < ROWS / 2, "the node was killed too late to lose much"
    assert written(killing.out) == EACH_ONCE
    assert (result.rows, result.errors, result.resumed) == (ROWS, 0, 0)


@BOTH
def test_a_worker_dies_on_another_node(nodes: Raylets, third: str, tmp_path: Path, config: StageConfig) -> None:
    def kill_actor() -> None:
        actors = nodes.nodes[third].processes("MapWorker")
        assert actors
        kill(actors)

    killing, result = stage_with(kill_actor, tmp_path, config)
    assert (result.rows, result.errors) == (ROWS, 0)
    assert killing.rows is not None, f"nodes with rows: {rows_by_node(killing.out)}"
    assert killing.rows < ROWS / 2
    assert written(killing.out) == EACH_ONCE


def killed_driver(out: Path, meeting: Path) -> bool:
    """Whether a driver of its own was killed after all three nodes had written rows, before it ended."""
    meeting.mkdir()
    command = [sys.executable, __file__, str(out), str(meeting)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=program_environment()) as driver:
        assert driver.stdout is not None
        for _ in driver.stdout:
            if len(rows_by_node(out)) == 3:
                driver.send_signal(signal.SIGKILL)
                return True
    return False


def test_the_driver_dies(nodes: Raylets, third: str, tmp_path: Path) -> None:
    tries = ((tmp_path / f"stage-{attempt}", tmp_path / f"meeting-{attempt}") for attempt in range(ATTEMPTS))
    killed = next((paths for paths in tries if killed_driver(*paths)), None)
    assert killed is not None, "no driver's actors were on three nodes"
    out, meeting = killed
    before = written(out)
    assert 0 < len(before) < ROWS / 2
    assert max(before.values()) == 1
    result = stage(out, str(meeting))
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
