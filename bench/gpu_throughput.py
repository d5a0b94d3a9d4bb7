"""Measures images per second of one GPU, by precision and batch, and of the CPUs that feed it, for `docs/scale.md`.

    python bench/gpu_throughput.py [SPEC] [--device cuda] [--seconds S]

SPEC: a torch classifier, without precision and batch; by default a timm ResNet-50 with random weights. There are three
rates: `model`, for batches already on the device; `fed`, for batches of the model's input size in pinned memory, copied
while the model computes the batch before; `whole`, from encoded JPEGs, with as many threads as cores. The GPU is well
fed where `fed` equals `model`; `whole` shows how many cores that takes. It has not run on a GPU yet, since this project
had none; --device cpu checks that the script works.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from photos import photos
from safetensors.torch import save_model

from c2b_ray.models import catalog
from c2b_ray.models.batched_run import Transfer
from c2b_ray.models.devices import PRECISIONS
from c2b_ray.models.torch_runtime import TorchClassifier, runtime_of
from c2b_ray.steps.decode import decode

CORES = len(os.sched_getaffinity(0))
BATCHES = (64, 256, 1024)


def rate(seconds: float, device: torch.device, batch: int, run: Callable[[Iterator[int]], Any]) -> float:
    """Returns the images per second of `run`, which processes one batch per item."""
    for timed in (seconds / 4, seconds):  # the first pass loads, compiles and allocates
        began, steps = time.perf_counter(), 0

        def until(began: float = began, timed: float = timed) -> Iterator[int]:
            nonlocal steps
            for _ in takewhile(lambda _: time.perf_counter() - began < timed, repeat(None)):
                steps += 1
                yield steps

        run(until())
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return steps * batch / (time.perf_counter() - began)


def rates(spec: str, seconds: float, files: list[bytes]) -> dict[str, float]:
    classifier = catalog.classifier(spec)
    assert isinstance(classifier, TorchClassifier)
    runtime = runtime_of(catalog.parse(spec))
    module, prepare, device = classifier.module, classifier.preparation, runtime.device
    transfer = Transfer(device)
    pixels = [decode(data) for data in files]
    stacked = prepare.stacked([pixels[i % len(pixels)] for i in range(runtime.batch)], pinned=transfer.pinned)
    there = stacked.to(device)

    def step(batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = module(prepare.normalised(batch).to(runtime.dtype))
        return answer

    def model(steps: Iterator[int]) -> None:
        for _ in steps:
            step(there)

    def fed(steps: Iterator[int]) -> None:
        for batch in transfer(lambda _: stacked, steps):
            step(batch).float().cpu()

    def whole(steps: Iterator[int]) -> None:
        def one(_: int) -> None:
            images = [decode(files[i % len(files)]) for i in range(runtime.batch)]
            classifier.logits(images, [""] * len(images))

        with ThreadPoolExecutor(CORES) as pool:
            pending = [pool.submit(one, number) for number in (next(steps, 0) for _ in range(CORES))]
            for number in steps:
                pending.pop(0).result()
                pending.append(pool.submit(one, number))
            for future in pending:
                future.result()

    with torch.inference_mode():
        ways = {"model": model, "fed": fed, "whole": whole}
        return {name: round(rate(seconds, device, runtime.batch, way), 1) for name, way in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", nargs="?")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batches", type=int, nargs="*", default=BATCHES)
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.exit(1, f"no GPU: torch {torch.__version__} sees none; --device cpu checks that this script works\n")
    files = list(photos(256, 100_101))
    with tempfile.TemporaryDirectory() as place:
        spec = args.spec
        if spec is None:
            file = Path(place, "resnet50.safetensors")
            save_model(timm.create_model("resnet50"), str(file))
            spec = f"timm:resnet50?weights={file}"
        report: dict[str, Any] = {"cores": CORES, "kB": round(float(np.mean([len(f) for f in files])) / 1000, 1)}
        if args.device.startswith("cuda"):
            report["gpu"] = torch.cuda.get_device_name()
        for precision in PRECISIONS:
            for batch in args.batches:
                options = f"device={args.device}&precision={precision}&batch={batch}"
                whole = f"{spec}{'&' if '?' in spec else '?'}{options}"
                report[f"{precision}, batches of {batch}"] = rates(whole, args.seconds, files)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
