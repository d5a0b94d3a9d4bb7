"""Measures time of scoring many images, and memory besides its tables.

    python bench/scoring.py [--draws N] [--verified] [--distinct] [--seed S]

The script makes the Arrow tables of a run, with ids as long as real ones. They hold N draws of CAPTIONS captions per
cell, for CLASSES classes with ATTRIBUTES attributes each, from 0.8 N images, and the predictions of two classifiers for
all images; one value in ten has a lower accuracy. Then it scores them and prints one line of JSON:

    draws, rows           number of draws; number of rows of each table
    seconds, cpu_seconds  of scoring alone: wall-clock time, and CPU time of the process on all cores
    table_bytes           bytes of captions, draws and predictions (with --verified, --distinct: of those tables too)
    peak_over_tables      peak memory of scoring, without the tables, over table_bytes
    peak_with_tables      the same with the tables

--verified adds a verifier's answers for every image and a calibration. --distinct adds fingerprints, of which one in a
hundred repeats another image; finding the copies is part of the measured time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import threading
import time

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.steps.cells import ATTRIBUTE
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.observe import CLASS
from c2b_ray.tables import CALIBRATION, CAPTIONS, DRAWS, IMAGES, PREDICTIONS, VERIFICATIONS, content_id

CLASSES, ATTRIBUTES, VALUES, CAPTIONS_PER_CELL = 10, 10, 4, 5
CLASSIFIERS = ("timm:resnet50.a1_in1k", "open_clip:ViT-B-32/laion2b_s34b_b79k")
LABELS = 1000
TAU, ALPHA = 0.05, 0.05
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
Random = np.random.Generator


def ids(random: Random, n: int) -> pa.Array:
    """Returns ids of 20 hexadecimal digits, as `content_id` makes them."""
    data = random.integers(0, 256, (n, 10), dtype=np.uint8)
    digits = np.empty((n, 20), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = HEX[data >> 4], HEX[data & 15]
    offsets = np.arange(n + 1, dtype=np.int32) * 20
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(digits.ravel()))


def words(names: list[str], numbers: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), names).cast(pa.string())


def table(schema: pa.Schema, n: int, **columns: pa.Array | str) -> pa.Table:
    """Returns a table: a single text fills its column, and missing columns are null."""
    return pa.table(
        [
            pa.nulls(n, field.type)
            if field.name not in columns
            else words([columns[field.name]], np.zeros(n, np.int32))
            if isinstance(columns[field.name], str)
            else columns[field.name]
            for field in schema
        ],
        schema=schema,
    )


def captions() -> pa.Table:
    rows = []
    for c in range(CLASSES):
        for a in range(ATTRIBUTES):
            names = {"proposal_id": content_id(c, a), "target_class": f"class {c}", "attribute": f"attribute {a}"}
            for v in range(VALUES):
                for number in range(CAPTIONS_PER_CELL):
                    text = f"a photo of class {c}, attribute {a}: value {v}, take {number}"
                    row = {"bias_class": f"value {v}", "number": number, "text": text, "caption_id": content_id(text)}
                    rows.append(names | row | {"kind": ATTRIBUTE})
    return pa.Table.from_pylist(rows, CAPTIONS)


def predictions(random: Random, images: pa.Array, target: np.ndarray, share: np.ndarray) -> pa.Table:
    """Returns predictions for every image by each classifier, in random order. share: the chance of a right answer."""
    labels = [f"class {c}" for c in range(CLASSES)] + [f"label {i}" for i in range(LABELS - CLASSES)]
    tables = []
    for classifier in CLASSIFIERS:
        order = random.permutation(len(images))
        right = random.random(len(images)) < share[order]
        wrong = random.integers(0, LABELS, len(images))
        label = np.where(right, target[order], wrong)
        predicted = pa.array(label, pa.int32(), mask=label >= CLASSES)
        sure = pa.array(random.random(len(images), np.float32))
        tables.append(
            table(
                PREDICTIONS,
                len(images),
                prediction_id=ids(random, len(images)),
                image_id=images.take(pa.array(order)),
                classifier=classifier,
                revision="a1208ad0",
                label=words(labels, label),
                label_probability=sure,
                predicted_class=pa.DictionaryArray.from_arrays(predicted, labels[:CLASSES]).cast(pa.string()),
                class_probability=sure,
            )
        )
    return pa.concat_tables(tables)


def lists(values: pa.Array, each: int) -> pa.Array:
    return pa.ListArray.from_arrays(np.arange(0, len(values) + 1, each, dtype=np.int32), values)


def verifications(random: Random, images: pa.Array, target: np.ndarray, shows: np.ndarray) -> pa.Table:
    """Returns a verifier's answers about every image: a value for each attribute. In nine of ten cases it is the value
    for which the image was drawn, if it was drawn for that attribute."""
    n = len(images)
    said = np.where((shows >= 0) & (random.random(shows.shape) < 0.9), shows, random.integers(0, VALUES, shows.shape))
    names = np.tile(np.arange(ATTRIBUTES), n)
    return table(
        VERIFICATIONS,
        n,
        verification_id=ids(random, n),
        image_id=images,
        target_class=words([f"class {c}" for c in range(CLASSES)], target),
        revision="v1",
        class_shown=words([f"class {c}" for c in range(CLASSES)], target),
        attributes=lists(words([f"attribute {a}" for a in range(ATTRIBUTES)], names), ATTRIBUTES),
        values=lists(words([f"value {v}" for v in range(VALUES)], said.ravel()), ATTRIBUTES),
        certainties=lists(pa.nulls(n * ATTRIBUTES, pa.float32()), ATTRIBUTES),
    )


def calibration() -> pa.Table:
    names = {f"attribute {a}": [f"value {v}" for v in range(VALUES)] for a in range(ATTRIBUTES)}
    names[CLASS] = [f"class {c}" for c in range(CLASSES)]
    rows = [
        {"attribute": name, "value": value, "answer": answer, "source": "table"}
        | {"images": 139.0 if value == answer else 11.0 / (len(values) - 1)}
        for name, values in names.items()
        for value in values
        for answer in values
    ]
    return pa.Table.from_pylist(rows, CALIBRATION)


def fingerprints(random: Random, images: pa.Array) -> pa.Table:
    marks = random.integers(0, 256, (len(images), 200), dtype=np.uint8)
    copies = random.integers(0, len(images), len(images) // 100)
    marks[random.permutation(len(images))[: len(copies)]] = marks[copies]
    offsets = np.arange(len(images) + 1, dtype=np.int64) * 200
    data = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(images), [None, pa.py_buffer(offsets), pa.py_buffer(marks.ravel())]
    )
    schema = pa.schema([IMAGES.field("image_id"), IMAGES.field("content"), pa.field("fingerprint", pa.large_binary())])
    return pa.table([images, ids(random, len(images)), data], schema=schema).select(DISTINCT_COLUMNS)


class Peak:
    """Measures how far this process's memory rises, while the block runs, above its level before."""

    def __enter__(self) -> Peak:
        gc.collect()
        pa.default_memory_pool().release_unused()
        self.start = self.most = _resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.most = max(self.most, _resident())


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=100_010)
    parser.add_argument("--verified", action="store_true")
    parser.add_argument("--distinct", action="store_true")
    return parser.parse_args()


def made(args: argparse.Namespace) -> dict[str, pa.Table]:
    """Makes the tables of a run with `args.draws` draws."""
    random, of_captions = np.random.default_rng(args.seed), captions()
    images = ids(random, args.draws * 4 // 5)
    target = random.integers(0, CLASSES, len(images)).astype(np.int32)
    per_class = ATTRIBUTES * VALUES * CAPTIONS_PER_CELL
    image = random.integers(0, len(images), args.draws)
    caption = target[image] * per_class + random.integers(0, per_class, args.draws)
    value = caption % per_class // CAPTIONS_PER_CELL
    share = np.full(len(images), 0.85)
    share[image[value % 10 == 0]] -= 0.2
    draws = table(
        DRAWS,
        args.draws,
        caption_id=of_captions["caption_id"].combine_chunks().take(pa.array(caption)),
        image_id=images.take(pa.array(image)),
        rank=pa.array(np.arange(args.draws), pa.int32()),
        similarity=pa.array(random.random(args.draws, np.float32)),
        source="retrieve",
    )
    tables = {"captions": of_captions, "draws": draws, "predictions": predictions(random, images, target, share)}
    if args.verified:
        shows = np.full((len(images), ATTRIBUTES), -1, np.int32)
        shows[image, value // VALUES] = value % VALUES
        tables["verifications"] = verifications(random, images, target, shows)
    if args.distinct:
        tables["images"] = fingerprints(random, images)
    return tables


def main() -> None:
    args = arguments()
    tables = made(args)
    size = sum(one.nbytes for one in tables.values())
    with Peak() as peak:
        start, start_cpu = time.perf_counter(), time.process_time()
        distinct = Distinct(tables["images"]) if args.distinct else None
        verified = VerifiedImages(tables["verifications"], calibration()) if args.verified else None
        scored_tables = [tables[name] for name in ("captions", "draws", "predictions")]
        scores = scored(*scored_tables, CLASSIFIERS, Thresholds(TAU, ALPHA), verified, distinct)[0]
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    result = {
        "draws": args.draws,
        "rows": {name: one.num_rows for name, one in tables.items()},
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "table_bytes": size,
        "peak_over_tables": round((peak.most - peak.start) / size, 2),
        "peak_with_tables": round(peak.most / size, 2),
        "verdicts": {str(v["values"]): v["counts"] for v in scores["verdict"].value_counts().to_pylist()},
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
