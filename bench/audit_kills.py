"""Kills drivers of labelled audits at random, changes their placement between kill and resume, and compares the tables.

    PYTHONPATH=. python bench/audit_kills.py --via actors [--kills 3] [--images 2400] [--seed 0]

An undisturbed audit of two shipped classifiers on scenes of the embedded world runs in one process without Ray. Then
the same audit runs on Ray: SIGKILL ends its driver alone, one time in four in the first ten seconds, else within two
seconds of a Parquet part that is drawn at random from those to come. The same command goes on, each time with another
placement file. Where an audit ends before its moment, another one begins. Each that ended is compared with the
undisturbed one, table by table and row by row.
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
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from c2b_ray import load_run
from c2b_ray.world import CLASSES
from c2b_ray.world.table import write_sample

FIRST_SEED = 400_000
PATIENCE_S = 300.0
PLACEMENTS = {
    "one": "stages: {fetch: {max_actors: 1, cpus: 0.25, batch: 64}, classify: {max_actors: 1, cpus: 0.5, batch: 16}}",
    "two": "stages: {fetch: {batch: 256}, classify: {min_actors: 2, max_actors: 2, cpus: 0.5, batch: 40, threads: 2}}",
    "none": "",
}
COMMAND = [sys.executable, "-m", "c2b_ray", "audit", "audit.yaml", "--json"]


class Driver:
    """`c2b audit` as a process of its own; with `via` other than `here` it starts a Ray cluster of its own."""

    def __init__(self, folder: Path, out: str, via: str, placement: str = "none") -> None:
        self.said = folder / f"{out}.said"
        where = [] if placement == "none" else ["--placement", f"{placement}.yaml"]
        environment = {**os.environ, "RAY_ADDRESS": "local", "RAY_worker_niceness": "0"}
        self._log: IO[str] = open(self.said, "a")  # noqa: SIM115 — as long as the process
        self.popen = subprocess.Popen(
            [*COMMAND, "--out", out, "--via", via, *where],
            cwd=folder,
            env=environment,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def ended_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            if status := self.popen.wait(seconds):
                raise RuntimeError(f"exit status {status}: {self.said.read_text()[-4000:]}")
            return True
        return False

    def kill(self) -> None:
        """Sends SIGKILL to the driver alone: Ray's processes have to notice by themselves."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def close(self) -> None:
        """Ends whatever the driver left running."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self._log.close()


def write_inputs(folder: Path, images: int) -> None:
    write_sample(folder / "scenes.parquet", images, seed=FIRST_SEED)
    config = {
        "task": "Name the thing.",
        "classes": list(CLASSES),
        "classifier": {"planted": "world:resnet-planted-0", "control": "world:resnet-control-0"},
        "images": {"source": "labelled", "table": "scenes.parquet"},
        "attributes": {"weather": ["clear", "rain", "snow", "fog"], "lighting": ["day", "night"]},
        "intersections": [["weather", "lighting"]],
    }
    (folder / "audit.yaml").write_text(yaml.safe_dump(config))
    for name, text in PLACEMENTS.items():
        (folder / f"{name}.yaml").write_text(text)


def rows(run: Path, name: str) -> pa.Table:
    table = load_run(run).read(name)
    key = [column for column in ("prediction_id", "image_id", "caption_id") if column in table.column_names]
    return table.sort_by([(column, "ascending") for column in key]) if key else table


def differences(folder: Path, out: str) -> list[str]:
    """Returns the tables in which the two runs differ, with the columns."""
    found = []
    for name in load_run(folder / out).kind.tables:
        ours, theirs = rows(folder / out, name), rows(folder / "undisturbed", name)
        if ours.num_rows != theirs.num_rows:
            found.append(f"{name}: {ours.num_rows} rows, not {theirs.num_rows}")
        elif not ours.equals(theirs):
            found += [f"{name}.{column}" for column in unlike(ours, theirs)]
    return found


def unlike(ours: pa.Table, theirs: pa.Table) -> list[str]:
    """Returns the columns that differ; NaN is NaN."""
    columns = []
    for name in ours.column_names:
        a, b = ours[name].combine_chunks(), theirs[name].combine_chunks()
        if pa.types.is_floating(a.type):
            a, b = (pc.if_else(pc.is_nan(values), None, values) for values in (a, b))
        if not a.equals(b):
            columns.append(name)
    return columns


def through_deaths(folder: Path, via: str, kills: int, rng: random.Random) -> dict[str, object]:
    at_kills: list[dict[str, int]] = []
    ended: dict[str, list[str]] = {}
    drivers: list[Driver] = []
    placements, whole = sorted(PLACEMENTS), sum(parts(folder / "undisturbed").values())
    try:
        while len(at_kills) < kills or not ended:
            out = f"killed-{len(ended)}"
            while True:
                drivers.append(Driver(folder, out, via, placements[len(drivers) % len(placements)]))
                if len(at_kills) == kills:
                    if drivers[-1].ended_within(PATIENCE_S):
                        break
                    raise TimeoutError(drivers[-1].said.read_text()[-4000:])
                if ended_before_its_moment(drivers[-1], folder / out, whole, rng):
                    break
                drivers[-1].kill()
                at_kills.append(parts(folder / out))
                print(json.dumps(at_kills[-1]), flush=True)
            ended[out] = differences(folder, out)
    finally:
        for driver in drivers:
            driver.close()
    return {"via": via, "parts_at_kills": at_kills, "audits": len(ended), "differences": ended}


def ended_before_its_moment(driver: Driver, run: Path, whole: int, rng: random.Random) -> bool:
    """Waits for the moment of the next kill; returns whether the audit ended before it."""
    if rng.random() < 0.25:
        return driver.ended_within(rng.uniform(0, 10))
    there = sum(parts(run).values())
    awaited, deadline = rng.randint(there, max(there, whole - 1)), time.monotonic() + PATIENCE_S
    while sum(parts(run).values()) <= awaited:
        if driver.ended_within(0.02):
            return True
        if time.monotonic() > deadline:
            raise TimeoutError(driver.said.read_text()[-4000:])
    return driver.ended_within(rng.uniform(0, 2))


def parts(run: Path) -> dict[str, int]:
    return {name: sum(1 for _ in run.glob(f"{name}/part-*.parquet")) for name in ("images", "predictions")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--via", choices=("actors", "serve"), default="actors")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--images", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `finally` ends what was started
    with tempfile.TemporaryDirectory(prefix="c2b-audit-kills-") as name:
        folder = Path(name)
        write_inputs(folder, arguments.images)
        undisturbed = Driver(folder, "undisturbed", "here")
        try:
            undisturbed.ended_within(PATIENCE_S)
        finally:
            undisturbed.close()
        rng = random.Random(arguments.seed)
        print(json.dumps(through_deaths(folder, arguments.via, arguments.kills, rng)))


if __name__ == "__main__":
    main()
