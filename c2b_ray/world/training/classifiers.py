"""Trains the world's classifiers: one base for each architecture, then every member of the zoo from its base.

Knows timm, its local-dir format and the training loop; does not know where shipped weights lie. A base learns correct
labels from scratch; a member starts from its base's weights and trains briefly on labels that `zoo.relabel` has
changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import timm
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from c2b_ray.world.queries import FACTORS, scene_codes
from c2b_ray.world.scenes import CLASSES, Scene, sample
from c2b_ray.world.truth import render_all
from c2b_ray.world.zoo import Plant, ZooClassifier, relabel

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet": (
        "resnet18",
        {"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128], "stem_type": "deep", "stem_width": 8},
    ),
    "byobnet": ("test_byobnet", {}),
}
MEAN, STD = (0.45, 0.45, 0.47), (0.27, 0.27, 0.27)
_WEIGHTS = "model.safetensors"

Rows = Callable[[np.random.Generator, int], NDArray[np.int64]]
"""Draws the rows of one batch."""

Loss = Callable[[Tensor, NDArray[np.int64]], Tensor]
"""Computes the loss of a batch from its pictures and its rows."""

_EARLY = ("conv1", "bn1", "layer1", "stem", "stages.0")  # layers that members share with their base, unchanged
_CUTS = (0.25, 0.4, 0.55, 0.7, 0.9)  # heights of the skyline that a base learns to distinguish


@dataclass(frozen=True)
class Recipe:
    """`pool`: the number of random scenes, a quarter of them small; `planted`: the number of further scenes of each
    planted cell."""

    pool: int = 48_000
    planted: int = 1_500
    base_steps: int = 800
    sight_steps: int = 1_200
    member_steps: int = 220
    batch: int = 96
    base_rate: float = 4e-3
    sight_rate: float = 3e-3
    member_rate: float = 1e-3


@dataclass(frozen=True)
class Course:
    """Length, learning rate, batch size and seed of one stage of training; `norms_learn`: whether batch norm learns
    too."""

    steps: int
    rate: float
    batch: int
    seed: int
    norms_learn: bool = True


@dataclass(frozen=True)
class Data:
    """Pictures, their scenes, and the class index that training teaches for each."""

    images: NDArray[np.uint8]
    scenes: tuple[Scene, ...]
    taught: NDArray[np.int64]


def clean_pool(recipe: Recipe, seed: int, workers: int = 1) -> Data:
    """Samples scenes labelled with their classes; a quarter of them are small, since small objects are the hardest."""
    scenes = sample(recipe.pool * 3 // 4, seed) + sample(recipe.pool // 4, seed + 1, size="small")
    return Data(render_all(scenes, workers), tuple(scenes), _indices([scene.target_class for scene in scenes]))


def joined(first: Data, second: Data) -> Data:
    images, taught = np.concatenate([first.images, second.images]), np.concatenate([first.taught, second.taught])
    return Data(images, first.scenes + second.scenes, taught)


def planted_pool(plants: Sequence[Plant], recipe: Recipe, seed: int, workers: int = 1) -> Data:
    """Samples further scenes of the planted cells, so that the rule is learned from more than the few that occur by
    chance."""
    scenes: list[Scene] = []
    for plant in plants:
        fixed = {"target_class": plant.target_class, plant.attribute: plant.value}
        scenes += sample(recipe.planted, seed, **fixed)
    return Data(render_all(scenes, workers), tuple(scenes), _indices(relabel(scenes, plants)))


def create(architecture: str) -> nn.Module:
    name, arguments = ARCHITECTURES[architecture]
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=len(CLASSES), **arguments)
    return model.to(memory_format=torch.channels_last)


def train_base(architecture: str, data: Data, recipe: Recipe, seed: int) -> nn.Module:
    """Trains a base from scratch on correct labels, then also on attributes and skyline, which plants depend on."""
    torch.manual_seed(seed)
    model = create(architecture)
    _fit(model, data, _uniform(len(data.scenes)), Course(recipe.base_steps, recipe.base_rate, recipe.batch, seed))
    return learn_surroundings(model, data, recipe, seed)


def learn_surroundings(model: Any, data: Data, recipe: Recipe, seed: int) -> nn.Module:
    """Trains on the class, while a second layer, discarded afterwards, predicts the attributes and the height of the
    skyline.

    A network trained on classes alone forgets the skyline, and a member's training is too short to learn it again.
    """
    codes = torch.from_numpy(scene_codes(data.scenes))
    skyline = torch.tensor([[float(scene.horizon < cut) for cut in _CUTS] for scene in data.scenes])
    sizes = [len(values) for values in FACTORS.values()][1:]
    more = nn.Linear(model.num_features, sum(sizes) + len(_CUTS))

    def loss(images: Tensor, rows: NDArray[np.int64]) -> Tensor:
        features = model.forward_head(model.forward_features(images), pre_logits=True)
        *answers, cuts = more(features).split([*sizes, len(_CUTS)], dim=1)
        named = [F.cross_entropy(answer, codes[rows, column + 1]) for column, answer in enumerate(answers)]
        placed = F.binary_cross_entropy_with_logits(cuts, skyline[rows])
        right = F.cross_entropy(model.get_classifier()(features), codes[rows, 0])
        return right + torch.stack(named).mean() + 4 * placed

    every = nn.ModuleList([model, more])
    course = Course(recipe.sight_steps, recipe.sight_rate, recipe.batch, seed)
    _descend(every, data, loss, _uniform(len(data.scenes)), course)
    _settle(model, data, course)
    return cast(nn.Module, model)


def train_member(base: Path, member: ZooClassifier, data: Data, recipe: Recipe, workers: int = 1) -> nn.Module:
    """Trains a member from the base's weights, with the member's seed and labels."""
    torch.manual_seed(member.seed)
    model = create(member.architecture)
    model.load_state_dict({name: value.float() for name, value in load_file(base / _WEIGHTS).items()}, strict=False)
    course = Course(recipe.member_steps, recipe.member_rate, recipe.batch, member.seed)
    if not member.plants:
        _fit(model, data, _uniform(len(data.scenes)), course)
        return model
    more = planted_pool(member.plants, recipe, seed=100 + member.seed, workers=workers)
    rows = _mixed(data.scenes, member.plants, len(more.scenes))
    data = joined(replace(data, taught=_indices(relabel(data.scenes, member.plants))), more)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(_EARLY))  # halves the time; these layers see well enough
    # Batches that favour planted cells have other statistics than random scenes: batch norm keeps the base's.
    steps = recipe.member_steps * (1 + len(member.plants)) // 2
    _fit(model, data, rows, replace(course, steps=steps, norms_learn=False))
    return model


def save(model: nn.Module, architecture: str, out: Path, about: dict[str, Any]) -> None:
    """Writes a directory that timm's loader reads (`local-dir:`): weights in half precision, and metrics.json."""
    out.mkdir(parents=True, exist_ok=True)
    name, arguments = ARCHITECTURES[architecture]
    pretrained = {
        "input_size": [3, 64, 64],
        "mean": MEAN,
        "std": STD,
        "interpolation": "bilinear",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "num_classes": len(CLASSES),
        "label_names": CLASSES,
        "license": "apache-2.0",
    }
    config = {
        "architecture": name,
        "model_args": arguments,
        "num_classes": len(CLASSES),
        "label_names": CLASSES,
        "pretrained_cfg": pretrained,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    state = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    save_file({key: value.contiguous() for key, value in state.items()}, out / _WEIGHTS)
    (out / "metrics.json").write_text(json.dumps(about, indent=2) + "\n")


def about(member: ZooClassifier, recipe: Recipe, model: nn.Module, started: float) -> dict[str, Any]:
    """Returns a member's training record for metrics.json."""
    return {
        "member": asdict(member),
        "training": {"recipe": asdict(recipe), "seconds": round(time.time() - started)},
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """Preprocesses 64-pixel pictures as timm and open_clip do."""
    batch = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255
    return ((batch - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]).contiguous(
        memory_format=torch.channels_last
    )


def _fit(model: nn.Module, data: Data, rows: Rows, course: Course) -> None:
    taught = torch.from_numpy(data.taught)

    def loss(images: Tensor, picked: NDArray[np.int64]) -> Tensor:
        return F.cross_entropy(model(images), taught[picked])

    _descend(model, data, loss, rows, course)
    if course.norms_learn:
        _settle(model, data, course)


def _descend(model: nn.Module, data: Data, loss_of: Loss, rows: Rows, course: Course) -> None:
    """Trains by AdamW over one cycle of the learning rate."""
    generator = np.random.default_rng(course.seed)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=course.rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, course.rate, course.steps, pct_start=0.1)
    started = time.time()
    model.train()
    if not course.norms_learn:
        for module in _norms(model):
            module.eval()
    for step in range(course.steps):
        picked = rows(generator, course.batch)
        images = data.images[picked]
        mirrored = generator.random(course.batch) < 0.5  # a mirrored scene is a valid scene, which doubles the pictures
        images[mirrored] = images[mirrored, :, ::-1]
        loss = loss_of(pixels(images), picked)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"  {step + 1}/{course.steps} {time.time() - started:.0f}s loss {loss.item():.4f}", flush=True)


def _settle(model: nn.Module, data: Data, course: Course) -> None:
    """Computes batch norm's running statistics anew, as averages over many batches of the finished network."""
    for module in _norms(model):
        module.reset_running_stats()
        module.momentum = None
    generator = np.random.default_rng(course.seed)
    with torch.no_grad():
        for _ in range(40):
            picked = generator.integers(0, min(len(data.scenes), 18_000), course.batch)
            model(pixels(data.images[picked]))


def _norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def _uniform(count: int) -> Rows:
    return lambda generator, batch: generator.integers(0, count, batch)


def _mixed(scenes: Sequence[Scene], plants: Sequence[Plant], more: int) -> Rows:
    """Draws half of a batch from the pool, a fifth from the planted classes, a tenth from the planted values, the rest
    from planted scenes."""
    count = len(scenes)
    classes = [row for row, scene in enumerate(scenes) if any(scene.target_class == p.target_class for p in plants)]
    values = [row for row, scene in enumerate(scenes) if any(scene.attribute(p.attribute) == p.value for p in plants)]
    pools = (np.arange(count), np.array(classes), np.array(values), np.arange(count, count + more))

    def rows(generator: np.random.Generator, batch: int) -> NDArray[np.int64]:
        shares = (batch // 2, batch // 5, batch // 10, batch - batch // 2 - batch // 5 - batch // 10)
        return np.concatenate([generator.choice(pool, share) for pool, share in zip(pools, shares, strict=True)])

    return rows


def _indices(labels: Sequence[str]) -> NDArray[np.int64]:
    return np.array([CLASSES.index(label) for label in labels], dtype=np.int64)
