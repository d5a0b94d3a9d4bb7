"""Trains small classifiers of one attribute whose training data are skewed along another, and measures the resulting
bias.

The skew is Li & Xu's (section 5.1): the biased attribute is on the label's side in 90 % of the pictures. Some labels
are wrong, as people's are: a network that fits correct labels needs only the target, and would use the skew by chance
alone. With a share e of wrong labels and skew s the best answer adds log((1−e)/e) for the target's side and
log(s/(1−s)) for the biased attribute's, so the bias is planted and known. It knows worlds, timm and its format; not who
searches for the bias.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from c2b_ray.errors import ConfigError
from c2b_ray.world.training.checkpoints import pace, set_rate
from c2b_ray.world.training.latent.vaes import as_tensor
from c2b_ray.world.training.latent.worlds import AttributeWorld, Table, all_sides, check_attributes, skewed, world

ARCHITECTURE = "resnet18"
ARGUMENTS: dict[str, Any] = {"layers": [1, 1, 1, 1], "channels": [16, 16, 32, 32], "stem_type": "deep", "stem_width": 8}
"""A strided four-stage network in the size of disentanglement's SimpleConv64, in timm's words, so that timm's loader
reads it."""

_HALF = 0.5


@dataclass(frozen=True)
class Plant:
    """What a classifier learns. With `biased` None or a skew of 0.5 it learns the target alone. `label_noise`: the
    share of wrong labels."""

    world: str
    target: str
    biased: str | None
    skew: float = 0.9
    seed: int = 0
    label_noise: float = 0.05

    def __post_init__(self) -> None:
        check_attributes(world(self.world), [self.target, *([self.biased] if self.biased else [])])
        if self.target == self.biased:
            raise ConfigError("biased", f"target and biased attribute are both {self.target!r}; they must differ")
        if not 0 <= self.label_noise < _HALF:
            raise ConfigError("label_noise", f"label_noise is {self.label_noise}; it must lie in [0, 0.5)")

    @property
    def unbiased(self) -> bool:
        return self.biased is None or self.skew == _HALF

    @property
    def name(self) -> str:
        about = "unbiased" if self.unbiased else f"{self.biased}-{self.skew:g}"
        return f"{self.world}-{self.target}-{about}-{self.seed}"


@dataclass(frozen=True)
class Recipe:
    pictures: int = 6_000
    steps: int = 350
    batch: int = 64
    rate: float = 4e-3
    decay: float = 0.02


def training_set(plant: Plant, pictures: int) -> tuple[Table, NDArray[np.int64]]:
    """Returns the rows to render and their labels, 0 or 1."""
    attribute_world = world(plant.world)
    table = attribute_world.sample(pictures, 10_000 + plant.seed)
    wrong = np.random.default_rng([plant.seed, 5]).random(pictures) < plant.label_noise
    labels = attribute_world.sides(table, plant.target) ^ wrong
    if not plant.unbiased and plant.biased is not None:
        table = skewed(attribute_world, table, plant.biased, labels, plant.skew, plant.seed)
    return table, labels


def train(plant: Plant, recipe: Recipe | None = None) -> nn.Module:
    recipe = recipe or Recipe()
    table, labels = training_set(plant, recipe.pictures)
    sides = F.one_hot(torch.from_numpy(labels), 2).float()
    return fit(world(plant.world).images(table), sides, plant.seed, recipe)


def fit(images: NDArray[np.uint8], targets: Tensor, seed: int, recipe: Recipe) -> nn.Module:
    """Trains a network with an output for each column of targets, (rows, outputs) in [0, 1]. Two columns that sum to 1
    are classes, learned by cross-entropy; any other columns are learned independently."""
    torch.manual_seed(seed)
    model: nn.Module = timm.create_model(ARCHITECTURE, pretrained=False, num_classes=targets.shape[1], **ARGUMENTS)
    classes = bool((targets.sum(dim=1) == 1).all())
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    generator = np.random.default_rng(seed)
    model.train()
    for step in range(recipe.steps):
        set_rate(optimizer, pace(step, recipe.steps, recipe.rate))
        rows = generator.integers(0, len(images), recipe.batch)
        answers = model(normalised(as_tensor(images[rows])))
        wanted = targets[torch.from_numpy(rows)]
        loss = F.cross_entropy(answers, wanted) if classes else F.binary_cross_entropy_with_logits(answers, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def normalised(images: Tensor) -> Tensor:
    return (images - 0.5) / 0.5


@torch.no_grad()
def answers(model: nn.Module, images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Returns logits, float64 (rows, outputs)."""
    parts = [model(normalised(as_tensor(images[k : k + 512]))) for k in range(0, len(images), 512)]
    result: NDArray[np.float64] = torch.cat(parts).double().numpy()
    return result


def effects(model: nn.Module, attribute_world: AttributeWorld, target: str, count: int, seed: int) -> dict[str, Any]:
    """Measures a classifier's dependence on each attribute, by turning one attribute at a time in the same pictures.

    For every attribute `shift`, the mean of p(side 1) − p(side 0), and `change`, the mean of its absolute value; p is
    the probability of the target's side 1. `accuracy`: on balanced pictures with correct labels.
    """
    table = attribute_world.sample(count, seed)
    here = _probability(model, attribute_world, table)
    result: dict[str, Any] = {"pictures": count}
    result["accuracy"] = float(((here > _HALF) == attribute_world.sides(table, target)).mean())
    for attribute in attribute_world.attributes:
        sides = attribute_world.sides(table, attribute)
        difference = (_probability(model, attribute_world, attribute_world.turned(table, attribute)) - here) * (
            1 - 2 * sides
        )
        result[attribute] = {"shift": float(difference.mean()), "change": float(np.abs(difference).mean())}
    return result


def _probability(model: nn.Module, attribute_world: AttributeWorld, table: Table) -> NDArray[np.float64]:
    logits = answers(model, attribute_world.images(table))
    return np.asarray(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])))


def save(model: nn.Module, labels: tuple[str, ...], size: int, out: Path, about: dict[str, Any]) -> None:
    """Writes a directory that timm's loader reads (`timm:local-dir:`): weights in half precision, and metrics.json."""
    out.mkdir(parents=True, exist_ok=True)
    pretrained = {
        "input_size": [3, size, size],
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "interpolation": "bilinear",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "num_classes": len(labels),
        "label_names": labels,
        "license": "apache-2.0",
    }
    config = {
        "architecture": ARCHITECTURE,
        "model_args": ARGUMENTS,
        "num_classes": len(labels),
        "label_names": labels,
        "pretrained_cfg": pretrained,
    }
    state = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    save_file({key: value.contiguous() for key, value in state.items()}, out / "model.safetensors")
    (out / "metrics.json").write_text(json.dumps(about, indent=2) + "\n")
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make(plant: Plant, out: Path, recipe: Recipe | None = None, count: int = 500) -> dict[str, Any]:
    """Trains, saves and measures one classifier; a directory that holds it already stays as it is.

    ConfigError for a directory with another classifier.
    """
    if (out / "config.json").is_file():
        done: dict[str, Any] = json.loads((out / "metrics.json").read_text())
        if done["plant"] != asdict(plant):
            raise ConfigError("out", f"{out} holds another classifier, {done['plant']}; name another directory")
        return done
    started = time.time()
    recipe = recipe or Recipe()
    attribute_world = world(plant.world)
    model = train(plant, recipe)
    about = {
        "plant": asdict(plant),
        "training": {"recipe": asdict(recipe), "seconds": round(time.time() - started, 1)},
        "parameters": sum(p.numel() for p in model.parameters()),
        "truth": effects(model, attribute_world, plant.target, count, 900_000 + plant.seed),
    }
    save(model, attribute_world.attributes[plant.target], attribute_world.size, out, about)
    return about


def train_reader(
    attribute_world: AttributeWorld, seed: int, out: Path, recipe: Recipe | None = None
) -> dict[str, float]:
    """Trains a network that names the side of each attribute of a picture; returns its accuracies on unseen pictures
    and writes a directory as a classifier's to `out`."""
    recipe = recipe or Recipe(pictures=8_000, steps=800)
    table = attribute_world.sample(recipe.pictures, 20_000 + seed)
    model = fit(
        attribute_world.images(table), torch.from_numpy(all_sides(attribute_world, table)).float(), seed, recipe
    )
    unseen = attribute_world.sample(2000, 800_000 + seed)
    right = (answers(model, attribute_world.images(unseen)) > 0) == all_sides(attribute_world, unseen)
    accuracy = dict(zip(attribute_world.attributes, right.mean(axis=0).tolist(), strict=True))
    save(
        model,
        tuple(attribute_world.attributes),
        attribute_world.size,
        out,
        {"recipe": asdict(recipe), "seed": seed, "accuracy": accuracy},
    )
    return accuracy
