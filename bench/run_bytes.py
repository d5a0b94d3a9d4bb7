"""Measures the bytes that a labelled audit writes per image, by table.

    python bench/run_bytes.py [--n N] [--place FOLDER]

The JPEGs (`bench/photos.py`, about 59 kB each) are made once below --place, in a folder per class, with two attributes.
The classifier does nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from photos import photos

import c2b_ray

CLASSES, LIGHT, WEATHER = ("bus", "boat", "tram"), ("day", "night"), ("fog", "rain", "sun")


def labelled(place: Path, n: int) -> Path:
    folder = place / f"labelled-{n}"
    if (folder / "metadata.csv").exists():
        return folder
    rows = ["file_name,light,weather"]
    for i, data in enumerate(photos(n, 100_101)):
        name = f"{CLASSES[i % 3]}/{i:06d}.jpg"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        rows.append(f"{name},{LIGHT[i % 2]},{WEATHER[i // 3 % 3]}")
    (folder / "metadata.csv").write_text("\n".join(rows))
    return folder


def nothing(images: list[Any]) -> Any:
    return np.zeros((len(images), len(CLASSES)), np.float32) + np.arange(len(CLASSES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=3000)
    parser.add_argument("--place", type=Path, default=Path("/var/tmp/c2b-bench"))
    args = parser.parse_args()
    images = {"source": "labelled", "table": str(labelled(args.place, args.n))}
    config = {"task": "Recognise vehicles.", "classes": list(CLASSES), "images": images, "check": False}
    with tempfile.TemporaryDirectory() as out:
        run = Path(out) / "run"
        c2b_ray.audit(config, run, classifier=c2b_ray.InMemory(nothing, CLASSES))
        written: Counter[str] = Counter()
        for file in run.rglob("*"):
            if file.is_file():
                written[file.relative_to(run).parts[0]] += file.stat().st_size
    for name, size in written.most_common():
        print(f"{name}: {size / args.n:.1f}")
    print(f"all: {sum(written.values()) / args.n:.1f} bytes per image of {args.n:,}")


if __name__ == "__main__":
    main()
