"""Measures the cost of sending an image to a model behind Ray Serve, as file and as pixels: bytes and total CPU.

    python bench/serve_payload.py [--n 2000] [--rounds 3]

The classifier only computes a mean, so that decoding and transfer dominate. JPEGs of 500 × 375 go in requests of 32 to
the app, placed as in `deployments/laptop.yaml`. For pixels the caller decodes the images; for files the replica does.
CPU is the user and system time of this process and of all that it started, minus what they take when idle.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from photos import photos

from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.serving.ensure import ensure
from c2b_ray.serving.handles import ServedClassifier
from c2b_ray.serving.pictures import pack, pack_files
from c2b_ray.steps.decode import decode

ROWS = 32
MODEL = """
import numpy as np

class Means:
    labels, revision = ("dark", "light"), "1"

    def logits(self, images, keys):
        means = np.array([image[::16, ::16].mean() for image in images], np.float32)
        return np.stack([-means, means], axis=1)

def load(spec):
    return Means()
"""


def install(root: Path) -> None:
    """Installs the classifier as a third party's package, for this process and the replicas."""
    (root / "bench_means.py").write_text(MODEL)
    info = root / "bench_means-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-means\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[c2b_ray.models]\nclassifier.means = bench_means:load\n")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(root))


def cpu_s() -> float:
    """Returns the CPU seconds of this process and of all its running descendants."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # the process has ended
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent[pid] for pid in family if pid in spent)


def as_files(classifier: ServedClassifier, files: list[bytes]) -> None:
    classifier.logits_of_files(files, [""] * len(files))


def as_pixels(classifier: ServedClassifier, files: list[bytes]) -> None:
    classifier.logits([decode(data) for data in files], [""] * len(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    images = list(photos(args.n, 100_301))
    requests = [images[i : i + ROWS] for i in range(0, args.n, ROWS)]
    sample = images[:ROWS]
    sent = {"files": pack_files(sample).buffer.nbytes, "pixels": pack([decode(i) for i in sample]).buffer.nbytes}
    took: dict[str, list[float]] = {"files": [], "pixels": []}
    walls: dict[str, list[float]] = {"files": [], "pixels": []}
    with TemporaryDirectory() as root:
        install(Path(root))
        with ensure_ray(num_cpus=2), ensure(classifiers=True, tenancy="alone") as served:
            classifier = served.classifier("means:x")
            threads = classifier.calls_at_once
            as_files(classifier, images[:ROWS])  # the replica starts and loads
            began, before = time.perf_counter(), cpu_s()
            time.sleep(10)
            idle = (cpu_s() - before) / (time.perf_counter() - began)
            with ThreadPoolExecutor(threads) as pool:
                for _ in range(args.rounds):
                    for kind, ask in (("files", as_files), ("pixels", as_pixels)):
                        began, before = time.perf_counter(), cpu_s()
                        list(pool.map(lambda part, ask=ask: ask(classifier, part), requests))
                        wall = time.perf_counter() - began
                        took[kind].append((cpu_s() - before - idle * wall) / args.n * 1000)
                        walls[kind].append(args.n / wall)
    report = {
        "bytes_an_image": {kind: round(size / ROWS) for kind, size in sent.items()},
        "cpu_ms_an_image": {kind: round(median(values), 2) for kind, values in took.items()},
        "images_per_s": {kind: round(median(values)) for kind, values in walls.items()},
        "idle_cores": round(idle, 3),
        "requests_at_once": threads,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
