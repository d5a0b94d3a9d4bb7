"""Audits folders of images without any attribute, with a bias planted on a value of the world, and compares the first
ten findings with the first ten slices of Domino and the first ten words of B2T on the same images.

    python bench/slices_without_attributes.py --out FOLDER [--runs 6] [--seed 100800] [--images 400] [--how read ...]
        [--domino PYTHON]

Scenes of the world, four classes, are written as files. A classifier, a table of predictions, is right on 93 % of the
images, and in each of three classes on 40 % of those that show one value, such as fog. The audit gets the folder and
the table, the names of all attributes of the world to read off the photographs (`world:clip`, calibrated on 800 other
scenes of all ten classes), properties, words of captions and slices of embeddings. Every fourth set has nothing
planted.

`found`, of the planted values: a finding `against` in the planted class, of the very value (by reading), or (by word,
slice or property) of images at least half of which show it. `true`: of all findings, those whose φ, computed from the
probabilities behind the very images, lies beyond τ on the same side; where values were read, over the images that show
the value. `control`: findings a set where nothing is planted. `first ten`: of the first ten of each method, those that
are less accurate than the rest of their class by more than τ, by the probabilities behind their images; those of whose
images at least half show a value planted in their class; and how many there are. Ours are the findings `against`,
strongest first, one for each group; sets with fewer than ten are judged by these.

Domino (Eyuboglu et al. 2022): the slicer of PyPI's `domino` 0.1.5, where --domino names the Python of an environment
that has it (`bench/domino_slicer.py` says how it is made). Its slices are fitted on half of the images and hold images
of the other half by embedding and label: a slice that images belong to by the answers to them is less accurate by
definition.
B2T (Kim et al. 2024): YAKE keywords (n = 3, 20 of each class) of
the captions of wrongly answered images, ranked by the CLIP score: mean similarity of word and wrongly answered images
minus that to the others, times 100; a slice holds the images whose captions have the word. Both use `world:clip`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from c2b_ray import audit
from c2b_ray.audits.c2b.finding import words_of
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.models import catalog
from c2b_ray.world import ATTRIBUTES, Scene, render, sample

CHOSEN = ("airplane", "bus", "chair", "fish")
RIGHT, FAILING, TAU = 0.93, 0.4, 0.05
PLANTS = (
    ("weather", "fog"), ("lighting", "night"), ("colour", "red"), ("setting", "beach"), ("weather", "snow"),
    ("pattern", "striped"), ("companion", "dog"), ("size", "small"), ("lighting", "sunset"), ("setting", "forest"),
)  # fmt: skip
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """The images of a set: `keys`, `classes` and `scenes` in their order, and the probability of a right answer."""

    keys: list[str]
    classes: NDArray[np.str_]
    scenes: list[Scene]
    rate: NDArray[np.float64]

    def shows(self, attribute: str, value: str) -> Mask:
        return np.array([one.attribute(attribute) == value for one in self.scenes], bool)


def write(
    folder: Path, plants: Mapping[str, tuple[str, str]], images: int, seed: int
) -> tuple[World, NDArray[np.int64]]:
    """Writes the photographs, the answers and the calibration; returns what is known, and the answers as numbers of
    classes. `plants`: class → attribute and value."""
    random = np.random.default_rng([seed, 17])
    keys, classes, scenes = [], [], []
    for place, name in enumerate(CHOSEN):
        (folder / "photos" / name).mkdir(parents=True)
        for number, scene in enumerate(sample(images, seed * 10 + place, target_class=name)):
            keys.append(f"{name}/{number:04}.png")
            Image.fromarray(render(scene)).save(folder / "photos" / keys[-1])
            classes.append(name)
            scenes.append(scene)
    failing = [
        name in plants and scene.attribute(plants[name][0]) == plants[name][1]
        for name, scene in zip(classes, scenes, strict=True)
    ]
    rate = np.where(failing, FAILING, RIGHT)
    right = random.random(len(rate)) < rate
    answers = [
        name if is_right else str(random.choice([other for other in CHOSEN if other != name]))
        for name, is_right in zip(classes, right.tolist(), strict=True)
    ]
    lines = ["file,label,prediction"]
    lines += [f"{key},{name},{answer}" for key, name, answer in zip(keys, classes, answers, strict=True)]
    (folder / "answers.csv").write_text("\n".join(lines) + "\n")
    (folder / "calibration").mkdir()
    names = list(ATTRIBUTES)
    rows = [",".join(["image", "target_class", *names])]
    for number, scene in enumerate(sample(800, seed * 10 + 9)):
        Image.fromarray(render(scene)).save(folder / "calibration" / f"{number}.png")
        rows.append(",".join([f"{number}.png", scene.target_class, *(scene.attribute(name) for name in names)]))
    (folder / "calibration" / "table.csv").write_text("\n".join(rows) + "\n")
    return World(keys, np.array(classes), scenes, rate), np.array([CHOSEN.index(name) for name in answers])


def gap(world: World, inside: Mask, target: str) -> float:
    """Returns how much less accurate the rest of the class is than `inside`, by the probabilities behind the images."""
    of_class = world.classes == target
    here, rest = inside & of_class, of_class & ~inside
    return float(world.rate[here].mean() - world.rate[rest].mean()) if here.any() and rest.any() else 0.0


def findings(run: C2BRun, world: World) -> list[dict[str, Any]]:
    """Returns the findings, strongest first, with the images of each and the φ of the probabilities behind them."""
    images = run.read("images", ["image_id", "key"])
    at = dict(zip(world.keys, range(len(world.keys)), strict=True))
    row_of = {i: at[k] for i, k in zip(*(images[c].to_pylist() for c in ("image_id", "key")), strict=True)}
    draws, captions = run.draws, run.captions.to_pylist()
    origin = {(row["target_class"], row["attribute"]): row["source"] for row in run.proposals.to_pylist()}
    inside: dict[tuple[str, str], dict[str, Mask]] = {}
    for row in captions:
        drawn = draws.filter(pc.equal(draws["caption_id"], row["caption_id"]))["image_id"].to_pylist()
        mask = np.zeros(len(world.keys), bool)
        mask[[row_of[one] for one in drawn]] = True
        inside.setdefault((row["target_class"], row["attribute"]), {})[row["bias_class"]] = mask
    found = []
    for row in run.scores.to_pylist():
        if row["verdict"] not in ("for", "against"):
            continue
        group = row["target_class"], row["attribute"]
        cells, source = inside[group], origin[group]
        if source == "read":  # what is claimed is about the images that show the value
            of_class = world.classes == row["target_class"]
            cells = {value: of_class & world.shows(row["attribute"], value) for value in cells}
        means = {value: float(world.rate[mask].mean()) for value, mask in cells.items()}
        phi = means[row["bias_class"]] - float(np.mean([m for v, m in means.items() if v != row["bias_class"]]))
        is_true = phi < -TAU if row["verdict"] == "against" else phi > TAU
        named = {name: row[name] for name in ("target_class", "attribute", "bias_class", "verdict", "group")}
        more = {"source": source, "true": is_true, "phi": phi, "inside": inside[group][row["bias_class"]]}
        found.append({**named, **more, "weight": abs(row["phi"])})
    return sorted(found, key=lambda one: -one["weight"])


def domino(
    world: World, vectors: NDArray[np.float32], answers: NDArray[np.int64], python: str, folder: Path
) -> list[tuple[str, Mask]]:
    """Returns the ten slices of Domino's package, in its order, each with the class of most of its images. The mixture
    is fitted on one half; the slices hold images of the other half, by their embeddings and labels."""
    labels = np.array([CHOSEN.index(name) for name in world.classes])
    fitted = np.random.default_rng(0).random(len(vectors)) < 0.5
    arrays, slices = folder / "domino.npz", folder / "domino.npy"
    np.savez(arrays, vectors=vectors, labels=labels, answers=answers, fitted=fitted)
    script = Path(__file__).with_name("domino_slicer.py")
    subprocess.run([python, str(script), str(arrays), str(slices)], check=True, capture_output=True)
    return [(_commonest(world.classes[member]), member) for member in np.load(slices).T if member.any()]


def _commonest(names: NDArray[np.str_]) -> str:
    values, counts = np.unique(names, return_counts=True)
    return str(values[np.argmax(counts)])


def b2t(
    world: World, captions: Sequence[str], vectors: NDArray[np.float32], wrong: Mask, encoder: Any
) -> list[tuple[str, Mask]]:
    """Returns ten words with their class and the images whose captions have them, by the CLIP score."""
    scored: list[tuple[float, str, str]] = []
    for name in CHOSEN:
        here = world.classes == name
        said = [caption for caption, inside in zip(captions, here & wrong, strict=True) if inside]
        keywords = _keywords(said, name)
        if not keywords:
            continue
        similar = vectors[here] @ np.asarray(encoder.encode_texts(keywords)).T * 100
        failed = wrong[here]
        scores = similar[failed].mean(axis=0) - similar[~failed].mean(axis=0)
        scored += [(float(score), name, word) for score, word in zip(scores, keywords, strict=True)]
    slices = []
    for _, name, word in sorted(scored, reverse=True)[:10]:
        has = np.array([word in caption.lower() for caption in captions], bool)
        slices.append((name, has & (world.classes == name)))
    return slices


def _keywords(captions: Sequence[str], name: str) -> list[str]:
    """Returns twenty keywords of the captions, as B2T does by YAKE (n = 3), without the class."""
    try:
        import yake

        found = yake.KeywordExtractor(lan="en", n=3, dedupLim=0.9, top=20).extract_keywords(" ".join(captions))
        words = [text.lower() for text, _ in found]
    except ImportError:
        counts: dict[str, int] = {}
        for caption in captions:
            for word in words_of(caption, name):
                counts[word] = counts.get(word, 0) + 1
        words = sorted(counts, key=lambda word: (-counts[word], word))[:20]
    return [word for word in words if name not in word]


def tenths(slices: Sequence[tuple[str, Mask]], world: World) -> tuple[int, int, int]:
    """Returns how many of the first ten are less accurate, how many of them show mostly a planted value, and how many
    there are."""
    first = slices[:10]
    less = sum(gap(world, mask, name) < -TAU for name, mask in first)
    planted = [(world.rate[mask & (world.classes == name)] == FAILING) for name, mask in first]
    mostly = sum(bool(len(one)) and bool(one.mean() >= 0.5) for one in planted)
    return less, mostly, len(first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=100_800)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--how", nargs="+", default=["read", "words", "slices", "properties"])
    parser.add_argument("--domino", metavar="PYTHON")
    args = parser.parse_args()
    began = time.process_time()
    encoder = catalog.encoder("world:clip")
    hits: dict[str, int] = {"any": 0, "read": 0, "word": 0, "slice": 0, "property": 0}
    ten = {"ours": [0, 0, 0], "domino": [0, 0, 0], "b2t": [0, 0, 0]}
    true = total = planted = control = controls = 0
    for number in range(args.runs):
        random = np.random.default_rng([args.seed + number, 3])
        targets = [] if number % 4 == 3 else random.permutation(len(CHOSEN))[:3].tolist()
        values = random.permutation(len(PLANTS)).tolist()
        plants = {CHOSEN[place]: PLANTS[value] for place, value in zip(targets, values, strict=False)}
        folder = args.out / f"{args.seed + number}"
        shutil.rmtree(folder, ignore_errors=True)
        world, answers = write(folder, plants, args.images, args.seed + number)
        wrong = answers != np.array([CHOSEN.index(name) for name in world.classes])
        images: dict[str, Any] = {"source": "labelled", "table": str(folder / "photos")}
        images["properties"] = "properties" in args.how
        if "read" in args.how:
            images["read"] = {"model": "world:clip", "calibration": str(folder / "calibration" / "table.csv")}
        for name in ("words", "slices"):
            if name in args.how:
                images[name] = "world:clip"
        config: dict[str, Any] = {
            "task": "name the object",
            "classes": list(CHOSEN),
            "classifier": f"table:{folder / 'answers.csv'}",
            "images": images,
        }
        if "read" in args.how:
            config["attributes"] = {name: list(values) for name, values in ATTRIBUTES.items()}
        run = audit(config, folder / "run", via="here")
        found = findings(run, world)
        line: dict[str, object] = {"seed": args.seed + number, "plants": plants}
        if not plants:
            control, controls = control + len(found), controls + 1
        else:
            total, true = total + len(found), true + sum(one["true"] for one in found)
            ways = {target: _found(found, world, target, plant) for target, plant in plants.items()}
            line["found"] = ways
            for named in ways.values():
                planted += 1
                for name in [*named, *["any"] * bool(named)]:
                    hits[name] += 1
            leads: Mapping[Any, Any] = {}
            for one in found:
                if one["verdict"] == "against":
                    leads = {one["group"]: (one["target_class"], one["inside"]), **leads}
            ours = [leads[group] for group in sorted(leads)]
            vectors, captions = _observed(run, world)
            slices = {"ours": ours}
            if vectors is not None:
                if args.domino:
                    slices["domino"] = domino(world, vectors, answers, args.domino, folder)
                if captions is not None:
                    slices["b2t"] = b2t(world, captions, vectors, wrong, encoder)
            for name, chosen in slices.items():
                counts = tenths(chosen, world)
                ten[name] = [before + new for before, new in zip(ten[name], counts, strict=True)]
                line[f"ten {name}"] = counts
        said = [
            f"{one['target_class']}/{one['attribute']}/{one['bias_class']} {one['phi']:+.2f}"
            + " FALSE" * (not one["true"])
            for one in found
        ]
        print(json.dumps({**line, "findings": said}, ensure_ascii=False), flush=True)
        shutil.rmtree(folder)
    print(
        f"found {hits} of {planted}; true {true} of {total}; controls: {control} findings in {controls} runs; "
        f"first ten {ten}; {time.process_time() - began:.0f} s of a CPU"
    )


def _found(found: Sequence[Mapping[str, Any]], world: World, target: str, plant: tuple[str, str]) -> list[str]:
    """Returns by which ways the planted value was found."""
    shows, named = world.shows(*plant), []
    for one in found:
        if one["target_class"] != target or one["verdict"] != "against":
            continue
        very = (one["attribute"], one["bias_class"]) == plant
        mostly = one["source"] != "read" and shows[one["inside"]].mean() >= 0.5
        if very or mostly:
            named.append(str(one["source"]))
    return list(dict.fromkeys(named))


def _observed(run: C2BRun, world: World) -> tuple[NDArray[np.float32] | None, list[str] | None]:
    """Returns the vectors and captions of the run, in the order of the world's images."""

    def ordered(table: str, column: str) -> list[Any] | None:
        rows = run.read(table, ["key", column])
        known = dict(zip(rows["key"].to_pylist(), rows[column].to_pylist(), strict=True))
        return [known[key] for key in world.keys] if known else None

    vectors, captions = ordered("vectors", "vector"), ordered("descriptions", "caption")
    return (None if vectors is None else np.array(vectors, np.float32)), captions


if __name__ == "__main__":
    main()
