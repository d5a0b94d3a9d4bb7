"""Measures what the number of shards costs the driver of a build: CPU per shard, with and without nodes, and listings.

    PYTHONPATH=tests/support python bench/dataset_scale.py [--shards 1000 4000 16000] [--nodes 1 4 8] [--tasks 400]

A shard has four draws of models that do almost nothing. What remains is the cost of a shard itself: its task, its
files, its part of the second pass and its line of the manifest. `here` is a build in one process, by step. With nodes,
each is a Ray node with its own processes, all on this machine; the CPU of the driver is measured apart from that of
Ray's head (GCS and raylet) and of the workers. `saturates` is the number of draws per second, in shards of 2,000 draws,
that keeps one core of the driver busy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from dataset_build import LABELS, load_models
from ray import cloudpickle
from raylets import Hardware, Raylets, await_nodes, raylets

from c2b_ray.audits.dataset.directory import building
from c2b_ray.audits.dataset.shard_files import PlannedCaptions, write_captions
from c2b_ray.audits.dataset.shards.on_ray import RayWorkers
from c2b_ray.audits.dataset.shards.passes import BuildPasses, LocalWorkers, ThreadWorkers, state_of
from c2b_ray.audits.dataset.shards.workers import Recipe, Task
from c2b_ray.audits.dataset.steps.plan import NumberedCaptions, Plan
from c2b_ray.config.placement import PlacementConfig
from c2b_ray.engine.cluster import ADDRESS, ensure_ray

SHARD_DRAWS, USUAL_DRAWS = 4, 2000
DAEMONS = ("gcs_server", "raylet/raylet")
TICK = os.sysconf("SC_CLK_TCK")


def built(out: str, shards: int, workers_of: Any) -> dict[str, float]:
    """Builds a dataset; returns the CPU-ms per shard of this process, by step, and the seconds in all."""
    with building(out) as directory:
        texts = ((LABELS[0], f"a photo of a boat, number {number}", None) for number in range(shards))
        write_captions(directory.files, NumberedCaptions(SHARD_DRAWS).tables(texts))
        plan = Plan("scale", shards * SHARD_DRAWS, SHARD_DRAWS, SHARD_DRAWS)
        recipe = Recipe(directory.files, plan, partial(load_models, False, 0.25), 1, 0, 4, 1000)
        workers: LocalWorkers = workers_of(recipe)
        result: dict[str, float] = {}
        began = time.monotonic()

        def step(name: str, run: Any) -> None:
            cpu, clock = time.process_time(), time.monotonic()
            run()
            result[f"{name}_cpu_ms"] = round(1000 * (time.process_time() - cpu) / shards, 3)
            result[f"{name}_s"] = round(time.monotonic() - clock, 2)

        passes = BuildPasses(recipe, workers, PlannedCaptions(directory.files))
        step("first", lambda: passes.run_first(lambda *progress: None))
        step("listing", lambda: state_of(directory.files, plan))
        step("second", lambda: passes.run_second(lambda *progress: None))
        listed: list[Any] = []
        tasks = (Task("listed", group) for group in range(plan.groups))
        step("manifest", lambda: workers.run(tasks, lambda task, rows: listed.extend(rows), lambda sums: None))
        result["manifest_bytes_a_shard"] = round(len(json.dumps(listed)) / shards)
        result["seconds"] = round(time.monotonic() - began, 2)
        workers.close()
    return result


def on_nodes(nodes: int, shards: int) -> dict[str, Any]:
    names = [f"node{number}" for number in range(1, nodes)]
    hardware = Hardware(cpus=1)
    placement = PlacementConfig.model_validate(
        {"stages": {"shards": {"min_actors": nodes, "max_actors": nodes, "cpus": 1}}}
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(raylets(hardware, dict.fromkeys(names, hardware)))
        os.environ[ADDRESS] = cluster.address
        stack.callback(os.environ.pop, ADDRESS)
        stack.enter_context(ensure_ray())
        await_nodes(nodes)
        out = stack.enter_context(tempfile.TemporaryDirectory())
        before = _daemons(cluster)
        result: dict[str, Any] = built(str(Path(out, "dataset")), shards, partial(_workers, placement))
        result["ray_daemons_cpu_ms"] = round(1000 * (_daemons(cluster) - before) / shards, 3)
    driver = sum(result[f"{name}_cpu_ms"] for name in ("first", "second", "manifest"))
    result["driver_cpu_ms"] = round(driver, 3)
    result["saturates"] = round(USUAL_DRAWS * 1000 / driver)
    return result


def _workers(placement: PlacementConfig, recipe: Recipe) -> LocalWorkers:
    return RayWorkers(recipe, placement)


def _daemons(cluster: Raylets) -> float:
    """Returns the CPU seconds of GCS and raylets so far."""
    total = 0.0
    for pid in {pid for node in cluster.nodes.values() for name in DAEMONS for pid in node.processes(name)}:
        total += _seconds_of(pid)
    return total


def _seconds_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, nargs="*", default=[1000, 4000, 16000])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 4, 8])
    parser.add_argument("--tasks", type=int, default=400, help="number of shards of each build on nodes")
    args = parser.parse_args()
    cloudpickle.register_pickle_by_value(sys.modules["dataset_build"])
    for shards in args.shards:
        with tempfile.TemporaryDirectory() as folder:
            print("here", shards, json.dumps(built(str(Path(folder, "dataset")), shards, ThreadWorkers)), flush=True)
    for nodes in args.nodes:
        print("nodes", nodes, json.dumps(on_nodes(nodes, args.tasks)), flush=True)


if __name__ == "__main__":
    main()
