"""From a bare folder of photographs to a first report: commands, CPU seconds and minutes.

    python bench/first_report.py                       500 scenes of the embedded world, JPEGs of 500 × 375 pixels
    python bench/first_report.py --real DIR            cue-conflict photographs by shape, and MobileNetV2, from DIR

A run is one command, `c2b audit FOLDER --classifier SPEC`, in an empty working directory. Of the photographs by shape
it also prints how the sixteen folders were matched to ImageNet's labels, against Geirhos' own categories.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from PIL import Image

from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample

IMAGES, SEED = 500, 100_000


def of_scenes(folder: Path) -> None:
    for number, scene in enumerate(sample(IMAGES, SEED)):
        path = folder / scene.target_class / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene)).resize((500, 375)).save(path, quality=90)


def of_shapes(folder: Path, real: Path) -> None:
    for row in csv.DictReader((real / "cue-conflict/labels.csv").read_text().splitlines()):
        (folder / row["shape"]).mkdir(parents=True, exist_ok=True)
        shutil.copy(real / "cue-conflict" / row["file"], folder / row["shape"])  # links that lead out are not read


def count_of(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def matched(file: Path, real: Path) -> str:
    """Returns how many of Geirhos' labels stand for the same class in the audit file, and how many others do."""
    label_map = yaml.safe_load(file.read_text())["label_map"]
    categories = json.loads((real / "cue-conflict/entry_categories.json").read_text())
    same = sum(len({*label_map.get(name, ())} & {*labels}) for name, labels in categories.items())
    others = sum(len({*label_map.get(name, ())} - {*labels}) for name, labels in categories.items())
    every = sum(map(len, categories.values()))
    return f"{len(label_map)} of {len(categories)} classes; {same} of {every} of Geirhos' labels, and {others} others"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "photos"
        if arguments.real is None:
            of_scenes(folder)
            spec = "world:resnet-planted-0"
        else:
            of_shapes(folder, arguments.real)
            spec = f"onnx:{arguments.real.resolve()}/mobilenet_v2_imagenet1k.onnx?mean=0.5&std=0.5"
        command = [sys.executable, "-m", "c2b_ray", "audit", "photos", "--classifier", spec]
        began = time.monotonic()
        done = subprocess.run(command, cwd=name, check=True, capture_output=True, text=True)
        wall = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(done.stdout)
        if arguments.real is not None:
            print(matched(Path(name) / "runs/photos.yaml", arguments.real))
        print(
            f"{count_of(folder)} images, 1 command: {used.ru_utime + used.ru_stime:.1f} CPU-s, {wall / 60:.2f} minutes"
        )


if __name__ == "__main__":
    main()
