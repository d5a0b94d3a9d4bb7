"""Builds a dataset on 1, 2 and 4 logical nodes of the same cores: compares its rows and the CPU of each part.

    PYTHONPATH=tests/support python bench/dataset_nodes.py [--nodes 1 2 4] [--draws 40000] [--actors 4] [--repeats 1]

Each node is a Ray node with its own daemons and processes, all on this machine. The world's renderer draws and a
classifier of a few pixels answers, in --actors processes spread over the nodes. So the models' work is the same for
every number of nodes, and the difference is the cost of the nodes. With --actors 0 there is one actor per node. The
script prints for each number of nodes:

    start_cpu_s                 CPU of all processes until every actor is at work: start, imports and loading
    cpu_ms_a_draw               CPU of all processes from then until the last shard is drawn, over the draws made then
    by                          of it the driver, the daemons (GCS, raylets), the actors and Ray's other processes
    idle_cpu_ms_a_s             CPU of the same cluster in a second before it has work
    less_idle                   `cpu_ms_a_draw` without the idle cluster's CPU in that time
    second_pass_cpu_ms_a_draw   CPU of everything after the last shard is drawn, over all draws
    whole_cpu_ms_a_draw         CPU from the first call to the end, starts included, over all draws
    rows_sha256                 a hash of all rows and drops
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dataset_build import LABELS, load_models
from ray import cloudpickle
from raylets import Hardware, Raylets, await_nodes, raylets

from c2b_ray.audits.dataset.directory import building
from c2b_ray.audits.dataset.shard_files import PlannedCaptions, write_captions
from c2b_ray.audits.dataset.shards.on_ray import RayWorkers
from c2b_ray.audits.dataset.shards.passes import BuildPasses
from c2b_ray.audits.dataset.shards.workers import Recipe, Task
from c2b_ray.audits.dataset.steps.plan import NumberedCaptions, Plan
from c2b_ray.config.placement import PlacementConfig
from c2b_ray.engine.cluster import ADDRESS, ensure_ray

TICK = os.sysconf("SC_CLK_TCK")
SETTLED_S = 5.0
DRAWS_PER_CAPTION, SHARD_DRAWS, BATCH = 1000, 250, 32
GROUPS = {"gcs_server": "daemons", "raylet/raylet": "daemons", "ray::Hand": "actors"}
"""Text in a command line → the group of its process. Ray's agents, monitors and idle workers are the others."""


@dataclass(frozen=True)
class Snapshot:
    """The group and the CPU seconds so far of each process of a cluster, and of this process."""

    at: float
    draws: int
    seconds: dict[int, tuple[str, float]]

    @staticmethod
    def of(cluster: Raylets, draws: int = 0) -> Snapshot:
        seconds = {os.getpid(): ("driver", time.process_time())}
        for pid in {pid for node in cluster.nodes.values() for pid in node.processes()}:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # the process has ended
                continue
            group = next((group for name, group in GROUPS.items() if name in command), "others")
            seconds[pid] = group, (int(fields[11]) + int(fields[12])) / TICK
        return Snapshot(time.monotonic(), draws, seconds)

    def since(self, before: Snapshot) -> Counter[str]:
        """Returns the CPU seconds that each group spent since the earlier snapshot."""
        spent: Counter[str] = Counter()
        for pid, (group, seconds) in self.seconds.items():
            spent[group] += seconds - before.seconds.get(pid, ("", 0.0))[1]  # type: ignore[assignment]
        return spent


def measured(nodes: int, actors: int, draws: int, idle: float) -> dict[str, Any]:
    hardware = Hardware(cpus=actors / nodes)
    names = [f"node{number}" for number in range(1, nodes)]
    shape = {"stages": {"shards": {"min_actors": actors, "max_actors": actors, "cpus": 1}}}
    with ExitStack() as stack:
        cluster = stack.enter_context(raylets(hardware, dict.fromkeys(names, hardware)))
        os.environ[ADDRESS] = cluster.address
        stack.callback(os.environ.pop, ADDRESS)
        stack.enter_context(ensure_ray())
        await_nodes(nodes)
        time.sleep(SETTLED_S)
        before = Snapshot.of(cluster)
        time.sleep(idle)
        after = Snapshot.of(cluster)
        idle_share = after.since(before).total() / (after.at - before.at)
        out = Path(stack.enter_context(tempfile.TemporaryDirectory()), "dataset")
        moments = _built(out, draws, PlacementConfig.model_validate(shape), cluster, actors)
        digest = _digest(out)
    return _costs(moments, idle_share) | {"rows_sha256": digest}


def _costs(moments: list[Snapshot], idle_share: float) -> dict[str, Any]:
    began, at_work, drawn, ended = moments
    of_draws, counted = drawn.since(at_work), drawn.draws - at_work.draws
    seconds = drawn.at - at_work.at

    def a_draw(spent: float, draws: int = counted) -> float:
        return round(1000 * spent / draws, 4)

    return {
        "draws": drawn.draws,
        "counted": counted,
        "seconds": round(seconds, 1),
        "start_cpu_s": round(at_work.since(began).total(), 2),
        "cpu_ms_a_draw": a_draw(of_draws.total()),
        "by": {group: a_draw(spent) for group, spent in sorted(of_draws.items())},
        "idle_cpu_ms_a_s": round(1000 * idle_share, 1),
        "less_idle": a_draw(of_draws.total() - idle_share * seconds),
        "second_pass_cpu_ms_a_draw": a_draw(ended.since(drawn).total(), ended.draws),
        "whole_cpu_ms_a_draw": a_draw(ended.since(began).total(), ended.draws),
    }


def _built(out: Path, draws: int, placement: PlacementConfig, cluster: Raylets, actors: int) -> list[Snapshot]:
    """Builds a dataset; returns snapshots of its start, of when all actors had work, of when all shards were drawn, and
    of its end."""
    captions = -(-draws // DRAWS_PER_CAPTION)
    with building(str(out)) as directory:
        texts = ((LABELS[0], f"a photo of a boat, number {number}", None) for number in range(captions))
        write_captions(directory.files, NumberedCaptions(DRAWS_PER_CAPTION).tables(texts))
        plan = Plan("nodes", captions * DRAWS_PER_CAPTION, SHARD_DRAWS, BATCH)
        recipe = Recipe(directory.files, plan, partial(load_models, True, 0.1), 1, 0, 4, 1000)
        moments = [Snapshot.of(cluster)]
        workers = RayWorkers(recipe, placement)
        passes = BuildPasses(recipe, workers, PlannedCaptions(directory.files))

        def tell(done: int, total: int, sums: dict[str, float]) -> None:
            # An actor at work on a shard leaves a note. Once all actors have loaded their models, there is one note for
            # each, except for the actor whose shard has just ended.
            if len(moments) == 1 and sum(1 for _ in out.glob("work/*/busy-*")) >= max(1, actors - 1):
                moments.append(Snapshot.of(cluster, done))

        passes.run_first(tell)
        moments.append(Snapshot.of(cluster, plan.draws))
        passes.run_second(lambda *progress: None)
        workers.run((Task("listed", group) for group in range(plan.groups)), lambda *done: None, lambda sums: None)
        moments.append(Snapshot.of(cluster, plan.draws))
        workers.close()
    if len(moments) != 4:
        raise RuntimeError(f"{draws} draws were over before {actors} actors were at work; give more --draws")
    return moments


def _digest(out: Path) -> str:
    digest = hashlib.sha256()
    for folder in ("shards", "drops"):
        for path in sorted((out / folder).iterdir()):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--draws", type=int, default=40_000)
    parser.add_argument("--actors", type=int, default=4, help="number of actors; 0: one per node")
    parser.add_argument("--repeats", type=int, default=1, help="how often each number of nodes is measured")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds for which the idle cluster is measured")
    args = parser.parse_args()
    # SIGTERM must run the `finally` blocks, since the nodes have their own sessions and would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cloudpickle.register_pickle_by_value(sys.modules["dataset_build"])
    for _ in range(args.repeats):
        for nodes in args.nodes:
            result = measured(nodes, args.actors or nodes, args.draws, args.idle)
            print("nodes", nodes, json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
