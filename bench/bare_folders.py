"""Audits folders of images that have no attribute at all, one folder a class, with planted failures.

    python bench/bare_folders.py --out FOLDER [--seeds 3] [--images 250] [--seed 100300]

Scenes of the world, four classes, are written as files; a random 10 to 25 % of each class are changed in one way, such
as blurred or saved as a poor JPEG. A classifier, a table of predictions, is right on 93 % of the images, and in one
class on 40 % of the changed ones. The audit gets the folder and the table, and nothing else. `blue` changes nothing:
the failing images are those of the class whose object is blue, by the scene's own attribute.

`found`: a property that the change moves has a finding in the planted class. `true`: of all findings, those whose φ,
computed from the probabilities behind the very images, lies beyond τ on the same side. `first`: the strongest finding
is one that the change moves; `apart`: findings that the report shows one by one, in a run with a planted failure. The
control changes images in all eleven ways and fails nowhere.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from PIL import Image, ImageEnhance, ImageFilter

from c2b_ray import audit
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.world import render, sample

CLASSES = ("airplane", "bus", "chair", "fish")
RIGHT, FAILING, TAU = 0.93, 0.4, 0.05
Picture = Image.Image
Random = np.random.Generator


def noisy(picture: Picture, random: Random) -> Picture:
    levels = np.asarray(picture) + random.normal(0, 18, (*picture.size[::-1], 3))
    return Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))


def poor_jpeg(picture: Picture, random: Random) -> Picture:
    return picture  # by its quality, where it is written


CHANGES: Mapping[str, tuple[Callable[[Picture, Random], Picture], set[str]]] = {
    "dark": (lambda p, _: ImageEnhance.Brightness(p).enhance(0.35), {"brightness"}),
    "bright": (lambda p, _: Image.blend(p, Image.new("RGB", p.size, "white"), 0.6), {"brightness"}),
    "low contrast": (lambda p, _: ImageEnhance.Contrast(p).enhance(0.35), {"contrast", "entropy"}),
    "blurred": (lambda p, _: p.filter(ImageFilter.GaussianBlur(1.5)), {"sharpness", "noise"}),
    "noisy": (noisy, {"noise", "sharpness"}),
    "grey": (lambda p, _: p.convert("L").convert("RGB"), {"colourfulness", "saturation", "greyness"}),
    "vivid": (lambda p, _: ImageEnhance.Color(p).enhance(2.5), {"colourfulness", "saturation", "greyness"}),
    "small": (lambda p, _: p.resize((36, 36)), {"resolution"}),
    "wide": (lambda p, _: p.resize((64, 44)), {"aspect ratio", "resolution"}),
    "poor JPEG": (poor_jpeg, {"JPEG quality"}),
    "blue": (lambda p, _: p, {"hue"}),
}


def write(folder: Path, plant: str, images: int, seed: int) -> dict[str, tuple[str, float]]:
    """Writes the folder and returns, by key, the class of each image and the probability that the answer is right."""
    random = np.random.default_rng([seed, list(CHANGES).index(plant) if plant else 99])
    share = random.uniform(0.1, 0.25)
    target = CLASSES[int(random.integers(len(CLASSES)))]
    rates = {}
    for place, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number, scene in enumerate(sample(images, seed * 10 + place, target_class=name)):
            picture = Image.fromarray(render(scene))
            changed = random.random() < share
            if plant == "blue":
                changed = scene.colour == "blue"
            how = plant or str(random.choice(list(CHANGES)))
            if changed:
                picture = CHANGES[how][0](picture, random)
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=15 if changed and how == "poor JPEG" else 92)
            key = f"{name}/{number:04}.jpg"
            (folder / key).write_bytes(buffer.getvalue())
            rates[key] = (name, FAILING if plant and changed and name == target else RIGHT)
    return rates


def answer(path: Path, rates: Mapping[str, tuple[str, float]], random: Random) -> None:
    lines = ["file,label,prediction"]
    for key, (name, rate) in rates.items():
        others = [other for other in CLASSES if other != name]
        lines.append(f"{key},{name},{name if random.random() < rate else random.choice(others)}")
    path.write_text("\n".join(lines) + "\n")


def findings(run: C2BRun, rates: Mapping[str, tuple[str, float]]) -> list[dict[str, Any]]:
    """Returns the findings of a run, strongest first, each with its true φ."""
    images = run.read("images", ["image_id", "key"])
    of_image = {i: rates[k][1] for i, k in zip(*(images[c].to_pylist() for c in ("image_id", "key")), strict=True)}
    captions = {row["caption_id"]: row for row in run.captions.to_pylist()}
    means: dict[tuple[str, str], dict[str, float]] = {}
    for caption, row in captions.items():
        drawn = run.draws.filter(pc.equal(run.draws["caption_id"], caption))["image_id"].to_pylist()
        means.setdefault((row["target_class"], row["attribute"]), {})[row["bias_class"]] = float(
            np.mean([of_image[one] for one in drawn])
        )
    found = []
    for row in run.scores.to_pylist():
        if row["verdict"] in ("for", "against"):
            of_values = means[row["target_class"], row["attribute"]]
            others = [rate for value, rate in of_values.items() if value != row["bias_class"]]
            true = of_values[row["bias_class"]] - float(np.mean(others))
            is_true = (true < -TAU) if row["verdict"] == "against" else (true > TAU)
            named = {n: row[n] for n in ("target_class", "attribute", "bias_class", "group")}
            found.append({**named, "true": is_true, "phi": true, "weight": abs(row["phi"])})
    return sorted(found, key=lambda one: -one["weight"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=250)
    parser.add_argument("--seed", type=int, default=100_300)
    args = parser.parse_args()
    began = time.process_time()
    hits = true = total = control = runs = first = apart = 0
    for seed in range(args.seed, args.seed + args.seeds):
        for plant in (*CHANGES, ""):
            folder = args.out / f"{seed}-{plant or 'control'}".replace(" ", "-")
            shutil.rmtree(folder, ignore_errors=True)
            rates = write(folder / "photos", plant, args.images, seed)
            answer(folder / "answers.csv", rates, np.random.default_rng(seed + 7))
            config = {
                "task": "name the object",
                "classes": list(CLASSES),
                "classifier": f"table:{folder / 'answers.csv'}",
                "images": {"source": "labelled", "table": str(folder / "photos")},
            }
            found = findings(audit(config, folder / "run", via="here"), rates)
            failing = {name for name, rate in rates.values() if rate == FAILING}
            number = sum(rate == FAILING for _, rate in rates.values())
            line: dict[str, object] = {"seed": seed, "plant": plant or "control", "failing images": number}
            if plant:
                moved = CHANGES[plant][1]
                hit = any(one["target_class"] in failing and one["attribute"] in moved for one in found)
                hits, runs, total = hits + hit, runs + 1, total + len(found)
                true += sum(bool(one["true"]) for one in found)
                first += bool(found) and found[0]["attribute"] in moved and found[0]["target_class"] in failing
                groups = len({(one["target_class"], one["group"]) for one in found})
                apart += groups
                line |= {"found": hit, "apart": groups}
            else:
                control += len(found)
            said = [f"{one['target_class']}/{one['attribute']}/{one['bias_class']} {one['phi']:+.2f}" for one in found]
            print(json.dumps({**line, "findings": said}), flush=True)
            shutil.rmtree(folder)
    print(
        f"found {hits} of {runs} ({hits / max(runs, 1):.2f}); true {true} of {total} ({true / max(total, 1):.3f}); "
        f"first {first}; {apart / max(runs, 1):.1f} apart; controls: {control} findings in {args.seeds} runs; "
        f"{time.process_time() - began:.0f} s of a CPU"
    )


if __name__ == "__main__":
    main()
