"""What a build's number of shards costs its driver: CPU a shard, here and with many logical nodes, and listings.

    PYTHONPATH=tests/support python bench/dataset_scale.py [--shards 1000 4000 16000] [--nodes 1 4 8] [--tasks 400]
    PYTHONPATH=tests/support python bench/dataset_scale.py --shards --tasks 0 --nodes 1 2 4 --draws 40000

Shards of four draws of models that do next to nothing, so that what is left is what a shard costs, whatever is in it:
its task, its files, its part of the second pass and its line of the manifest. `here` is a build in one process, by
step. With nodes, each is a Ray node of its own with processes of its own, all on this machine; the CPU of the driver is
apart from that of Ray's head (GCS and raylet) and of the workers. `saturates`: at so many draws a second one core of
the driver is busy, with shards of 2,000 draws.

With --draws, the world's renderer draws so many on each number of nodes: `cpu_ms_a_draw` is of all processes, driver,
daemons and workers, from a third of the draws on, when models are loaded, in so many `seconds`; `rows_sha256` is of all
rows and drops. `idle_cpu_ms_a_s`: what the same cluster takes in a second, in --idle seconds before it has anything to
do; `less_idle`: CPU-ms a draw without that, which is what a draw costs and not the time that nodes are up.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from dataset_build import LABELS, crew
from ray import cloudpickle
from raylets import Hardware, Raylets, await_nodes, raylets

from c2b_ray.config.placement import PlacementConfig
from c2b_ray.pipelines.cluster import ADDRESS, ensure_ray
from c2b_ray.pipelines.shards.here import Crews, CrewsHere
from c2b_ray.pipelines.shards.on_ray import CrewsOnRay
from c2b_ray.pipelines.shards.passes import Passes, state_of
from c2b_ray.pipelines.shards.planned import PlannedCaptions, write_captions
from c2b_ray.pipelines.shards.workshop import Recipe, Task
from c2b_ray.steps.dataset.captions import Numbered
from c2b_ray.steps.dataset.plan import Plan
from c2b_ray.store.dataset_build import building

SHARD_DRAWS, USUAL_DRAWS = 4, 2000
DAEMONS = ("gcs_server", "raylet/raylet")
TICK = os.sysconf("SC_CLK_TCK")
SETTLED_S = 5.0


def built(out: str, shards: int, crews_of: Any) -> dict[str, float]:
    """CPU-ms a shard of this process, by step, and seconds in all."""
    with building(out) as directory:
        texts = ((LABELS[0], f"a photo of a boat, number {number}", None) for number in range(shards))
        write_captions(directory.files, Numbered(SHARD_DRAWS).tables(texts))
        plan = Plan("scale", shards * SHARD_DRAWS, SHARD_DRAWS, SHARD_DRAWS)
        recipe = Recipe(directory.files, plan, partial(crew, False, 0.25), 1, 0, 4, 1000)
        crews: Crews = crews_of(recipe)
        result: dict[str, float] = {}
        began = time.monotonic()

        def step(name: str, run: Any) -> None:
            cpu, clock = time.process_time(), time.monotonic()
            run()
            result[f"{name}_cpu_ms"] = round(1000 * (time.process_time() - cpu) / shards, 3)
            result[f"{name}_s"] = round(time.monotonic() - clock, 2)

        passes = Passes(recipe, crews, PlannedCaptions(directory.files))
        step("first", lambda: passes.run_first(lambda *progress: None))
        step("listing", lambda: state_of(directory.files, plan))
        step("second", lambda: passes.run_second(lambda *progress: None))
        listed: list[Any] = []
        tasks = (Task("listed", group) for group in range(plan.groups))
        step("manifest", lambda: crews.run(tasks, lambda task, rows: listed.extend(rows), lambda sums: None))
        result["manifest_bytes_a_shard"] = round(len(json.dumps(listed)) / shards)
        result["seconds"] = round(time.monotonic() - began, 2)
        crews.close()
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
        result: dict[str, Any] = built(str(Path(out, "dataset")), shards, partial(_crews, placement))
        result["ray_daemons_cpu_ms"] = round(1000 * (_daemons(cluster) - before) / shards, 3)
    driver = sum(result[f"{name}_cpu_ms"] for name in ("first", "second", "manifest"))
    result["driver_cpu_ms"] = round(driver, 3)
    result["saturates"] = round(USUAL_DRAWS * 1000 / driver)
    return result


def drawn_on_nodes(nodes: int, draws: int, idle: float) -> dict[str, Any]:
    """What a draw takes of all processes together, and a hash of what the build made."""
    names = [f"node{number}" for number in range(1, nodes)]
    hardware = Hardware(cpus=1)
    shape = {"stages": {"shards": {"min_actors": nodes, "max_actors": nodes, "cpus": 1}}}
    placement = PlacementConfig.model_validate(shape)
    with ExitStack() as stack:
        cluster = stack.enter_context(raylets(hardware, dict.fromkeys(names, hardware)))
        os.environ[ADDRESS] = cluster.address
        stack.callback(os.environ.pop, ADDRESS)
        stack.enter_context(ensure_ray())
        await_nodes(nodes)
        time.sleep(SETTLED_S)
        began, before = time.monotonic(), _all_cpu(cluster)
        time.sleep(idle)
        idle_share = (_all_cpu(cluster) - before) / (time.monotonic() - began)
        out = str(Path(stack.enter_context(tempfile.TemporaryDirectory()), "dataset"))
        moments = _build(out, draws, placement, partial(_all_cpu, cluster))
        digest = _digest(out)
    (first, before, began), (last, after, ended) = moments[0], moments[-1]
    seconds, spent, counted = ended - began, after - before, last - first
    return {
        "draws": last,
        "seconds": round(seconds, 1),
        "cpu_ms_a_draw": round(1000 * spent / counted, 4),
        "idle_cpu_ms_a_s": round(1000 * idle_share, 1),
        "less_idle": round(1000 * (spent - idle_share * seconds) / counted, 4),
        "rows_sha256": digest,
    }


def _build(
    out: str, draws: int, placement: PlacementConfig, cpu: Callable[[], float]
) -> list[tuple[int, float, float]]:
    """Builds it; draws, CPU seconds and time after a third of the draws, and after all."""
    moments: list[tuple[int, float, float]] = []
    with building(out) as directory:
        texts = ((LABELS[0], f"a photo of a boat, number {number}", None) for number in range(-(-draws // 1000)))
        write_captions(directory.files, Numbered(1000).tables(texts))
        plan = Plan("scale", -(-draws // 1000) * 1000, 250, 32)
        recipe = Recipe(directory.files, plan, partial(crew, True, 0.1), 1, 0, 4, 1000)
        crews = _crews(placement, recipe)
        passes = Passes(recipe, crews, PlannedCaptions(directory.files))

        def tell(done: int, total: int, sums: dict[str, float]) -> None:
            if not moments and done >= total / 3:
                moments.append((done, cpu(), time.monotonic()))

        passes.run_first(tell)
        moments.append((plan.draws, cpu(), time.monotonic()))
        passes.run_second(lambda *progress: None)
        crews.close()
    return moments


def _digest(out: str) -> str:
    digest = hashlib.sha256()
    for folder in ("shards", "drops"):
        for path in sorted(Path(out, folder).iterdir()):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _all_cpu(cluster: Raylets) -> float:
    """CPU seconds of this process and of all that live on the nodes."""
    pids = {pid for node in cluster.nodes.values() for pid in node.processes()}
    return time.process_time() + sum(_seconds_of(pid) for pid in pids)


def _crews(placement: PlacementConfig, recipe: Recipe) -> Crews:
    return CrewsOnRay(recipe, placement)


def _daemons(cluster: Raylets) -> float:
    """CPU seconds that GCS and raylets have taken so far."""
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
    parser.add_argument("--tasks", type=int, default=400, help="shards of each build on nodes")
    parser.add_argument("--draws", type=int, default=0, help="of the world's renderer, on each number of nodes")
    parser.add_argument(
        "--idle", type=float, default=20.0, help="seconds that an idle cluster is watched, with --draws"
    )
    args = parser.parse_args()
    cloudpickle.register_pickle_by_value(sys.modules["dataset_build"])
    for shards in args.shards:
        with tempfile.TemporaryDirectory() as folder:
            print("here", shards, json.dumps(built(str(Path(folder, "dataset")), shards, CrewsHere)), flush=True)
    for nodes in args.nodes:
        if args.tasks:
            print("nodes", nodes, json.dumps(on_nodes(nodes, args.tasks)), flush=True)
        if args.draws:
            print("draws", nodes, json.dumps(drawn_on_nodes(nodes, args.draws, args.idle)), flush=True)


if __name__ == "__main__":
    main()
