"""Measures what a dataset build costs besides its models: CPU per draw, memory of each process, draws per second.

    python bench/dataset_build.py [10000 100000 1000000] [--world] [--keep 0.1] [--nodes 1] [--threads 1]

The models do almost nothing: the generator returns pictures of seeded noise, and the classifier is wrong about a share
of them. With --world, the embedded world's renderer and a classifier that looks at a few pixels replace them, so that
pictures vary as generated ones do. Each size is built in its own process; with --nodes N, on N logical Ray nodes that
share this machine's cores.

The models are Python, so two threads of one process slow each other down, and at the end of a small build only one
thread has work. To compare the draws per second of several sizes, use one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from c2b_ray.audits.dataset.directory import building
from c2b_ray.audits.dataset.shard_files import PlannedCaptions, write_captions
from c2b_ray.audits.dataset.shards.passes import BuildPasses, LocalWorkers, ThreadWorkers
from c2b_ray.audits.dataset.shards.workers import Recipe, Task
from c2b_ray.audits.dataset.steps.plan import NumberedCaptions, Plan
from c2b_ray.audits.dataset.steps.shard import DatasetModels, GeneratedSource, Judge
from c2b_ray.audits.failures.discovery.rounds import Truth
from c2b_ray.roles import Floats, GeneratedImage, GenerationRequest, Pixels
from c2b_ray.world.render import Renderer

LABELS = ("boat", "mug")
CELLS = ("at night", "in the fog", "on the beach", "in the snow", "striped", "dotted", "at sunset", "in the rain")
DRAWS_PER_CAPTION = 1000
MIB = 2**20


class Noise:
    """Generates pictures of 16 × 16 cells, no two of them alike."""

    revision = "noise"

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        return [GeneratedImage(_noise(request.seed)) for request in requests]


def _noise(seed: int) -> Pixels:
    cells = np.random.Generator(np.random.PCG64(seed)).integers(0, 256, (16, 16, 3), np.uint8)
    return cells.repeat(4, axis=0).repeat(4, axis=1)


class FailsOn:
    """Gives the wrong answer, `LABELS[1]`, for a share of the pictures; a few pixels decide which."""

    labels, revision = LABELS, "fails"

    def __init__(self, share: float) -> None:
        self._share = share

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        sums = np.array([int(image[5::17, 3::13].astype(np.int64).sum()) * 2654435761 % 2**32 for image in images])
        wrong = sums < self._share * 2**32
        return np.stack([~wrong, wrong], axis=1).astype(np.float32)


def load_models(world: bool, share: float) -> DatasetModels:
    judge = Judge("fails", "1", LABELS, {LABELS[0]: Truth(np.array([True, False]))}, FailsOn(share))
    generator = Renderer() if world else Noise()
    return DatasetModels((GeneratedSource("bench", generator),), (judge,), None, "top1", 0.0)


def build(out: str, args: argparse.Namespace) -> dict[str, Any]:
    draws = args.draws[0]
    captions = -(-draws // DRAWS_PER_CAPTION)
    texts = (
        (LABELS[0], f"a photo of a boat {CELLS[number % len(CELLS)]}, number {number}") for number in range(captions)
    )
    with building(out) as directory, ExitStack() as stack:
        write_captions(directory.files, NumberedCaptions(DRAWS_PER_CAPTION).tables((*text, None) for text in texts))
        plan = Plan("bench", captions * DRAWS_PER_CAPTION, 2000, 32)
        recipe = Recipe(directory.files, plan, partial(load_models, args.world, args.keep), 1, 0, 4, 1000)
        workers: LocalWorkers = ThreadWorkers(recipe, args.threads) if not args.nodes else _on_ray(recipe, stack)
        passes = BuildPasses(recipe, workers, PlannedCaptions(directory.files))
        moments: list[tuple[float, int]] = []
        began, cpu = time.monotonic(), time.process_time()
        passes.run_first(lambda done, total, sums: moments.append((time.monotonic(), done)))
        first = time.monotonic() - began
        passes.run_second(lambda done, total, sums: None)
        rows: list[int] = []
        workers.run(
            (Task("listed", group) for group in range(plan.groups)),
            lambda task, entries: rows.append(sum(entry["rows"] for entry in entries)),
            lambda sums: None,
        )
        seconds = time.monotonic() - began
        workers.close()
    half = next(((at, done) for at, done in moments if done > plan.draws / 2), moments[-1])
    return {
        "draws": plan.draws,
        "rows": sum(rows),
        "draws_per_s": round(plan.draws / seconds, 1),
        "draws_per_s_of_last_half": round((plan.draws - half[1]) / max(1e-9, began + first - half[0]), 1),
        "cpu_ms_a_draw": round(1000 * (time.process_time() - cpu) / plan.draws, 4),
        "share_of_second_pass": round(1 - first / seconds, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _on_ray(recipe: Recipe, stack: ExitStack) -> LocalWorkers:
    from ray import cloudpickle

    from c2b_ray.audits.dataset.shards.on_ray import RayWorkers
    from c2b_ray.engine.cluster import ensure_ray

    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    stack.enter_context(ensure_ray())
    return RayWorkers(recipe, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("draws", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--world", action="store_true")
    parser.add_argument("--keep", type=float, default=0.1, help="share of the pictures that fail")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads of a build without Ray; default: one per core")
    parser.add_argument("--alone", action="store_true", help="build in this process and print its costs")
    args = parser.parse_args()
    if args.alone:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(build(str(Path(folder, "out")), args)))
        return
    for draws in args.draws:
        options = ["--alone", f"--keep={args.keep}", f"--nodes={args.nodes}", *(["--world"] if args.world else [])]
        options += [f"--threads={args.threads}"] if args.threads else []
        command = [sys.executable, __file__, str(draws), *options]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ)
        print(done.stdout.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
