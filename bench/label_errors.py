"""Measures whether suspected label errors are the wrong labels, and whether a model's own bias is taken for some.

    python bench/label_errors.py [--images N] [--flipped SHARE] [--classifiers NAME ...] [--encoder SPEC]

Scenes of ten classes, of which a share gets another class's label at random, and shipped classifiers with planted
biases (`resnet-planted-0` fails on .55 of the buses in fog, `resnet-planted-1` on .9 of the boats at night and .7 of
striped mugs). Of each list: the share of it that is wrong, the share of the wrong labels that it holds, and how many of
the right labels in planted cells that the classifier contradicts. Three lists: with an encoder, without one, and
confident learning as it is (Northcutt et al. 2021), which the audit's two begin with. No training has these seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import c2b_ray
from c2b_ray import world
from c2b_ray.stats.read_values import confident_disagreements
from c2b_ray.world.zoo import ZOO

SEED = 100_700
KINDS = ("with an encoder", "without one", "confident learning alone")


def written(
    folder: Path, images: int, flipped: float, seed: int, classifier: str
) -> tuple[dict[str, str], set[str], set[str]]:
    """Writes a labelled table; returns the labels by key, the keys of wrong ones, and those in planted cells."""
    random, names = np.random.default_rng(seed), list(world.ATTRIBUTES)
    rows, labels, wrong, planted = [",".join(["image", "target_class", *names])], {}, set(), set()
    for number, scene in enumerate(world.sample(images, seed)):
        key, label = f"{number}.png", scene.target_class
        Image.fromarray(world.render(scene)).save(folder / key)
        if random.random() < flipped:
            label = str(random.choice([name for name in world.CLASSES if name != label]))
            wrong.add(key)
        elif any(plant.covers(scene) for plant in ZOO[classifier].plants):
            planted.add(key)
        labels[key] = label
        rows.append(",".join([key, label, *(scene.attribute(name) for name in names)]))
    (folder / "labels.csv").write_text("\n".join(rows))
    return labels, wrong, planted


def listed(folder: Path, classifier: str, encoder: str, labels: dict[str, str]) -> tuple[dict[str, set[str]], set[str]]:
    """Returns the keys that each kind of list holds, and those whose answer contradicts the label."""
    fields = {
        "task": "Tell what a picture shows.",
        "classes": list(world.CLASSES),
        "classifier": f"world:{classifier}",
        "images": {"source": "labelled", "table": str(folder / "labels.csv")},
        "check": False,
    }
    lists = {}
    for kind, errors in zip(KINDS, ({"encoder": encoder}, True), strict=False):
        run = c2b_ray.audit(fields | {"label_errors": errors}, out=folder / kind, via="here")
        lists[kind] = set(run.read("label_errors")["key"].to_pylist())
    keys = dict(zip(*(run.images[name].to_pylist() for name in ("image_id", "key")), strict=True))
    answers = run.predictions.to_pylist()
    number = {name: place for place, name in enumerate(world.CLASSES)}
    of_image = [keys[row["image_id"]] for row in answers]
    found = confident_disagreements(
        [number[labels[key]] for key in of_image], [row["probabilities"] for row in answers]
    )
    lists[KINDS[2]] = {key for key, answer in zip(of_image, found.tolist(), strict=True) if answer >= 0}
    contradicted = {keys[row["image_id"]] for row in answers if row["predicted_class"] != labels[keys[row["image_id"]]]}
    return lists, contradicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--flipped", type=float, default=0.03)
    parser.add_argument("--classifiers", nargs="+", default=["resnet-planted-0", "resnet-planted-1"])
    parser.add_argument("--encoder", default="world:clip")
    arguments = parser.parse_args()
    totals = {kind: np.zeros(3, int) for kind in KINDS}  # listed, wrong of them, errors of the model
    every_wrong = errors = 0
    for turn, classifier in enumerate(arguments.classifiers):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            labels, wrong, planted = written(folder, arguments.images, arguments.flipped, SEED + turn, classifier)
            lists, contradicted = listed(folder, classifier, arguments.encoder, labels)
        of_model = planted & contradicted
        every_wrong, errors = every_wrong + len(wrong), errors + len(of_model)
        for kind, keys in lists.items():
            totals[kind] += len(keys), len(keys & wrong), len(keys & of_model)
    for kind, (images, found, of_model) in totals.items():
        print(
            f"| {len(arguments.classifiers)} × {arguments.images:,} scenes, {arguments.flipped:.0%} of labels wrong, "
            f"{kind}: listed; wrong of them; of all wrong, listed; of the model's errors in planted cells, listed | "
            f"{images}; **{found / max(images, 1):.2f}; {found / every_wrong:.2f}; {of_model} of {errors}** |"
        )


if __name__ == "__main__":
    main()
