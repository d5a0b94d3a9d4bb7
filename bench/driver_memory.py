"""Measures the peak memory of the process that starts an audit, by step, for N images and for a hundredth of them.

    python bench/driver_memory.py [10000 1000000] [--via actors] [--place FOLDER] [--minutes M]

The audit reads a labelled table of tiny pictures of noise, no two of them alike, and a table of predictions in place of
a classifier; what remains is the memory of the framework itself. Each size runs in its own process. The peak is that of
this process, without Ray's workers. `before` is its memory when the audit begins. `of these, shared` is the part of the
highest peak that consists of pages of Ray's object store: they belong to the store, whose size Ray limits, and count in
each process that reads them.

With --place, tables, runs and peaks are kept in that folder. With --minutes, an audit is interrupted after that time,
and the same command continues it; the peaks are then those of all its processes, each of which resumed the work of the
one before.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.kit.progress import Event

CLASSES, WEATHER = ("bus", "boat"), ("fog", "rain", "snow")
AT_ONCE = 50_000
MIB = 2**20


def write_tables(place: Path, images: int) -> None:
    """Writes `labels.parquet` with the pictures, and `predictions.parquet`, in which nine of ten answers are right."""
    labels = predictions = None
    for first in range(0, images, AT_ONCE):
        rows = np.arange(first, min(images, first + AT_ONCE))
        random = np.random.default_rng(first)
        classes = np.array(CLASSES)[random.integers(0, 2, len(rows))]
        right = random.random(len(rows)) < 0.9
        keys = [f"{row:08d}.jpg" for row in rows]
        pictures = [picture(pixels) for pixels in random.integers(0, 256, (len(rows), 16, 16, 3), np.uint8)]
        table = pa.table(
            {
                "key": keys,
                "image": pa.array(pictures, pa.binary()),
                "target_class": classes,
                "weather": np.array(WEATHER)[random.integers(0, 3, len(rows))],
            }
        )
        said = np.where(right, classes, np.where(classes == "bus", "boat", "bus"))
        answers = pa.table({"file": keys, "label": said})
        labels = labels or pq.ParquetWriter(place / "labels.parquet", table.schema)
        predictions = predictions or pq.ParquetWriter(place / "predictions.parquet", answers.schema)
        labels.write_table(table, row_group_size=4096)
        predictions.write_table(answers)
    for writer in (labels, predictions):
        if writer is not None:
            writer.close()


def picture(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    data = BytesIO()
    Image.fromarray(pixels).save(data, "JPEG")
    return data.getvalue()


SHARED = "of these, shared"


class Peaks:
    """Records the largest resident memory by step, and the shared part of the largest."""

    def __init__(self) -> None:
        self.step = "before"
        self.peaks: dict[str, float] = {}
        self._over = threading.Event()

    def listen(self, event: Event) -> None:
        if event.kind == "begin":
            self.step = event.step.partition(":")[0]
        if event.kind == "end":
            self.look()
            self.step = "between"

    def look(self) -> None:
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        status = {words[0]: int(words[1]) / 1024 for words in lines if words[0] in ("VmRSS:", "RssShmem:")}
        size = status["VmRSS:"]
        if size > highest(self.peaks):
            self.peaks[SHARED] = status["RssShmem:"]
        self.peaks[self.step] = max(size, self.peaks.get(self.step, 0.0))

    @contextmanager
    def watched(self) -> Iterator[None]:
        def watch() -> None:
            while not self._over.wait(0.02):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        yield
        self._over.set()
        thread.join()


def one(images: int, via: str, place: Path, minutes: float) -> None:
    """Continues the audit at `place`; prints the peaks of all its processes, and whether it has ended."""
    write_in_another_process(place, images)
    config = {
        "task": "Tell buses from boats.",
        "classes": list(CLASSES),
        "classifier": f"table:{place / 'predictions.parquet'}",
        "images": {"source": "labelled", "table": str(place / "labels.parquet")},
    }
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # acts as Ctrl-C
    signal.setitimer(signal.ITIMER_REAL, minutes * 60)
    began, peaks, ended = time.perf_counter(), Peaks(), False
    with peaks.watched(), suppress(KeyboardInterrupt):
        audit(config, place / "run", via, peaks.listen)
        ended = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(added(place, time.perf_counter() - began, peaks.peaks, ended) | {"images": images}), flush=True)


def added(place: Path, seconds: float, peaks: dict[str, float], ended: bool) -> dict[str, Any]:
    """Returns the peaks of the audit so far, this process included."""
    kept = place / "peaks.json"
    before = json.loads(kept.read_text()) if kept.is_file() else {"seconds": 0.0, "peaks": {}, "processes": 0}
    whole = {
        "seconds": round(before["seconds"] + seconds, 1),
        "peaks": {step: max(peaks.get(step, 0), before["peaks"].get(step, 0)) for step in {**before["peaks"], **peaks}},
        "processes": before["processes"] + 1,
        "ended": ended,
    }
    kept.write_text(json.dumps(whole))
    return whole


def highest(peaks: dict[str, float]) -> float:
    return max((size for step, size in peaks.items() if step != SHARED), default=0.0)


def write_in_another_process(place: Path, images: int) -> None:
    if not (place / "written").is_file():
        subprocess.run([sys.executable, __file__, str(images), "--write", str(place)], check=True)
        (place / "written").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--via", default="actors")
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--minutes", type=float, default=0.0)
    args = parser.parse_args()
    if args.write:
        write_tables(args.write, args.images[0])
    elif args.one:
        one(args.images[0], args.via, args.place, args.minutes)
    elif args.place:
        report(args.images, args.via, args.place, args.minutes)
    else:
        with tempfile.TemporaryDirectory() as folder:
            report(args.images, args.via, Path(folder), 0.0)


def report(sizes: list[int], via: str, folder: Path, minutes: float) -> None:
    found = []
    for images in sizes:
        place = folder / f"{via}-{images}"
        place.mkdir(parents=True, exist_ok=True)
        kept = place / "peaks.json"
        if kept.is_file() and (known := json.loads(kept.read_text()))["ended"]:
            found.append(known | {"images": images})
            continue
        options = ["--via", via, "--one", "--place", str(place), "--minutes", str(minutes)]
        command = [sys.executable, __file__, str(images), *options]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
        if not found[-1]["ended"]:
            print(f"{images:,} images: interrupted after {minutes:g} minutes; run the same command again to resume")
            return
    steps = sorted(dict.fromkeys(step for run in found for step in run["peaks"]), key=SHARED.__eq__)
    print("MiB at most, of the driver".ljust(34), *(f"{run['images']:>12,}" for run in found))
    for step in steps:
        print(step[:32].ljust(34), *(f"{run['peaks'].get(step, 0):>12.0f}" for run in found))
    whole = [highest(run["peaks"]) for run in found]
    print("all".ljust(34), *(f"{peak:>12.0f}" for peak in whole))
    print("seconds".ljust(34), *(f"{run['seconds']:>12.1f}" for run in found))
    own = [peak - run["peaks"][SHARED] for peak, run in zip(whole, found, strict=True)]
    print(f"{sizes[-1]:,} images over {sizes[0]:,}: {whole[-1] / whole[0]:.2f}; unshared {own[-1] / own[0]:.2f}")
    slope = (whole[-1] - whole[0]) * MIB / (sizes[-1] - sizes[0])
    print(f"bytes an image: {slope:.0f}")


if __name__ == "__main__":
    main()
