"""Kills one of the three nodes of a stage: counts lost and doubled rows, and times the gap without writes.

    PYTHONPATH=tests/support python bench/nodes.py [--rows N] [--seconds S]

Three raylets run on this machine, each with its own processes and Ray's default settings. Each node has one actor of
the stage. An actor sleeps --seconds for a batch of 20 rows, so that the nodes do not compete for this machine's cores.
The stage runs three times: undisturbed; with SIGKILL of every process of one node once all three have written rows; and
with the same kill when nine of ten rows are written, so that little remains except the work of the dead node.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
from ray import cloudpickle
from raylets import Hardware, Raylets, await_nodes, node_of_actor, raylets

from c2b_ray.engine.cluster import ADDRESS, ensure_ray
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([("id", pa.string()), ("node", pa.string()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=20, min_actors=3, max_actors=3), rows_per_file=20)
NODE = Hardware(cpus=2)
VICTIM = "third"


def slowly(batch: pa.Table, node: str, seconds: float) -> pa.Table:
    time.sleep(seconds)
    nodes = pa.array([node] * batch.num_rows)
    return pa.table({"id": batch["id"], "node": nodes, "error": pa.nulls(batch.num_rows, pa.string())})


class Watch:
    """Records when rows are written; kills the node `VICTIM` at a number of rows, once all three nodes have written."""

    def __init__(self, out: str, cluster: Raylets, kill_at: int | None) -> None:
        self.out, self.cluster, self.kill_at = out, cluster, kill_at
        self.moments = [time.monotonic()]
        self.killed: float | None = None
        self.rows, self.rows_before = 0, 0

    def __call__(self, progress: Progress) -> None:
        if progress.rows == self.rows:
            return  # rows that are computed and not yet written
        self.rows = progress.rows
        self.moments.append(time.monotonic())
        if self.kill_at is None or self.killed is not None or progress.rows < self.kill_at:
            return
        if len(rows_by_node(self.out)) == 3:
            self.cluster.kill(VICTIM)
            self.killed, self.rows_before = time.monotonic(), progress.rows

    def longest(self, after: float, until: float = float("inf")) -> float:
        """Returns the longest time without a new row, of those that end between two moments."""
        pairs = zip(self.moments, self.moments[1:], strict=False)
        return max((b - a for a, b in pairs if after < b <= until), default=0.0)


def rows_by_node(out: str) -> Counter[str]:
    return Counter(read_stage(out, ["node"])["node"].to_pylist())


def run(out: str, rows: int, seconds: float, watch: Watch) -> dict[str, object]:
    ids = [f"r{i}" for i in range(rows)]
    source = Rows([pa.table({"id": ids[i : i + 100]}) for i in range(0, rows, 100)])
    step = partial(slowly, seconds=seconds)
    role = partial(node_of_actor, f"{out}-meeting", 3)
    os.mkdir(f"{out}-meeting")
    result = OnRay().run(source, step, role, out, id_column="id", config=CONFIG, on_progress=watch)
    times = Counter(read_stage(out, ["id"])["id"].to_pylist())
    first = watch.moments[1]
    numbers: dict[str, object] = {
        "seconds": round(result.seconds, 1),
        "rows": rows,
        "lost": len(set(ids) - set(times)),
        "doubled": sum(n > 1 for n in times.values()),
        "by_node": dict(rows_by_node(out)),
    }
    if watch.killed is None:
        return {**numbers, "longest_gap": round(watch.longest(first), 1)}
    return {
        **numbers,
        "rows_before_kill": watch.rows_before,
        "longest_gap_before": round(watch.longest(first, watch.killed), 1),
        "longest_gap_after": round(watch.longest(watch.killed), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=0.4, help="seconds per batch of 20 rows")
    args = parser.parse_args()
    for module in ("__main__", "raylets"):
        cloudpickle.register_pickle_by_value(sys.modules[module])
    with raylets(NODE, {"second": NODE, VICTIM: NODE}) as cluster, tempfile.TemporaryDirectory() as folder:
        os.environ[ADDRESS] = cluster.address
        with ensure_ray():
            for name, kill_at in (("undisturbed", None), ("killed", 1), ("killed_late", args.rows * 9 // 10)):
                if VICTIM not in cluster.nodes:
                    cluster.add(VICTIM, NODE)
                await_nodes(3)
                out = str(Path(folder, name))
                numbers = run(out, args.rows, args.seconds, Watch(out, cluster, kill_at))
                print(json.dumps({name: numbers}), flush=True)


if __name__ == "__main__":
    main()
