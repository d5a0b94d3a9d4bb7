"""Measures how fast pictures reach a model: a whole labelled audit against processes that only read, decode and resize.

    python bench/feed.py [--n N] [--rounds R] [--place FOLDER] [--distinct D] [--sides bare audit]
    python bench/feed.py --gpu [--n N] [--vias here actors serve] [--workers W] [--precision bf16]

The JPEGs (`bench/photos.py`, 500 × 375, about 59 kB) and a CSV file with their classes are made once below --place.
Without --gpu: `bare` is one process per core that reads, decodes, resizes and crops its share of the files by the
product's own functions, and nothing else; `audit` is a labelled audit, in one process and its workers, whose classifier
does nothing: from the call until its scores are written, and until its report is. CPU seconds are those of all
processes. The sides take turns. With --distinct the table lists D files
again and again, up to N rows: a large audit without room for its files.

With --gpu a ResNet-50 with random weights answers: in a plain torch loop with a DataLoader, as users write it, with as
many worker processes as cores and Pillow; and in the audit, through each of --vias. `steady` is the rate between the
first and the last tenth of the pictures, `first` the seconds from the call to the first answer.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

CORES = len(os.sched_getaffinity(0))
LABELS = 1000
CLASSES = 10
MEASURES = {"cpu": "cpu", "wall": "seconds"}
Spans = dict[str, tuple[float, float]]


def make(place: Path, n: int, distinct: int | None = None) -> Path:
    """Writes JPEGs, a CSV file of `n` rows and `labels.txt`; returns the CSV file. `distinct`: how many JPEGs, or n."""
    if distinct is not None:
        make(place, distinct)
    files = distinct or n
    table = place / (f"{n}.csv" if distinct is None else f"{n}-of-{distinct}.csv")
    if not table.is_file():
        (place / "images").mkdir(parents=True, exist_ok=True)
        shares = [range(first, files, 64) for first in range(64)]
        with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(_some_photos, place), shares))
        (place / "labels.txt").write_text("".join(f"label_{number}\n" for number in range(LABELS)))
        with table.open("w", newline="") as file:
            rows = [
                (f"images/{i % files:06}.jpg", f"label_{i % CLASSES}", ("day", "night")[i // CLASSES % 2])
                for i in range(n)
            ]
            csv.writer(file).writerows([("image", "target_class", "light"), *rows])
    return table


def _some_photos(place: Path, numbers: range) -> None:
    from photos import photos

    missing = [number for number in numbers if not (place / f"images/{number:06}.jpg").is_file()]
    for number, data in zip(missing, photos(len(missing), 100_300 + numbers.start), strict=True):
        (place / f"images/{number:06}.jpg").write_bytes(data)


def files_of(table: Path) -> list[Path]:
    with table.open(newline="") as file:
        return [table.parent / row["image"] for row in csv.DictReader(file)]


def bare(table: Path) -> Spans:
    files = files_of(table)
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
        list(pool.map(_shaped, [files[:8]] * CORES))  # each has loaded what it needs
        began = time.time()
        list(pool.map(_shaped, [files[core::CORES] for core in range(CORES)]))
        return {"end": (began, time.time())}


def _shaped(files: list[Path]) -> int:
    from c2b_ray.models.pixels.resize import shaped
    from c2b_ray.roles import Shape
    from c2b_ray.steps.decode import decode

    shape = Shape(256, "bilinear", (224, 224))
    return sum(int(shaped(decode(file.read_bytes()), shape)[0, 0, 0]) for file in files)


class Nothing:
    """A classifier that gives the label that it was asked for last time, whatever the picture."""

    labels = tuple(f"label_{number}" for number in range(LABELS))
    revision = "nothing"

    def __init__(self) -> None:
        from c2b_ray.roles import Shape

        self.shape = Shape(256, "bilinear", (224, 224))

    def logits(self, images: Any, keys: Any) -> Any:
        return self.logits_of_shaped(images)

    def logits_of_shaped(self, images: Any) -> Any:
        import numpy as np

        return np.tile(np.arange(LABELS, dtype=np.float32), (len(images), 1))


def nothing(_: object) -> Nothing:
    return Nothing()


def audited(table: Path, spec: str, via: str, placement: dict[str, Any] | None = None) -> dict[str, Any]:
    """Runs a labelled audit; returns its spans, the steady rate of classifying and when the first answer came."""
    import c2b_ray
    from c2b_ray.engine.progress import Progress
    from c2b_ray.models import catalog

    catalog.CATALOG["classifier", "nothing"] = "feed:nothing"
    seen: list[tuple[float, int]] = []
    scored: list[float] = []

    def listener(event: Any) -> None:
        if (event.step, event.kind) == ("score", "end"):
            scored.append(time.time())
        if event.step.startswith("classify") and isinstance(progress := getattr(event, "progress", None), Progress):
            seen.append((time.time(), progress.answered))

    began = time.time()
    with tempfile.TemporaryDirectory(dir=table.parent) as out:
        config = {
            "task": "Name the label.",
            "classes": list(Nothing.labels[:CLASSES]),
            "classifier": spec,
            "images": {"source": "labelled", "table": str(table)},
            "check": False,  # its answers are at chance, which stops other audits
        }
        run = c2b_ray.audit(config, Path(out) / "run", via=via, listener=listener, placement=placement)
        manifest = run.manifest
        assert manifest["counts"]["prediction_errors"] == 0
        written, shown = (
            sum(file.stat().st_size for file in Path(out).rglob(files)) for files in ("*.parquet", "shown/*.parquet")
        )
    count = max(answered for _, answered in seen)
    return {
        "scores": (began, scored[-1]),
        "report": (began, time.time()),
        "seconds": manifest["seconds"],
        "placement": manifest.get("placement"),
        "steady": round(_steady(seen, count), 1),
        "first": round(next(when for when, answered in seen if answered) - began, 2),
        "bytes": round(written / count),
        "bytes_shown": round(shown / count),  # of which: the pictures of the report, at most 600 and those of findings
    }


def _steady(seen: list[tuple[float, int]], count: int) -> float:
    """Returns the rate between the first and the last tenth of the answers."""
    middle = [(when, answered) for when, answered in seen if 0.1 * count <= answered <= 0.9 * count]
    if len(middle) < 2 or middle[-1][0] <= middle[0][0]:
        return float("nan")
    return (middle[-1][1] - middle[0][1]) / (middle[-1][0] - middle[0][0])


def loader(table: Path, weights: Path, workers: int, precision: str) -> dict[str, Any]:
    """Returns the rates of a plain torch loop."""
    import timm
    import torch
    from PIL import Image
    from safetensors.torch import load_file
    from torch.utils.data import DataLoader, Dataset

    began = time.time()
    files = files_of(table)
    prepare = timm.data.create_transform(**timm.data.resolve_model_data_config(timm.create_model("resnet50")))

    class Files(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, number: int) -> Any:
            with Image.open(files[number]) as image:
                return prepare(image.convert("RGB"))

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = timm.create_model("resnet50")
    model.load_state_dict(load_file(weights))
    model = model.eval().to(device, dtype, memory_format=torch.channels_last)
    seen, done = [], 0
    batches = DataLoader(
        Files(), 256, num_workers=workers, pin_memory=device.type == "cuda", multiprocessing_context="fork"
    )
    with torch.inference_mode():
        for batch in batches:
            found = model(batch.to(device, dtype, memory_format=torch.channels_last, non_blocking=True)).argmax(1).cpu()
            done += len(found)
            seen.append((time.time(), done))
    return {
        "report": (began, time.time()),
        "steady": round(_steady(seen, len(files)), 1),
        "first": round(seen[0][0] - began, 2),
    }


def weights_of(place: Path) -> Path:
    file = place / "resnet50.safetensors"
    if not file.is_file():
        import timm
        import torch
        from safetensors.torch import save_model

        torch.manual_seed(0)
        save_model(timm.create_model("resnet50"), str(file))
    return file


def on_gpu(args: argparse.Namespace, table: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    weights_of(args.place)
    for side in ("loader", *args.vias):
        yield side, _in_process(args, side, table)


def _in_process(args: argparse.Namespace, side: str, table: Path) -> dict[str, Any]:
    from cpu_time import watched

    command = [sys.executable, __file__, "--side", side, "--n", str(args.n), "--place", str(args.place)]
    command += ["--workers", str(args.workers), "--precision", args.precision, *(["--gpu"] if args.gpu else [])]
    command += [] if args.decoders is None else ["--decoders", str(args.decoders)]
    command += [] if args.batch is None else ["--batch", str(args.batch)]
    command += [] if args.distinct is None else ["--distinct", str(args.distinct)]
    report = table.parent / "side.json"
    spans = watched([*command, "--report", str(report)])
    numbers = {
        f"{what} to {name}": round(span[key], 2) for name, span in spans.items() for what, key in MEASURES.items()
    }
    return {**numbers, **json.loads(report.read_text())}


def one_side(args: argparse.Namespace, table: Path) -> None:
    settings = {name: getattr(args, name) for name in ("decoders", "batch") if getattr(args, name) is not None}
    placement = {"stages": {"classify": settings}} if settings else None
    if args.side == "bare":
        found: dict[str, Any] = dict(bare(table))
    elif args.side == "loader":
        found = loader(table, weights_of(args.place), args.workers, args.precision)
    elif args.gpu:
        options = f"weights={weights_of(args.place)}&labels={args.place}/labels.txt&precision={args.precision}"
        found = audited(table, f"timm:resnet50?{options}", args.side, placement)
    else:
        found = audited(table, "nothing:at-all", "here", placement)
    spans = {name: found.pop(name) for name in ("end", "scores", "report") if name in found}
    if args.report:
        args.report.write_text(json.dumps(found))
    print(json.dumps(spans))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--distinct", type=int, help="files that the rows repeat, instead of as many as rows")
    parser.add_argument("--sides", nargs="*", default=["bare", "audit"], choices=["bare", "audit"])
    parser.add_argument("--vias", nargs="*", default=["here", "actors", "serve"])
    parser.add_argument("--workers", type=int, default=CORES)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--decoders", type=int, help="processes that decode, instead of the default")
    parser.add_argument("--batch", type=int, help="rows of a batch, instead of the default")
    parser.add_argument("--place", type=Path, default=Path("/var/tmp/c2b-bench/feed"))
    parser.add_argument("--side")
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    table = make(args.place, args.n, args.distinct)
    if args.side:
        one_side(args, table)
        return
    if args.gpu:
        found = {}
        for side, numbers in on_gpu(args, table):
            found[side] = {**numbers, "whole": round(args.n / numbers["wall to report"], 1)}
            print(side, json.dumps(found[side]), flush=True)
        for side in args.vias:
            print(f"{side} over loader, steady: {found[side]['steady'] / found['loader']['steady']:.2f}")
        return
    rounds = [{side: _in_process(args, side, table) for side in args.sides} for _ in range(args.rounds)]
    print(json.dumps(rounds, indent=1))
    if len(args.sides) < 2:
        return
    for what in ("cpu to scores", "wall to scores", "cpu to report", "wall to report"):
        bare_measure = f"{what.split()[0]} to end"
        ratios = [one["audit"][what] / one["bare"][bare_measure] for one in rounds]
        print(f"{what}: {median(ratios):.2f} times that of the bare processes {[round(ratio, 2) for ratio in ratios]}")


if __name__ == "__main__":
    main()
