"""The test problems of `c2b latent` as data: target × biased attribute × generator, and unbiased classifiers.

Li & Xu (section 5.1) use every ordered pair of attributes; appendix A.3 omits hyperplanes with an accuracy below 0.9.
It knows accuracies and names; not how a search works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from c2b_ray.world.training.latent.classifiers import Plant
from c2b_ray.world.training.latent.family import plant_name

LEAST_ACCURACY = 0.9


@dataclass(frozen=True)
class Setting:
    """One search: what a classifier learned, and the kind of generator whose latents are searched."""

    plant: Plant
    kind: str

    @property
    def name(self) -> str:
        return f"{plant_name(self.plant)}-{self.kind}"


@dataclass(frozen=True)
class Grid:
    """`left_out`: the number of settings omitted because a hyperplane's accuracy is below LEAST_ACCURACY."""

    settings: tuple[Setting, ...]
    left_out: int


def biased_settings(
    world: str, accuracies: Mapping[str, Mapping[str, float | None]], skew: float, seed: int, label_noise: float
) -> Grid:
    """Returns every ordered pair of attributes in every generator. accuracies: kind of generator → attribute → held-out
    accuracy of its hyperplane, None for one that could not be trained."""
    settings, left_out = [], 0
    for kind, accuracy_of_attribute in accuracies.items():
        for target, biased in permutations(accuracy_of_attribute, 2):
            if _separated(accuracy_of_attribute, (target, biased)):
                settings.append(Setting(Plant(world, target, biased, skew, seed, label_noise), kind))
            else:
                left_out += 1
    return Grid(tuple(settings), left_out)


def unbiased_settings(
    world: str, accuracies: Mapping[str, Mapping[str, float | None]], seeds: Sequence[int], label_noise: float
) -> Grid:
    """Returns every target with every seed in every generator."""
    settings, left_out = [], 0
    for kind, accuracy_of_attribute in accuracies.items():
        for target in accuracy_of_attribute:
            if _separated(accuracy_of_attribute, (target,)):
                plants = [Plant(world, target, None, 0.5, seed, label_noise) for seed in seeds]
                settings += [Setting(plant, kind) for plant in plants]
            else:
                left_out += len(seeds)
    return Grid(tuple(settings), left_out)


def plants(settings: Sequence[Setting]) -> list[Plant]:
    """Returns the classifiers that settings need, each once."""
    return list(dict.fromkeys(setting.plant for setting in settings))


def problem(setting: Setting, known: str | list[str]) -> dict[str, Any]:
    """Returns an entry of a config's `problems`; the generator's name is its kind, the classifier's that of its
    plant."""
    result = {
        "name": setting.name,
        "generator": setting.kind,
        "classifier": plant_name(setting.plant),
        "target": setting.plant.target,
        "known": known,
    }
    return result if setting.plant.unbiased else result | {"biased": setting.plant.biased}


def classifier_specs(settings: Sequence[Setting], directory: Path) -> dict[str, str]:
    """Returns name → spec, as a config's `classifier` has them."""
    names = [plant_name(plant) for plant in plants(settings)]
    return {name: f"timm:local-dir:{directory / name}" for name in names}


def _separated(accuracies: Mapping[str, float | None], attributes: Sequence[str]) -> bool:
    return all((accuracies[name] or 0.0) >= LEAST_ACCURACY for name in attributes)
