"""Measures how many JPEGs a second processes decode, resize and crop at most, by their number, and nothing else.

    python bench/decoding_processes.py [--processes 1 8 16] [--seconds 1]

Each process takes the same pictures in memory through the product's own functions, for as long as the others. Rates are
of all processes together. `model` is what the process of the model then does for an image of a labelled audit of 1,000
labels, in milliseconds of its thread.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa
from photos import photos

from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Blocks, Floats, Shape
from c2b_ray.steps.classify import LoadedClassifier, classification, predict_all
from c2b_ray.steps.decode import decode
from c2b_ray.steps.fingerprint import fingerprint
from c2b_ray.steps.prepared import PreparedView, prepared

SHAPE = Shape(256, "bilinear", (224, 224))
WORK = ("decode", "resize and crop", "both", "all")
PICTURES, BATCH = 32, 256


def counted(seconds: float, work: str, files: list[bytes], results: Any) -> None:
    pixels = decode(files[0])
    steps = {
        "decode": decode,
        "resize and crop": lambda _: shaped(pixels, SHAPE),
        "both": lambda data: shaped(decode(data), SHAPE),
        "all": lambda data: (sha256(data).digest(), _looked(decode(data))),
    }
    step = steps[work]
    step(files[0])
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for data in files:
            step(data)
        done += len(files)
    results.put(done / (time.perf_counter() - began))


def _looked(pixels: Any) -> None:
    fingerprint(pixels)
    shaped(pixels, SHAPE)


class Nothing:
    labels = tuple(f"label_{number}" for number in range(1000))
    revision = "1"
    shape = SHAPE
    answers = np.random.default_rng(0).normal(size=(BATCH, 1000)).astype(np.float32)

    def logits_of_shaped(self, images: Blocks) -> Floats:
        return self.answers[: len(images)]

    def logits(self, images: Any, keys: Any) -> Floats:
        return self.answers[: len(images)]


def of_model(files: list[bytes]) -> float:
    """Returns the milliseconds of an image in the process of the model."""
    model = Nothing()
    asking = classification("nothing", model, model.labels[:10], None)
    ids = [f"image {number}" for number in range(BATCH)]
    rows = pa.table(
        {
            "image_id": ids,
            "key": ids,
            "bytes": pa.array([files[number % len(files)] for number in range(BATCH)], pa.binary()),
            "error": pa.nulls(BATCH, pa.string()),
            "prediction_id": pa.array([[name] for name in asking.prediction_ids(ids)], pa.list_(pa.string())),
        }
    )
    ready, asked = prepared(rows, [PreparedView(SHAPE, shaped)]), [LoadedClassifier(model, asking)]
    predict_all(ready, asked)
    began = time.thread_time()
    for _ in range(20):
        predict_all(ready, asked)
    return (time.thread_time() - began) / 20 / BATCH * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="*", default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    context, files = get_context("spawn"), list(photos(PICTURES, 100_401))
    for work in WORK:
        rates = {}
        for count in args.processes:
            results = context.Queue()
            target = partial(counted, args.seconds, work, files, results)
            processes = [context.Process(target=target) for _ in range(count)]
            for process in processes:
                process.start()
            rates[count] = round(sum(results.get() for _ in processes), 1)
            for process in processes:
                process.join()
        print(json.dumps({"work": work, "images a second by processes": rates}), flush=True)
    print(json.dumps({"work": "model", "ms an image": round(of_model(files), 4)}))


if __name__ == "__main__":
    main()
