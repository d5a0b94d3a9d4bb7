"""Kills decoding processes and their driver at random, and counts rows that are lost, doubled or taken for damaged.

    PYTHONPATH=. python bench/decoder_kills.py FOLDER [--kills 50] [--rows 3000] [--seed 0]

A stage without Ray decodes and resizes the JPEGs of FOLDER in three processes. Twice a second one process gets SIGKILL:
one time in ten the driver, which is then started again and resumes, else a process that decodes. Where a stage ends
before its last kill, another one begins. A file that is damaged is among the rows of each.
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
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa

from c2b_ray.pipelines.here import Here
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.preparing import preparing
from c2b_ray.pipelines.stage import Rows, StageConfig
from c2b_ray.roles import Shape
from c2b_ray.store.parts import read_stage

SCHEMA = pa.schema([("id", pa.string()), ("error", pa.string())])
EVERY_S, DECODERS, OF_DRIVER = 0.5, 3, 0.1
BATCH = 32
DAMAGED = "r000007"


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


def stage(folder: str, count: int, out: str) -> None:
    files = list(islice(cycle(sorted(map(str, Path(folder).glob("*.jpg")))), count))
    ids = [f"r{number:06}" for number in range(count)]
    rows = Rows.of(pa.table({"id": ids, "file": files}), BATCH)
    placement = Placement(batch=BATCH, threads=1, decoders=DECODERS)
    # Of the module by its name, so that other processes find the function.
    from decoder_kills import answer, decoded

    config = StageConfig(SCHEMA, placement, rows_per_file=128)
    Here().run(rows, answer, lambda: None, out, id_column="id", config=config, prepare=decoded)


def decoders_of(driver: int) -> list[int]:
    """Returns the processes that threads of the driver have started."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{driver}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.out:
        stage(str(args.folder), args.rows, args.out)
        return
    draw = random.Random(args.seed)
    killed = {"driver": 0, "decoder": 0}
    found = {"stages": 0, "lost": 0, "doubled": 0, "innocent rows with an error": 0, "damaged rows without one": 0}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    while sum(killed.values()) < args.kills:
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, __file__, str(args.folder), "--rows", str(args.rows), "--out", out]
            driver = subprocess.Popen(command, env=environment)
            while True:
                time.sleep(EVERY_S)
                if driver.poll() == 0:
                    break
                if driver.poll() is not None:
                    assert driver.returncode == -signal.SIGKILL, driver.returncode
                    driver = subprocess.Popen(command, env=environment)
                there = decoders_of(driver.pid)
                if sum(killed.values()) < args.kills and there:
                    who = "driver" if draw.random() < OF_DRIVER else "decoder"
                    with suppress(ProcessLookupError):
                        os.kill(driver.pid if who == "driver" else draw.choice(there), signal.SIGKILL)
                        killed[who] += 1
            rows = read_stage(out).to_pylist()
            ids = [row["id"] for row in rows]
            found["stages"] += 1
            found["lost"] += args.rows - len(set(ids))
            found["doubled"] += len(ids) - len(set(ids))
            found["innocent rows with an error"] += sum(
                row["error"] is not None and row["id"] != DAMAGED for row in rows
            )
            found["damaged rows without one"] += sum(row["error"] is None and row["id"] == DAMAGED for row in rows)
    print(json.dumps({"killed": killed, **found}))


if __name__ == "__main__":
    main()
