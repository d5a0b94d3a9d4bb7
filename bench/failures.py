"""Planted failures: how many `c2b failures` finds, how many of its findings are false, and what its intervals hold.

    python bench/failures.py [--plants 28] [--controls 12] [--together 5] [--draws 1000000] [--misread 0.03] [--seed 0]

Each plant makes a classifier answer a wrong label on a share (1e-1 to 1e-4) of those images of a label that show two or
three attribute values; most classifiers have an ordinary confusion besides, which has nothing to do with what images
show. Controls have that alone, or nothing. Images are codes of the embedded world's scenes, eight bytes for its
attributes and three for a random number, so that a million draws take a minute and every true rate is known exactly; a
captioner reads the code and misreads a share of it. Captions, prompts and their reader are the world's own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from c2b_ray.audits.failures.audit import walk
from c2b_ray.audits.kit.backend import HereBackend
from c2b_ray.audits.kit.events import Steps
from c2b_ray.config.failures_file import read_failures_config
from c2b_ray.roles import CaptionReply, Description, GeneratedImage, GenerationRequest
from c2b_ray.schemas import content_id
from c2b_ray.store.failures_run import open_failures_run
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.reader import read
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

FACTORS = {"target_class": CLASSES, **ATTRIBUTES}
RATES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
LEVELS = 20


@dataclass(frozen=True)
class Plant:
    """Images of `label` that show `values` are taken for `target` at `rate`."""

    label: str
    values: dict[str, str]
    target: str
    rate: float

    @property
    def share(self) -> float:
        return float(np.prod([1 / len(ATTRIBUTES[name]) for name in self.values]))

    def true_rate(self, said: dict[str, str]) -> float:
        """Its part of the failure rate of a caption that says these values."""
        if any(said.get(name, value) != value for name, value in self.values.items()):
            return 0.0
        return self.rate * float(np.prod([1 / len(ATTRIBUTES[name]) for name in self.values if name not in said]))


@dataclass(frozen=True)
class Planted:
    """A classifier. `noise`: label → (wrong label, rate), whatever images show."""

    name: str
    plants: tuple[Plant, ...] = ()
    noise: dict[str, tuple[str, float]] = field(default_factory=dict)

    def logits(self, images: Sequence[Any], keys: Sequence[str]) -> np.ndarray[Any, Any]:
        codes = np.stack([image[0] for image in images]).astype(np.int64)
        scene, chance = codes[:, :, 0] // LEVELS, _chances(codes)
        answer = scene[:, 0].copy()
        for label, (wrong, rate) in self.noise.items():
            answer[(scene[:, 0] == CLASSES.index(label)) & (chance[1] < rate)] = CLASSES.index(wrong)
        for plant in self.plants:
            shown = scene[:, 0] == CLASSES.index(plant.label)
            for place, (name, values) in enumerate(FACTORS.items()):
                if name in plant.values:
                    shown &= scene[:, place] == values.index(plant.values[name])
            answer[shown & (chance[0] < plant.rate)] = CLASSES.index(plant.target)
        logits = np.zeros((len(images), len(CLASSES)), np.float32)
        logits[np.arange(len(images)), answer] = 9.0
        return logits

    @property
    def labels(self) -> tuple[str, ...]:
        return CLASSES

    @property
    def revision(self) -> str:
        return content_id(self.name, repr(self.plants), repr(self.noise))

    def true_rate(self, label: str, target: str | None, said: dict[str, str]) -> float:
        wrong, noise = self.noise.get(label, ("", 0.0))
        total = noise if target in (None, wrong) else 0.0
        for plant in self.plants:
            if plant.label == label and target in (None, plant.target):
                total += (1 - noise if target == wrong else 1.0) * plant.true_rate(said)
        return total


def _chances(codes: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [(codes[:, :6, channel] @ (250 ** np.arange(6))) / 250**6 for channel in (1, 2)]


class Coder:
    """An image generator whose pictures are codes: channel 0 the scene, the others two random numbers."""

    revision = "coder"

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        said = [_said(request.prompt) for request in requests]
        random = _random(np.array([request.seed for request in requests], np.uint64), len(FACTORS) + 12)
        codes = np.zeros((len(requests), 8, 8, 3), np.uint8)
        for place, values in enumerate(FACTORS.values()):
            codes[:, :, place, 0] = ((random[:, place] * len(values)).astype(int) * LEVELS)[:, None]
        for row, fixed in enumerate(said):
            for place, value in fixed:
                codes[row, :, place, 0] = value * LEVELS
        codes[:, :, :6, 1:] = (random[:, -12:].reshape(-1, 1, 6, 2) * 250).astype(np.uint8)
        codes[:, 0, 7, 1:] = 255
        return [GeneratedImage(code) for code in codes]


@lru_cache(maxsize=4096)
def _said(prompt: str) -> list[tuple[int, int]]:
    mentioned = read(prompt)
    return [(list(FACTORS).index(name), FACTORS[name].index(value)) for name, value in mentioned.items()]


def _random(seeds: np.ndarray[Any, Any], columns: int) -> np.ndarray[Any, Any]:
    """Uniform numbers, (seeds, columns): splitmix64 of seed and column."""
    with np.errstate(over="ignore"):
        z = (seeds[:, None] * np.uint64(1_000_003) + np.arange(columns, dtype=np.uint64)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) / 2.0**53


class Speaker:
    """A captioner that reads codes, and misreads a share of what it reads."""

    revision = "speaker"

    def __init__(self, misread: float) -> None:
        self._misread = misread

    def caption(self, images: Sequence[Any], labels: Sequence[str]) -> list[CaptionReply]:
        return [CaptionReply(self._one(image, label)) for image, label in zip(images, labels, strict=True)]

    def _one(self, image: Any, label: str) -> str:
        random = Random(image.tobytes())
        phrases = [f"a photo of a {label}"]
        for place, (name, values) in enumerate(FACTORS.items()):
            if name != "target_class":
                value = values[int(image[0, place, 0]) // LEVELS]
                if random.random() < self._misread:
                    value = random.choice([other for other in values if other != value])
                phrases.append(PHRASES[name][value][0])
        return ", ".join(phrases)


class CodedBackend(HereBackend):
    """Codes in place of pictures."""

    def __init__(self, classifiers: dict[str, Planted], misread: float) -> None:
        super().__init__()
        self._planted, self._misread = classifiers, misread

    def image_generator(self, spec: str) -> Any:
        return Coder

    def captioner(self, spec: str) -> Any:
        return lambda: Speaker(self._misread)

    def classifier(self, spec: str) -> Any:
        return lambda: self._planted[spec]

    def describe(self, role: str, spec: str) -> Description:
        if role == "classifier":
            return Description(self._planted[spec].revision, CLASSES)
        return Description("coder" if role == "image_generator" else "speaker")


def plant(random: Random, label: str, rate: float, name: str) -> Planted:
    """A classifier with one plant, and mostly an ordinary confusion besides."""
    names = random.sample(list(ATTRIBUTES), random.choice((2, 3)))
    values = {attribute: random.choice(ATTRIBUTES[attribute]) for attribute in names}
    target, other = random.sample([one for one in CLASSES if one != label], 2)
    noise = {} if random.random() < 0.3 else {label: (other, 10 ** random.uniform(-4, -1.5))}
    return Planted(name, (Plant(label, values, target, rate),), noise)


def control(random: Random, label: str, name: str) -> Planted:
    other = random.choice([one for one in CLASSES if one != label])
    return Planted(name, (), {} if random.random() < 0.2 else {label: (other, 10 ** random.uniform(-5, -1))})


def judge(classifiers: dict[str, Planted], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the hypotheses of a run are worth, against the truth."""
    findings = [row for row in rows if row["verdict"] == "failure"]
    false, covered, ratios = [], [], []
    found: dict[str, set[str]] = {name: set() for name in classifiers}
    for row in findings:
        one, said = classifiers[row["classifier"]], read(row["caption"])
        said.pop("target_class", None)
        truth, base = (one.true_rate(row["label"], row["target"], what) for what in (said, {}))
        if truth <= base * (1 + 1e-9):
            false.append(row)
        covered.append(row["rate_low"] <= truth <= row["rate_high"])
        if base:
            ratios.append(row["ratio_low"] <= truth / base <= row["ratio_high"])
        for planted in one.plants:
            if row["label"] == planted.label and row["target"] in (None, planted.target):
                values = {name: said.get(name) for name in planted.values}
                if values == planted.values:
                    found[one.name].add("exact" if len(said) == len(values) else "more")
                elif any(values[name] == value for name, value in planted.values.items()):
                    found[one.name].add("part")
    return {"findings": len(findings), "false": false, "covered": covered, "ratios": ratios, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plants", type=int, default=28)
    parser.add_argument("--controls", type=int, default=12)
    parser.add_argument("--together", type=int, default=5, help="Classifiers of one run, which share its images.")
    parser.add_argument("--rates", type=float, nargs="*", default=RATES)
    parser.add_argument("--draws", type=int, default=1_000_000, help="Of each run.")
    parser.add_argument("--misread", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = Random(options.seed)
    everything = []
    for number in range(options.plants + options.controls):
        label = CLASSES[number // options.together % len(CLASSES)]
        is_plant = (number * options.plants) // (options.plants + options.controls) < (
            (number + 1) * options.plants
        ) // (options.plants + options.controls)
        rate = options.rates[len(everything) % len(options.rates)]
        name = f"{'planted' if is_plant else 'control'}-{number}"
        everything.append(plant(random, label, rate, name) if is_plant else control(random, label, name))
    tally = Tally()
    for start in range(0, len(everything), options.together):
        group = {one.name: one for one in everything[start : start + options.together]}
        label = CLASSES[start // options.together % len(CLASSES)]
        tally.add(group, *measured(group, label, options))
    tally.show(options.rates)


def measured(
    classifiers: dict[str, Planted], label: str, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, int], float]:
    """The hypotheses of one run, what it spent, and the seconds it took."""
    config = read_failures_config(
        {
            "labels": [label],
            "classifier": {name: f"world:{name}" for name in classifiers},
            "images": {"generate": {"model": "world:renderer"}},
            "captioner": "world:clip",
            "hierarchy": "world",
            "budget": {"draws": options.draws},
            "seed": options.seed,
        }
    )
    began = time.monotonic()
    backend = CodedBackend({f"world:{name}": one for name, one in classifiers.items()}, options.misread)
    with tempfile.TemporaryDirectory() as folder:
        with open_failures_run(f"{folder}/run", "bench", config.model_dump(mode="json")) as run:
            walk(config, run, backend, Steps())
        return run.hypotheses.to_pylist(), run.manifest["spent"], time.monotonic() - began


class Tally:
    """What all runs came to."""

    def __init__(self) -> None:
        self.classifiers: dict[str, Planted] = {}
        self.found: dict[str, set[str]] = {}
        self.false: list[dict[str, Any]] = []
        self.covered: list[bool] = []
        self.ratios: list[bool] = []
        self.findings, self.spent, self.seconds = 0, 0, 0.0

    def add(
        self, classifiers: dict[str, Planted], rows: list[dict[str, Any]], spent: dict[str, int], seconds: float
    ) -> None:
        result = judge(classifiers, rows)
        self.classifiers |= classifiers
        self.found |= result["found"]
        self.false += result["false"]
        self.covered += result["covered"]
        self.ratios += result["ratios"]
        self.findings += result["findings"]
        self.spent += sum(spent.values())
        self.seconds += seconds
        for name, one in classifiers.items():
            for planted in one.plants:
                noise = one.noise.get(planted.label, ("", 0.0))[1]
                about = f"{planted.rate:.0e} x {planted.share:.4f} noise {noise:.1e} {sorted(planted.values.values())}"
                print(f"{name:12} {about:70} {sorted(self.found[name])}", flush=True)
        print(json.dumps({"seconds": round(seconds, 1), "spent": spent}), flush=True)

    def show(self, rates: Sequence[float]) -> None:
        for rate in rates:
            of_rate = [name for name, one in self.classifiers.items() if one.plants and one.plants[0].rate == rate]
            whole = sum(bool(self.found[name] & {"exact", "more"}) for name in of_rate)
            exact = sum("exact" in self.found[name] for name in of_rate)
            print(f"rate {rate:.0e}: {whole} of {len(of_rate)} found, {exact} of them with no word too many")
        controls = [name for name, one in self.classifiers.items() if not one.plants]
        wrong = {row["classifier"] for row in self.false}
        print(f"findings {self.findings}, false {len(self.false)}")
        print(f"controls with a finding: {len(wrong & set(controls))} of {len(controls)}")
        for what, held in (("rates", self.covered), ("ratios", self.ratios)):
            print(f"intervals of {what} that hold the truth: {np.mean(held or [np.nan]):.3f} of {len(held)}")
        print(json.dumps({"seconds": round(self.seconds, 1), "draws": self.spent}))


if __name__ == "__main__":
    main()
