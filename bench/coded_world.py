"""The embedded world with codes in place of pictures: a code holds a scene's attributes and two random numbers.

A million draws take a minute, and every failure rate is known exactly. Captions, prompts and their reader are those of
the world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from c2b_ray.audits.kit.backend import HereBackend
from c2b_ray.roles import CaptionReply, Description, GeneratedImage, GenerationRequest
from c2b_ray.tables import content_id
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

FACTORS = {"target_class": CLASSES, **ATTRIBUTES}
LEVELS = 20


@dataclass(frozen=True)
class Plant:
    """The classifier answers `target` at `rate` on images of `label` that show `values`."""

    label: str
    values: dict[str, str]
    target: str
    rate: float

    @property
    def share(self) -> float:
        return float(np.prod([1 / len(ATTRIBUTES[name]) for name in self.values]))

    def true_rate(self, said: dict[str, str]) -> float:
        """Returns what this plant adds to the failure rate of a caption that names these values."""
        if any(said.get(name, value) != value for name, value in self.values.items()):
            return 0.0
        return self.rate * float(np.prod([1 / len(ATTRIBUTES[name]) for name in self.values if name not in said]))


@dataclass(frozen=True)
class Planted:
    """A classifier with plants. `noise`: label → (wrong label, rate), independent of what images show."""

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
        planted = sum(
            plant.true_rate(said)
            for plant in self.plants
            if plant.label == label and (target is None or plant.target == target)
        )
        if target is None:
            return 1 - (1 - noise) * (1 - planted)
        others = sum(plant.true_rate(said) for plant in self.plants if plant.label == label) - planted
        return planted + (noise * (1 - planted - others) if target == wrong else 0.0)  # a plant overrides the noise


def _chances(codes: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [(codes[:, :6, channel] @ (250 ** np.arange(6))) / 250**6 for channel in (1, 2)]


class Coder:
    """An image generator whose pictures are codes: channel 0 holds the scene, the others hold two random numbers."""

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
    """Returns uniform numbers, (seeds, columns): splitmix64 of seed and column."""
    with np.errstate(over="ignore"):
        z = (seeds[:, None] * np.uint64(1_000_003) + np.arange(columns, dtype=np.uint64)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) / 2.0**53


class Speaker:
    """A captioner that reads codes and misreads a share of the attributes."""

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
    """Runs steps in this process, with codes in place of pictures."""

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
    """Returns a classifier with one plant and, in 7 of 10 cases, an ordinary confusion of labels too."""
    names = random.sample(list(ATTRIBUTES), random.choice((2, 3)))
    values = {attribute: random.choice(ATTRIBUTES[attribute]) for attribute in names}
    target, other = random.sample([one for one in CLASSES if one != label], 2)
    noise = {} if random.random() < 0.3 else {label: (other, 10 ** random.uniform(-4, -1.5))}
    return Planted(name, (Plant(label, values, target, rate),), noise)


def control(random: Random, label: str, name: str) -> Planted:
    other = random.choice([one for one in CLASSES if one != label])
    return Planted(name, (), {} if random.random() < 0.2 else {label: (other, 10 ** random.uniform(-5, -1))})
