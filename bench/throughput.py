"""Measures the overhead of classifying, Parquet → classifier → Parquet: without Ray, in actors, and behind Serve.

    python bench/throughput.py SPEC [--photos FOLDER] [--few F] [--n N] [--rounds R] [--place FOLDER]

SPEC: a classifier with a noticeable cost. Photographs are made once (`bench/photos.py`) and kept at --place. The bare
loop has no Ray: on each core, a process of one thread reads, decodes, prepares and classifies its share of the batches
of 32, with the pipeline's own functions, and writes one part. Each side runs in its own process; the sides take turns,
--rounds times. In a process, a first call loads everything; the time of a call on the few images is subtracted from
that on all images. The script prints medians over the rounds:

    added_ms        CPU-ms per image (user and system, of all processes) beyond the bare loop, without the fixed load
    fixed_cores     the fixed load: cores that the side's processes use while they wait
    over_bare       images per second, over those of the bare loop
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from cpu_time import Stretch, steady, watched
from photos import photos

from c2b_ray.audits.kit.backend import backend
from c2b_ray.engine.images import AuditedClassifier, ImageStages, selected
from c2b_ray.engine.placement import NEEDS
from c2b_ray.models import catalog
from c2b_ray.roles import Classifier
from c2b_ray.steps.classify import Classification, classification, predict
from c2b_ray.storage.parts import opened, writing
from c2b_ray.tables import IMAGES

PER_PART = 250
SIDES = ("bare", "here", "actors", "serve")
SETTLES_S, IDLE_S = 5.0, 20.0
Stretches = dict[str, tuple[float, float]]
CORES = len(os.sched_getaffinity(0))


def images(place: Path, n: int, folder: str | None) -> str:
    """Returns the images table of a run, as after an audit has collected its images."""
    out = f"{place}/images-{n}"
    if Path(out).is_dir():
        return out
    files = sorted(Path(folder).glob("*.jpg"))[:n] if folder else []
    data = (file.read_bytes() for file in files) if folder else photos(n, 100_101)
    rows = [{"image_id": f"i{i}", "key": f"{i}.jpg", "bytes": image, "error": None} for i, image in enumerate(data)]
    with writing(out) as parts:
        for start in range(0, len(rows), PER_PART):
            parts.write(pa.Table.from_pylist(rows[start : start + PER_PART], IMAGES), "image_id")
    return out


def asked_of(spec: str, classifier: Classifier) -> Classification:
    labels = classifier.labels[:10]
    return classification(spec, classifier, labels, {label: [i] for i, label in enumerate(labels)})


def bare(spec: str, sources: tuple[str, str]) -> Stretches:
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:

        def once(source: str) -> None:
            for _ in pool.map(partial(loop, spec, source), range(CORES)):
                pass

        return stretches(once, sources)


@cache
def loaded(spec: str) -> Classifier:
    torch.set_num_threads(1)
    return catalog.classifier(spec)


def loop(spec: str, source: str, core: int) -> None:
    classifier = loaded(spec)
    asked = asked_of(spec, classifier)
    parts = opened(source)
    size = NEEDS["classify"].batch
    batches = (table.slice(i, size) for table in map(parts.read, parts.names()) for i in range(0, table.num_rows, size))
    found = [predict(batch, classifier, asked) for batch in islice(batches, core, None, CORES)]
    with tempfile.TemporaryDirectory() as out:
        pq.write_table(pa.concat_tables(found), f"{out}/predictions.parquet")


def piped(spec: str, sources: tuple[str, str], via: str) -> Stretches:
    with backend(via) as models, tempfile.TemporaryDirectory() as out:
        factory = models.classifier(spec)
        asked = asked_of(spec, factory())
        wanted = {source: opened(source).census("image_id").ids for source in sources}
        stages = ImageStages(models.runner)

        def once(source: str) -> None:
            with tempfile.TemporaryDirectory(dir=out) as place:
                one = [AuditedClassifier(factory, asked)]
                images = selected(source, lambda: [wanted[source]])
                stages.classify(images, one, f"{place}/predictions", lambda _: None)

        return stretches(once, sources)


def stretches(once: Callable[[str], None], sources: tuple[str, str]) -> Stretches:
    once(sources[0])
    spans = {}
    for name, source in zip(("few", "all"), sources, strict=True):
        began = time.time()
        once(source)
        spans[name] = (began, time.time())
    time.sleep(SETTLES_S)  # until the work that the last call left behind is done
    began = time.time()
    time.sleep(IDLE_S)
    return {**spans, "idle": (began, time.time())}


def summary(rounds: dict[str, list[dict[str, Stretch]]], images: int) -> dict[str, Any]:
    """Returns each side's medians over its rounds."""
    idle = {side: median(work["idle"]["cpu"] / work["idle"]["seconds"] for work in rounds[side]) for side in SIDES}
    cpu, wall = (
        {side: median(steady(work, images, what) for work in rounds[side]) for side in SIDES}
        for what in ("cpu", "seconds")
    )
    report: dict[str, Any] = {}
    for side in SIDES:
        own = {"cpu_ms": round(1000 * cpu[side], 2), "images_per_s": round(1 / wall[side], 1)}
        if side != "bare":
            own["added_ms"] = round(1000 * (cpu[side] - idle[side] * wall[side] - cpu["bare"]), 2)
            own["fixed_cores"] = round(idle[side], 3)
            own["over_bare"] = round(wall["bare"] / wall[side], 3)
        report[side] = own
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec")
    parser.add_argument("--side", choices=SIDES, help="run only this side, in this process")
    parser.add_argument("--photos")
    parser.add_argument("--few", type=int, default=2000)
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", type=Path, default=Path("/var/tmp/c2b-bench"))
    args = parser.parse_args()
    sources = images(args.place, args.few, args.photos), images(args.place, args.n, args.photos)
    if args.side:
        spans = bare(args.spec, sources) if args.side == "bare" else piped(args.spec, sources, args.side)
        print(json.dumps(spans))
        return
    rounds: dict[str, list[dict[str, Stretch]]] = {side: [] for side in SIDES}
    for side in SIDES * args.rounds:
        sizes = ["--few", str(args.few), "--n", str(args.n), "--place", str(args.place)]
        rounds[side].append(watched([sys.executable, __file__, args.spec, "--side", side, *sizes]))
        print(side, rounds[side][-1], os.getloadavg()[0], file=sys.stderr, flush=True)
    print(json.dumps(summary(rounds, args.n - args.few), indent=1))


if __name__ == "__main__":
    main()
