"""Images a second, Parquet → classifier → Parquet: behind Ray Serve, in the pipeline's own actors, and a bare loop.

    python bench/throughput.py SPEC [--side bare|actors|serve] [--photos FOLDER] [--n N] [--place FOLDER]

SPEC: a classifier that costs something. Photographs are made once (`bench/photos.py`), kept at --place. The bare loop
has no Ray: for each core, a process of one thread reads, decodes, prepares and classifies its share of the batches of
32, with the functions that the pipeline maps, and writes one part. Every side runs in a process of its own; without
--side all of them in turn, --rounds times over, and the ratios of their medians. Steady: all images but 2,000 over what
they take longer than those 2,000, from call to last part written, each after a call that loads what there is to load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
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

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from photos import photos

from c2b_ray.audits.kit.backend import backend
from c2b_ray.models import catalog
from c2b_ray.pipelines.images import ImageStages
from c2b_ray.pipelines.placement import NEEDS
from c2b_ray.roles import Classifier
from c2b_ray.schemas import IMAGES
from c2b_ray.steps.predict import Question, predict, question
from c2b_ray.store.parts import opened, read_stage, writing

PER_PART, FEW = 250, 2000
SIDES = ("bare", "actors", "serve")
CORES = len(os.sched_getaffinity(0))


def images(place: Path, n: int, folder: str | None) -> str:
    """A run's images, as an audit has collected them."""
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


def asked_of(spec: str, classifier: Classifier) -> Question:
    labels = classifier.labels[:10]
    return question(spec, classifier, labels, {label: [i] for i, label in enumerate(labels)})


def bare(spec: str, sources: tuple[str, str]) -> tuple[float, float]:
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:

        def once(source: str) -> None:
            for _ in pool.map(partial(loop, spec, source), range(CORES)):
                pass

        once(sources[0])
        return timed(partial(once, sources[0])), timed(partial(once, sources[1]))


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


def piped(spec: str, sources: tuple[str, str], via: str) -> tuple[float, float]:
    with backend(via) as models, tempfile.TemporaryDirectory() as out:
        factory = models.classifier(spec)
        asked = asked_of(spec, factory())
        wanted = {source: read_stage(source, ["image_id"])["image_id"].combine_chunks() for source in sources}
        stages = ImageStages(models.runner)

        def once(source: str) -> None:
            with tempfile.TemporaryDirectory(dir=out) as place:
                stages.classify(source, wanted[source], factory, asked, f"{place}/predictions", lambda _: None)

        once(sources[0])
        return timed(partial(once, sources[0])), timed(partial(once, sources[1]))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--photos")
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", type=Path, default=Path("/var/tmp/c2b-bench"))
    args = parser.parse_args()
    sources = images(args.place, FEW, args.photos), images(args.place, args.n, args.photos)
    if args.side:
        few, all_ = bare(args.spec, sources) if args.side == "bare" else piped(args.spec, sources, args.side)
        print(json.dumps({args.side: round((args.n - FEW) / (all_ - few), 2)}))
        return
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    for side in SIDES * args.rounds:
        command = [sys.executable, __file__, args.spec, "--side", side, "--n", str(args.n), "--place", str(args.place)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rates[side].append(json.loads(said.splitlines()[-1])[side])
    ratios = {side: round(median(rates[side]) / median(rates["bare"]), 3) for side in SIDES[1:]}
    print(json.dumps({"images_per_s": rates, "over_bare": ratios}))


if __name__ == "__main__":
    main()
