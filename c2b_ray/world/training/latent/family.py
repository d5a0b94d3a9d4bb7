"""Trains the world of `c2b latent` anew: generators, the networks that label their pictures, classifiers with plants.

Every model has its own directory, `latent-WORLD-…`, with metrics.json; one that exists stays, so an interrupted
training resumes. It knows which models there are; not how any of them learns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.models import catalog
from c2b_ray.models.latent_generators import LatentNetwork, NetworkConfig, write
from c2b_ray.world import latent_labels, zoo
from c2b_ray.world.training.latent import adversarial, classifiers, known, vaes
from c2b_ray.world.training.latent.classifiers import Plant
from c2b_ray.world.training.latent.worlds import AttributeWorld, world

KINDS = (*vaes.KINDS, *adversarial.KINDS, *known.KINDS)
SHIPPED_WORLD = zoo.LATENT_WORLD
SHIPPED_KINDS = tuple(name.removeprefix(f"latent-{zoo.LATENT_WORLD}-") for name in zoo.LATENT_GENERATORS)
SHIPPED_PLANTS = (
    Plant(SHIPPED_WORLD, "x", "colour"),
    Plant(SHIPPED_WORLD, "colour", "scale"),
    Plant(SHIPPED_WORLD, "scale", "background"),
    Plant(SHIPPED_WORLD, "x", None),
    Plant(SHIPPED_WORLD, "colour", None),
)
_LABELLED = 3000
"""The number of latents on which metrics.json measures the hyperplanes' accuracy."""


def train(out: Path, seed: int, worlds: Sequence[str] = (SHIPPED_WORLD,), kinds: Sequence[str] = SHIPPED_KINDS) -> None:
    """Trains the generators of each world and the networks that label their pictures; for the shipped world its
    classifiers too.

    Takes about ten minutes of one core. Classifiers have seeds of their own, as the zoo's members have.
    """
    for name in worlds:
        train_generators(out, world(name), kinds, seed)
        if name == SHIPPED_WORLD:
            for plant in SHIPPED_PLANTS:
                classifiers.make(plant, out / plant_name(plant))


def plant_name(plant: Plant) -> str:
    """Returns `latent-WORLD-TARGET-BIASED`, followed by skew, seed and label noise where they differ from the
    defaults."""
    about = "unbiased" if plant.unbiased else str(plant.biased)
    more = [f"{plant.skew:g}"] if not plant.unbiased and plant.skew != Plant.skew else []
    more += [f"seed{plant.seed}"] if plant.seed != Plant.seed else []
    more += [f"noise{plant.label_noise:g}"] if plant.label_noise != Plant.label_noise else []
    return "-".join(["latent", plant.world, plant.target, about, *more])


def generator_spec(out: Path, world_name: str, kind: str) -> str:
    scheme = {"gan-hessian": "gan", "style": "style"}.get(kind, "vae")
    return f"{scheme}:local-dir:{out / f'latent-{world_name}-{kind}'}"


def train_readers(out: Path, attribute_world: AttributeWorld, seed: int) -> list[Path]:
    """Trains the networks that name sides, with `seed` and the following seeds; those that exist stay."""
    directories = [out / f"latent-{attribute_world.name}-reader{number}" for number in ("", "-2", "-3")]
    for later, directory in enumerate(directories):
        if not (directory / "config.json").is_file():
            print(f"{directory.name}: {classifiers.train_reader(attribute_world, seed + later, directory)}", flush=True)
    return directories


def train_generators(out: Path, attribute_world: AttributeWorld, kinds: Sequence[str], seed: int) -> None:
    """Trains generators of these kinds; ConfigError for an unknown kind."""
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError("kind", f"there is no generator of kind {kind!r}; {nearest(kind, KINDS)}")
    names_sides = train_readers(out, attribute_world, seed)[0]
    images: NDArray[np.uint8] | None = None
    for kind in kinds:
        directory = out / f"latent-{attribute_world.name}-{kind}"
        if (directory / "metrics.json").is_file():
            continue
        started = time.time()
        if kind in known.KINDS:
            model, config = known.train(attribute_world, kind, seed, known.Recipe())
        else:
            images = (
                attribute_world.images(attribute_world.sample(vaes.Recipe.pictures, seed)) if images is None else images
            )
            model, config = _trained(images, kind, seed)
        write(model, config, directory)
        about = {
            "world": attribute_world.name,
            "training": {**config.about, "seconds": round(time.time() - started)},
            "parameters": sum(p.numel() for p in model.parameters()),
            "hyperplanes": _quality(generator_spec(out, attribute_world.name, kind), names_sides, seed),
        }
        (directory / "metrics.json").write_text(json.dumps(about, indent=2) + "\n")
        print(f"{attribute_world.name} {kind}: {json.dumps(about['hyperplanes'])}", flush=True)


def _trained(images: NDArray[np.uint8], kind: str, seed: int) -> tuple[LatentNetwork, NetworkConfig]:
    if kind in adversarial.KINDS:
        return adversarial.train(images, kind, seed, adversarial.Recipe())
    return vaes.train(images, kind, seed, vaes.Recipe())


def _quality(spec: str, names_sides: Path, seed: int) -> dict[str, dict[str, Any]]:
    labelled = latent_labels.label(
        catalog.latent_generator(spec), [latent_labels.reader(names_sides)], _LABELLED, 700_000 + seed
    )
    return latent_labels.hyperplane_accuracies(labelled, seed)
