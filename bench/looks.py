"""Which look do answers follow? False sentences on classifiers that follow the class, and followers that are found.

    python bench/looks.py --out FOLDER [--seeds 3] [--simulated 100] [--real DIR]

`simulated`: answers and looks that are drawn: ordinary classifiers that err by class; that mistake look-alike classes
for each other, at several accuracies; the same with labels in another order; one answer for everything; few images;
frames of one scene. None of them is to be said to follow a look, but those that go by nothing but the look and are
right no more often than they follow another class's: `by look alone`.

`world`: folders of scenes, a class each, and all eighteen classifiers of the world, controls and planted; on pictures
as they are, and so blurred, noisy or grey that most answers are wrong. What is said is checked by intervention: of 300
scenes, how often an answer stays when the object is exchanged and all that surrounds it is kept, and when the object
is kept and its surroundings are exchanged. The sentence is false where the second is more often.

`followers`: tables of answers of which 15 % are right and most others follow the setting, the weather, the colour or
the pattern; the first two are what descriptors of whole pictures can see, the others cover a small part of a picture.

`--real`: MobileNetV2 on the cue-conflict photographs, a folder a shape: what the headline says.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from c2b_ray import audit
from c2b_ray.audits.c2b.followed_looks import is_established
from c2b_ray.models import catalog
from c2b_ray.stats.look_alikes import FollowedLook, followed_look
from c2b_ray.steps.image_properties import looks
from c2b_ray.world import CLASSES, Scene, render, sample
from c2b_ray.world.zoo import ZOO

ALPHA, LOOKS = 0.05, 3
Random = np.random.Generator
Simulated = tuple[Any, Any, Any]


def ordinary(random: Random, images: int, classes: int, accuracy: float) -> Simulated:
    truth, look = random.integers(0, classes, images), random.normal(size=(images, 20))
    confused = random.dirichlet(np.full(classes, 0.3), classes)
    wrong = np.array([random.choice(classes, p=confused[one]) for one in truth])
    return look, truth, np.where(random.random(images) < accuracy, truth, wrong)


def of_look_alikes(
    random: Random, images: int, classes: int, accuracy: float, by_object: float, renamed: bool = False
) -> Simulated:
    """The likeliest class by the look and, with weight `by_object`, by something that descriptors do not see."""
    truth = random.integers(0, classes, images)
    centres, objects = random.normal(size=(2, classes, 20))
    noise, other = random.normal(size=(2, images, 20))
    low, high = 0.01, 20.0
    for _ in range(25):  # the spread that gives the accuracy
        spread = (low * high) ** 0.5
        look, seen = centres[truth] + spread * noise, objects[truth] + spread * other
        score = ((look[:, None] - centres) ** 2).sum(2) + by_object * ((seen[:, None] - objects) ** 2).sum(2)
        answer = score.argmin(axis=1)
        low, high = (spread, high) if np.mean(answer == truth) > accuracy else (low, spread)
    return look, truth, random.permutation(classes)[answer] if renamed else answer


def frames(random: Random, images: int, classes: int, accuracy: float) -> Simulated:
    """Ten frames of each scene, which look alike and are answered alike."""
    look, truth, answer = ordinary(random, images // 10, classes, accuracy)
    look = np.repeat(look, 10, axis=0) + 0.1 * random.normal(size=(images // 10 * 10, 20))
    return look, np.repeat(truth, 10), np.repeat(answer, 10)


def simulated(seeds: int) -> None:
    cases: list[tuple[str, Any]] = [
        *((f"errs by class, {a:.0%}", lambda r, a=a: ordinary(r, 640, 16, a)) for a in (0.8, 0.5, 0.3, 0.1)),
        *((f"errs by class, {n} images, 20%", lambda r, n=n: ordinary(r, n, 5, 0.2)) for n in (30, 60, 120)),
        *(
            (f"look-alike classes, {a:.0%}", lambda r, a=a: of_look_alikes(r, 640, 16, a, 1.0))
            for a in (0.8, 0.5, 0.3, 0.2)
        ),
        *((f"by look alone, {a:.0%}", lambda r, a=a: of_look_alikes(r, 640, 16, a, 0.0)) for a in (0.8, 0.5, 0.3)),
        *(
            (f"labels in another order, {a:.0%}", lambda r, a=a: of_look_alikes(r, 640, 16, a, 1.0, True))
            for a in (0.8, 0.5)
        ),
        ("one answer", lambda r: (r.normal(size=(640, 20)), r.integers(0, 16, 640), np.zeros(640, int))),
        *((f"ten frames of a scene, {a:.0%}", lambda r, a=a: frames(r, 640, 16, a)) for a in (0.3, 0.1)),
    ]
    false = 0
    for name, make in cases:
        found = [_test(make(np.random.default_rng([100_000, seed])), seed) for seed in range(seeds)]
        said = sum(is_established(one, ALPHA, LOOKS) for one in found)
        false += said
        low = np.mean([one.p_value <= ALPHA for one in found])
        share, margin = (np.mean([getattr(one, field) for one in found]) for field in ("share", "margin"))
        print(f"{name:34} said {said} of {seeds}; p ≤ .05 {low:.2f}; share {share:+.3f}, margin {margin:+.3f}")
    print(f"simulated: {false} false sentences of {seeds * len(cases)}")


def _test(of: Simulated, seed: int) -> FollowedLook:
    return followed_look(*of, 1 - ALPHA, seed, resamples=199)


def changed(picture: Image.Image, how: str, random: Random) -> Image.Image:
    if how == "blurred":
        return picture.filter(ImageFilter.GaussianBlur(4))
    if how == "noisy":
        levels = np.asarray(picture) + random.normal(0, 90, (*picture.size[::-1], 3))
        return Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))
    return picture.convert("L").convert("RGB") if how == "grey" else picture


def write(folder: Path, scenes: list[Scene], how: str = "") -> list[str]:
    random, keys = np.random.default_rng(7), []
    for number, scene in enumerate(scenes):
        keys.append(f"{scene.target_class}/{number:04}.png")
        (folder / keys[-1]).parent.mkdir(parents=True, exist_ok=True)
        changed(Image.fromarray(render(scene)), how, random).save(folder / keys[-1])
    return keys


def audited(out: Path, classifier: Any) -> list[dict[str, Any]]:
    config = {
        "task": "name the object",
        "classes": sorted(one.name for one in (out / "photos").iterdir()),
        "classifier": classifier,
        "images": {"source": "labelled", "table": str(out / "photos"), "properties": ["brightness"]},
        "check": False,
    }
    run = audit(config, out / "run", via="here")
    return list(run.read("looks").to_pylist())


def world(out: Path, seeds: int, images: int) -> None:
    runs = asked = false = true = 0
    for seed in range(100_000, 100_000 + seeds):
        for how in ("as they are", "blurred", "noisy", "grey"):
            folder = out / f"{seed}-{how}".replace(" ", "-")
            write(folder / "photos", sample(images, seed), how)
            rows = audited(folder, [f"world:{name}" for name in ZOO])
            by_name: dict[str, list[dict[str, Any]]] = {}
            for row in rows:
                by_name.setdefault(row["classifier"], []).append(row)
            runs, asked = runs + len(ZOO), asked + len(by_name)
            for name, of in by_name.items():
                said = [row["look"] for row in of if row["established"]]
                right = f"{of[0]['follow_class'] / of[0]['images']:.0%} by class"
                if said:
                    look, kept = interventions(name, seed, how)
                    true, false = true + (look > kept), false + (look <= kept)
                    print(
                        f"{seed} {how}: {name}, {right}, {said}: stays with the look {look:.2f}, the object {kept:.2f}"
                    )
    print(f"world: {runs} classifiers on folders, {asked} asked about; {true} sentences true, {false} false")


def interventions(spec: str, seed: int, how: str) -> tuple[float, float]:
    """Returns how often an answer stays when only the object is exchanged, and when all but the object is."""
    random = np.random.default_rng(seed)
    scenes, others = sample(300, seed + 50), sample(300, seed + 60)
    turns = random.integers(1, len(CLASSES), len(scenes)).tolist()
    names = [
        CLASSES[(CLASSES.index(one.target_class) + turn) % len(CLASSES)]
        for one, turn in zip(scenes, turns, strict=True)
    ]
    sets = (
        scenes,
        [replace(one, target_class=name) for one, name in zip(scenes, names, strict=True)],
        [replace(other, target_class=one.target_class) for one, other in zip(scenes, others, strict=True)],
    )
    classifier, answers = catalog.classifier(spec), []
    for some in sets:
        pictures = [np.asarray(changed(Image.fromarray(render(scene)), how, random)) for scene in some]
        answers.append(np.argmax(classifier.logits(pictures, [""] * len(pictures)), axis=1))
    return float(np.mean(answers[0] == answers[1])), float(np.mean(answers[0] == answers[2]))


def followers(out: Path, seeds: int, images: int) -> None:
    for attribute in ("setting", "weather", "lighting", "colour", "pattern"):
        said = []
        for seed in range(100_000, 100_000 + seeds):
            folder, random = out / f"{seed}-{attribute}", np.random.default_rng(seed)
            scenes = sample(images, seed)
            keys = write(folder / "photos", scenes)
            lines = ["image,prediction"]
            for key, scene in zip(keys, scenes, strict=True):
                drawn = random.random()
                other = f"what is {getattr(scene, attribute)}" if drawn < 0.8 else str(random.choice(CLASSES))
                lines.append(f"{key},{scene.target_class if drawn < 0.15 else other}")
            (folder / "answers.csv").write_text("\n".join(lines))
            rows = audited(folder, f"table:{folder / 'answers.csv'}")
            said.append([row["look"] for row in rows if row["strongest"]])
        print(f"follows the {attribute}: said in {sum(map(bool, said))} of {seeds}: {said}")


def cue_conflict(out: Path, real: Path) -> None:
    labels = csv.DictReader((real / "cue-conflict/labels.csv").read_text().splitlines())
    for number, row in enumerate(labels):
        (out / "photos" / row["shape"]).mkdir(parents=True, exist_ok=True)
        shutil.copy(real / "cue-conflict" / row["file"], out / "photos" / row["shape"] / f"{number:03}.jpg")
    spec = f"onnx:{real.resolve()}/mobilenet_v2_imagenet1k.onnx?mean=0.5&std=0.5"
    run = audit(str(out / "photos"), out / "run", classifier=spec)
    print(run.manifest["headline"]["text"])
    for row in run.read("looks").to_pylist():
        print({name: value for name, value in row.items() if name != "classifier"})


def cost() -> None:
    """Prints the CPU time of describing a photograph-sized picture, once decoded."""
    picture = np.random.default_rng(0).integers(0, 255, (375, 500, 3), dtype=np.uint8)
    looks(picture)
    began = time.process_time()
    for _ in range(50):
        looks(picture)
    print(f"descriptors of a picture of 500 × 375: {20 * (time.process_time() - began):.1f} CPU-ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--simulated", type=int, default=100)
    parser.add_argument("--real", type=Path)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    began = time.process_time()
    cost()
    simulated(args.simulated)
    world(args.out, args.seeds, args.images)
    followers(args.out, args.seeds, args.images)
    if args.real is not None:
        cue_conflict(args.out / "cue-conflict", args.real)
    print(f"{time.process_time() - began:.0f} CPU-s")


if __name__ == "__main__":
    main()
