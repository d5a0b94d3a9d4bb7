"""Audits of a classifier that gives each label on its own, simulated: are planted biases found, and nothing else?

Five labels, two attributes, 1,500 images a run. In fog `a` is missed more often and `b` is given more often to images
that do not show it. `c` is given more often where `d` is, in any weather, and `d` is more frequent in fog: the
precision of `c` is lower there, for no other reason than what the images show. Nothing depends on `place`.

    python bench/several_labels.py [--runs 6] [--seed 100000] [--images 1500]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import c2b_ray

LABELS = ["a", "b", "c", "d", "e"]
METRICS = ["accuracy", "precision", "f1", "balanced_accuracy", "auroc"]
PLANTED = {"accuracy": "a", "precision": "b", "f1": "ab", "balanced_accuracy": "ab", "auroc": "ab"}


def made(folder: Path, images: int, seed: int) -> dict[str, object]:
    """Writes pictures, labels and predictions, and returns an audit's fields."""
    random = np.random.default_rng(seed)
    fog, indoors = random.random(images) < 0.5, random.random(images) < 0.5
    shows = random.random((images, 5)) < [0.3, 0.3, 0.3, 0.2, 0.4]
    shows[:, 3] = random.random(images) < np.where(fog, 0.6, 0.2)
    score = np.where(shows, 1.5, -1.5) + random.normal(0, 1, shows.shape)
    score[:, 0] -= 1.2 * (fog & shows[:, 0])
    score[:, 1] += 1.2 * (fog & ~shows[:, 1])
    score[:, 2] += 1.5 * (shows[:, 3] & ~shows[:, 2])
    lines, answers = ["image,target_class,weather,place"], ["file," + ",".join(LABELS)]
    for row in range(images):
        name = f"{row}.png"
        Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / name)
        own = ";".join(np.array(LABELS)[shows[row]])
        lines.append(f"{name},{own},{'fog' if fog[row] else 'sun'},{'in' if indoors[row] else 'out'}")
        answers.append(",".join([name, *(f"{p:.6f}" for p in 1 / (1 + np.exp(-score[row])))]))
    (folder / "labels.csv").write_text("\n".join(lines))
    (folder / "answers.csv").write_text("\n".join(answers))
    return {
        "task": "Say what a picture shows.",
        "classes": LABELS,
        "classifier": f"table:{folder / 'answers.csv'}?head=sigmoid",
        "images": {"source": "labelled", "table": str(folder / "labels.csv"), "separator": ";"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=100_000)
    asked = parser.parse_args()
    found, planted, other, by_mix = (dict.fromkeys(METRICS, 0) for _ in range(4))
    for run in range(asked.runs):
        with tempfile.TemporaryDirectory() as folder:
            fields = made(Path(folder), asked.images, asked.seed + run)
            for metric in METRICS:
                done = c2b_ray.audit({**fields, "metric": metric}, out=f"{folder}/{metric}", via="here")
                rows = done.scores.to_pylist()
                planted[metric] += len(PLANTED[metric])
                for row in rows:
                    if row["verdict"] not in ("for", "against"):
                        continue
                    label, where = row["target_class"], (row["attribute"], row["bias_class"], row["verdict"])
                    if label in PLANTED[metric] and where == ("weather", "fog", "against"):
                        found[metric] += 1
                    elif row["attribute"] != "weather" or label not in PLANTED[metric]:
                        other[metric] += 1
                        by_mix[metric] += label == "c"
    for metric in METRICS:
        print(f"{metric}: planted {found[metric]} of {planted[metric]}; others {other[metric]}, of c {by_mix[metric]}")


if __name__ == "__main__":
    main()
