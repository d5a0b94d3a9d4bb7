"""Measures the cost of a stage's progress reports: CPU-ms per image of this process and of Ray's key-value store.

    python bench/stage_reports.py

The stage has blocks of 512 images in batches of 32. First it reports each batch; then it reports once in `EVERY_S`
seconds, as stages do.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from c2b_ray.engine import ray_worker
from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.engine.ray_worker import Reporter, Reports

BLOCKS, IMAGES, BATCH = 200, 512, 32


def cpu_seconds_of_store() -> float:
    """Returns user and system time of the store's process, a child of this one."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if "gcs_server" in (folder / "comm").read_text():
                ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def work(every_s: float) -> tuple[float, float, float]:
    ray_worker.EVERY_S = every_s
    reporter = Reporter(Reports(f"bench-{every_s}"), "process", 5)
    own, store, began = time.process_time(), cpu_seconds_of_store(), time.perf_counter()
    for block in range(BLOCKS):
        with reporter.block(f"block-{block}", IMAGES):
            for _ in range(IMAGES // BATCH):
                reporter.check()
                reporter.answered(BATCH)
    own, store = time.process_time() - own, cpu_seconds_of_store() - store
    return own, store, time.perf_counter() - began


def main() -> None:
    with ensure_ray(num_cpus=1, object_store_mb=100):
        for name, every_s in (("a report for each batch", 0.0), ("one report in half a second", 0.5)):
            own, store, wall = (1000 * seconds / (BLOCKS * IMAGES) for seconds in work(every_s))
            print(f"{name}: CPU {own:.4f} + {store:.4f} ms an image, wall {wall:.4f}")


if __name__ == "__main__":
    main()
