"""Kills processes of a stage at random, and counts rows that are lost, doubled or taken for damaged.

    PYTHONPATH=.:tests/support python bench/decoder_kills.py FOLDER [--who decoder driver model node] [--kills 50]
        [--rows 3000] [--seed 0]

A stage decodes and resizes the JPEGs of FOLDER in processes that hold no model. With decoder and driver alone it runs
without Ray, and twice a second one process gets SIGKILL: one time in ten the driver, which holds the model, else a
process that decodes. With `model` or `node` it runs on a Ray cluster of two nodes on this machine, of which the second
decodes and answers too; every two seconds a task that decodes dies, the actor with the model, the driver, or all
processes of the second node at once, which another one then replaces. A driver that ended is started again and
resumes. Where a stage ends before its last kill, another one begins. A file that is damaged is among the rows of each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from raylets import SOON, Hardware, Raylets, raylets

from c2b_ray.engine.here import InProcess, preparing
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.roles import Shape
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([("id", pa.string()), ("error", pa.string())])
DECODERS, OF_DRIVER = 3, 0.1
BATCH = 32
DAMAGED = "r000007"
SHARES = {"decoder": 0.35, "model": 0.4, "driver": 0.15, "node": 0.1}
"""On Ray, how often each is killed."""
HEAD, SECOND = Hardware(cpus=3), Hardware(cpus=3)


def decoded(rows: pa.Table) -> pa.Table:
    files = [Path(name).read_bytes() for name in rows["file"].to_pylist()]
    files = [data[:500] if name == DAMAGED else data for name, data in zip(rows["id"].to_pylist(), files, strict=True)]
    errors = rows["error"] if "error" in rows.column_names else pa.nulls(rows.num_rows, pa.string())
    table = pa.table({"id": rows["id"], "bytes": pa.array(files, pa.binary()), "error": errors})
    prepare = preparing([Shape(256, "bilinear", (224, 224))])
    assert prepare is not None
    return prepare(table)


def answer(rows: pa.Table, role: None) -> pa.Table:
    return rows.select(["id", "error"])


def stage(folder: str, count: int, out: str, on_ray: bool) -> None:
    files = list(islice(cycle(sorted(map(str, Path(folder).glob("*.jpg")))), count))
    ids = [f"r{number:06}" for number in range(count)]
    rows = Rows.of(pa.table({"id": ids, "file": files}), BATCH)
    # Of the module by its name, so that other processes find the functions.
    from decoder_kills import answer, decoded

    if not on_ray:
        config = StageConfig(SCHEMA, Placement(batch=BATCH, threads=1, decoders=DECODERS), rows_per_file=128)
        InProcess().run(rows, answer, lambda: None, out, id_column="id", config=config, prepare=decoded)
        return
    from c2b_ray.engine.cluster import ensure_ray
    from c2b_ray.engine.ray_stage import OnRay

    placement = Placement(batch=BATCH, threads=1, cpus=0.25, min_actors=2, max_actors=2, decoders=2)
    # Kills that fall upon the same rows are not the rows' fault, and a driver that gave up would be started again.
    config = StageConfig(SCHEMA, placement, rows_per_file=128, restarts=20)
    with ensure_ray():
        OnRay().run(rows, answer, lambda: None, out, id_column="id", config=config, prepare=decoded)


def decoders_of(driver: int) -> list[int]:
    """Returns the processes that threads of the driver have started."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{driver}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


class WithoutRay:
    """A stage in its driver and processes that this has started."""

    every_s = 0.5

    def draw(self, random: random.Random) -> str:
        return "driver" if random.random() < OF_DRIVER else "decoder"

    def kill(self, who: str, driver: subprocess.Popen[bytes], random: random.Random) -> bool:
        """Kills one; tells whether it was there."""
        there = decoders_of(driver.pid)
        return bool(there) and killed([driver.pid if who == "driver" else random.choice(there)])


class OnNodes:
    """A stage on two nodes."""

    every_s = 2.0

    def __init__(self, nodes: Raylets, who: list[str]) -> None:
        self._nodes, self._who = nodes, who

    def draw(self, random: random.Random) -> str:
        return random.choices(self._who, [SHARES[who] for who in self._who])[0]

    def kill(self, who: str, driver: subprocess.Popen[bytes], random: random.Random) -> bool:
        actors = self._processes("ray::MapWorker")
        if not actors:
            return False  # the stage has not begun
        if who == "driver":
            return killed([driver.pid])
        if who == "node":
            self._nodes.kill("second")
            self._nodes.add("second", SECOND)
            return True
        ends = time.monotonic() + self.every_s
        while not (found := actors if who == "model" else self._processes("prepared_there")):
            if time.monotonic() > ends:  # no task runs at this moment
                return False
        return killed([random.choice(found)])

    def _processes(self, name: str) -> list[int]:
        return [pid for node in self._nodes.nodes.values() for pid in node.processes(name)]


def killed(pids: list[int]) -> bool:
    with suppress(ProcessLookupError):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--who", nargs="+", choices=list(SHARES), default=["decoder", "driver"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    args = parser.parse_args()
    on_ray = not {"model", "node"}.isdisjoint(args.who)
    if args.out:
        stage(str(args.folder), args.rows, args.out, on_ray)
        return
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    os.environ["PYTHONPATH"] = paths  # of the nodes too
    if not on_ray:
        print(json.dumps(counted(args, WithoutRay())))
        return
    with raylets(HEAD, {"second": SECOND}, SOON) as nodes:
        os.environ["RAY_ADDRESS"] = nodes.address
        print(json.dumps(counted(args, OnNodes(nodes, args.who))))


def counted(args: argparse.Namespace, stages: WithoutRay | OnNodes) -> dict[str, Any]:
    """Kills until there were as many kills as asked for; returns how many of each, and what became of the rows."""
    draw, kills = random.Random(args.seed), Counter[str]()
    found = {"stages": 0, "lost": 0, "doubled": 0, "innocent rows with an error": 0, "damaged rows without one": 0}
    given_up = 0
    while kills.total() < args.kills:
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, __file__, str(args.folder), "--rows", str(args.rows), "--out", out]
            command += ["--who", *args.who]
            driver = subprocess.Popen(command)
            while driver.poll() != 0:
                time.sleep(stages.every_s)
                if driver.poll() not in (None, 0):
                    given_up += driver.returncode != -signal.SIGKILL
                    driver = subprocess.Popen(command)
                elif driver.poll() is None and kills.total() < args.kills:
                    who = stages.draw(draw)
                    if stages.kill(who, driver, draw):
                        kills[who] += 1
                        print(dict(kills), file=sys.stderr, flush=True)
            rows = read_stage(out).to_pylist()
        ids = [row["id"] for row in rows]
        found["stages"] += 1
        found["lost"] += args.rows - len(set(ids))
        found["doubled"] += len(ids) - len(set(ids))
        found["innocent rows with an error"] += sum(row["error"] is not None and row["id"] != DAMAGED for row in rows)
        found["damaged rows without one"] += sum(row["error"] is None and row["id"] == DAMAGED for row in rows)
    return {"killed": dict(kills), "drivers that gave up, and were resumed": given_up, **found}


if __name__ == "__main__":
    main()
