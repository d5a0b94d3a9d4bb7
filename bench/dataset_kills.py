"""Kills drivers, workers and nodes of one dataset build at random: counts lost and doubled rows, and repeated shards.

    PYTHONPATH=.:tests/support python bench/dataset_kills.py [--kills 50] [--draws 45000] [--minutes M] [--commits]

`c2b dataset build` runs on a Ray cluster of a head and two nodes on this machine, with the world's renderer and a
shipped classifier. At random moments, SIGKILL ends the driver, an actor that draws, or every process of a node, which
then starts again; between two kills at least one more shard is drawn. The same command starts a killed driver again.
Finally the dataset is compared byte for byte with that of an undisturbed build.

With --commits, the script instead kills a small build without Ray between every two commits, and ends each with the
same command.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow.dataset as ds
from doomed_builds import build, contents, ended, forked, write_config
from raylets import SOON, Hardware, Raylets, kill, program_environment, raylets

NODE = Hardware(cpus=2)
HEAD = Hardware(cpus=0)
NODES = ("first", "second")
PLACEMENT = "stages: {shards: {min_actors: 2, max_actors: 2, cpus: 1}}\n"
SHARD_DRAWS = 100
PATIENCE_S = 600.0
SHARES = {"driver": 0.4, "worker": 0.4, "node": 0.2}


class Driver:
    """`c2b dataset build` on the cluster, as a process."""

    def __init__(self, folder: Path, out: str, address: str) -> None:
        self.out = folder / out
        command = [sys.executable, "-m", "c2b_ray", "dataset", "build", "dataset.yaml", "--out", out]
        command += ["--via", "actors", "--placement", "placement.yaml", "--json"]
        environment = program_environment(RAY_ADDRESS=address, RAY_AUTH_MODE="disabled")
        self._log: IO[str] = open(f"{self.out}.said", "a")  # noqa: SIM115 — as long as the process
        self.popen = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def shards(self) -> int:
        return sum(1 for _ in self.out.glob("candidates/*.draws.parquet"))

    def under_way(self) -> int:
        return sum(1 for _ in self.out.glob("work/*/busy-*"))

    def until_one_more(self) -> bool:
        """Waits until one more shard is drawn; returns False where the build has ended."""
        before, deadline = self.shards(), time.monotonic() + PATIENCE_S
        while self.shards() <= before:
            if self.popen.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(Path(f"{self.out}.said").read_text()[-4000:])
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """Sends SIGKILL to the build and all processes that it started, if it still runs."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._log.close()

    def end(self) -> None:
        if status := self.popen.wait(6 * PATIENCE_S):
            raise RuntimeError(f"exit status {status}: {Path(f'{self.out}.said').read_text()[-4000:]}")


def kill_one(kind: str, driver: Driver, cluster: Raylets, rng: random.Random) -> bool:
    """Kills a part of this kind; returns False where there is none."""
    if kind == "driver":
        driver.kill()
        return True
    name = rng.choice(NODES)
    if kind == "node":
        cluster.kill(name)
        cluster.add(name, NODE)
        return True
    workers = [pid for node in NODES for pid in cluster.nodes[node].processes("ray::Hand")]
    kill(rng.sample(workers, min(1, len(workers))))
    return bool(workers)


def through_deaths(folder: Path, cluster: Raylets, kills: int, minutes: float, rng: random.Random) -> dict[str, object]:
    plan = [kind for kind, share in SHARES.items() for _ in range(round(share * kills))]
    rng.shuffle(plan)
    done: Counter[str] = Counter()
    under_way, until = 0, time.monotonic() + 60 * minutes
    driver = Driver(folder, "killed", cluster.address)
    try:
        for kind in plan:
            if time.monotonic() > until or not driver.until_one_more():
                break
            time.sleep(rng.uniform(0, 1))
            flying = driver.under_way()
            while not kill_one(kind, driver, cluster, rng):  # no actor is up yet
                time.sleep(0.2)
                flying = driver.under_way()
            done[kind] += 1
            under_way += flying
            print(json.dumps({"kill": sum(done.values()), "of": kind, "shards": driver.shards()}), flush=True)
            if kind == "driver":
                driver = Driver(folder, "killed", cluster.address)
        driver.end()
    finally:
        driver.kill()
    return {"kills": dict(done), "shards_under_way_at_kills": under_way}


def compared(folder: Path) -> dict[str, object]:
    """Returns how many rows the disturbed build lacks or has twice, and whether its files equal the other build's."""
    ids = {}
    for name in ("undisturbed", "killed"):
        table = ds.dataset(folder / name / "shards", format="parquet").to_table(columns=["image_id"])
        ids[name] = Counter(table["image_id"].to_pylist())
    repeated = json.loads((folder / "killed" / "manifest.json").read_text())["repeated"]
    return {
        "rows": sum(ids["undisturbed"].values()),
        "lost": len(ids["undisturbed"].keys() - ids["killed"].keys()),
        "added": len(ids["killed"].keys() - ids["undisturbed"].keys()),
        "doubled": sum(count > 1 for count in ids["killed"].values()),
        "files_equal": contents(folder / "killed") == contents(folder / "undisturbed"),
        "said_by_the_build": repeated,
    }


def random_kills(folder: Path, kills: int, minutes: float, draws: int, seed: int) -> None:
    write_config(folder, draws_per_caption=draws // 3, shard_draws=SHARD_DRAWS, cap_per_caption=draws)
    (folder / "placement.yaml").write_text(PLACEMENT)
    with raylets(HEAD, dict.fromkeys(NODES, NODE), SOON) as cluster:
        began = time.monotonic()
        undisturbed = Driver(folder, "undisturbed", cluster.address)
        try:
            undisturbed.end()
        finally:
            undisturbed.kill()
        print(json.dumps({"undisturbed_s": round(time.monotonic() - began)}), flush=True)
        began = time.monotonic()
        told = through_deaths(folder, cluster, kills, minutes, random.Random(seed))
        seconds = round(time.monotonic() - began)
    print(
        json.dumps({"draws": draws, "shards": -(-draws // SHARD_DRAWS), "seconds": seconds, **told} | compared(folder))
    )


def every_commit(folder: Path) -> None:
    write_config(folder)
    if ended(forked(build, folder / "undisturbed")):
        raise RuntimeError((folder / "undisturbed.said").read_text())
    out, wrong, commits, repeated = folder / "killed", 0, 0, []
    while (status := ended(forked(build, out, commits))) == -signal.SIGKILL:
        status = ended(forked(build, out))
        wrong += bool(status) or contents(out) != contents(folder / "undisturbed")
        repeated.append(json.loads((out / "manifest.json").read_text())["repeated"]["tasks"])
        shutil.rmtree(out)
        commits += 1
    if status:
        raise RuntimeError(Path(f"{out}.said").read_text())
    print(json.dumps({"commits": commits, "with_other_rows": wrong, "most_tasks_repeated": max(repeated)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=600.0, help="kill nothing after this time")
    parser.add_argument("--draws", type=int, default=45_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commits", action="store_true")
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    # SIGTERM must run the `finally` blocks, since the started processes have their own sessions and would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="c2b-kills-") as folder:
        if arguments.commits:
            every_commit(Path(folder))
        else:
            random_kills(Path(folder), arguments.kills, arguments.minutes, arguments.draws, arguments.seed)


if __name__ == "__main__":
    main()
