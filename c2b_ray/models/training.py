"""Trains a classifier on two pools of images in fixed proportions, and counts its right answers.

Wiles et al. 2022, App. D: training is unchanged, except that a share of each batch comes from the second pool. Knows
modules, arrays of pixels and label numbers; does not know the source of the images or the meaning of the pools.

AdamW on one cycle of the learning rate, cross-entropy, images mirrored at random and, on request, cropped. The order
of rows and their changes depend on `seed` alone; so does a fresh module, but not the dropout of architectures that have
it. On a CPU each training takes one core: several run beside each other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.models.catalog import Spec
from c2b_ray.models.pixels.preprocess import OnArrays, Transform, batched
from c2b_ray.models.torch_runtime import device_of
from c2b_ray.roles import Description, Pixels

_SETTLING = 40  # batches from which the statistics of batch normalisation are taken anew
_AT_ONCE = 256


@dataclass(frozen=True)
class Pool:
    """`images`: uint8 (rows, height, width, 3), in memory or mapped from a file; `labels`: output number of each."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Recipe:
    """`share`: of each batch, from the second pool. `crop`: the least share of an image's area that a random crop
    keeps; 1 for none. `norms_learn`: whether batch normalisation takes the statistics of these batches."""

    steps: int
    batch: int
    rate: float
    share: float = 0.05
    decay: float = 0.02
    crop: float = 1.0
    norms_learn: bool = True


def fit(
    module: nn.Module,
    prepare: OnArrays,
    pools: tuple[Pool, Pool | None],
    recipe: Recipe,
    seed: int,
    on_step: Callable[[int], None] = lambda step: None,
) -> nn.Module:
    """Trains `module` in place, on the device that its weights are on; the second pool may be None."""
    device = _device(module)
    random = np.random.default_rng(seed)
    rows = batches((len(pools[0]), 0 if pools[1] is None else len(pools[1])), recipe, random)
    optimizer = torch.optim.AdamW(module.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, recipe.steps, pct_start=0.1)
    module.requires_grad_(True).train()
    if not recipe.norms_learn:
        for norm in _norms(module):
            norm.eval()
    for step in range(recipe.steps):
        inputs, targets = _drawn(pools, next(rows), random)
        values = prepare.normalised(torch.from_numpy(inputs).to(device))
        if recipe.crop < 1:
            values = cropped(values, recipe.crop, random)
        loss = F.cross_entropy(module(values), torch.from_numpy(targets).to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        on_step(step + 1)
    if recipe.norms_learn:
        _settle(module, prepare, pools, rows, random)
    return module.eval()


def at_once() -> int:
    """Returns how many trainings run at once in a process: one on a GPU, else one on each core (0)."""
    return int(torch.cuda.is_available())


def batches(
    sizes: tuple[int, int], recipe: Recipe, random: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Yields the rows of both pools for an endless series of batches; each row of a pool occurs once before any
    repeats.

    Fractions of rows in a batch's share are carried to later batches, so the share holds over all of them.
    """
    clean, extra = (_shuffled(size, random) for size in sizes)
    owed = 0.0
    while True:
        owed += recipe.batch * recipe.share if sizes[1] else 0.0
        count = int(owed + 1e-9)
        owed -= count
        yield (
            np.array([next(clean) for _ in range(recipe.batch - count)]),
            np.array([next(extra) for _ in range(count)], np.int64),
        )


def correct(module: nn.Module, prepare: OnArrays, pool: Pool) -> NDArray[np.bool_]:
    """Tells for each row whether the module's likeliest output is the label. Ties and NaN are wrong answers."""
    device = _device(module)
    module.eval()
    right = [np.zeros(0, bool)]
    with torch.inference_mode():
        for start in range(0, len(pool), _AT_ONCE):
            images = torch.from_numpy(np.ascontiguousarray(pool.images[start : start + _AT_ONCE]))
            logits = module(prepare.normalised(images.to(device))).float().cpu().numpy()
            labels = pool.labels[start : start + len(logits)]
            largest = logits.max(axis=1)
            is_untied = (logits >= largest[:, None]).sum(axis=1) == 1  # false for NaN, which equals nothing
            right.append(is_untied & (logits[np.arange(len(labels)), labels] == largest))
    return np.concatenate(right)


def cropped(values: Tensor, least_area: float, random: np.random.Generator) -> Tensor:
    """Crops from each image a random part of at least that share of its area, and enlarges it to full size."""
    side = np.sqrt(random.uniform(least_area, 1.0, len(values))).astype(np.float32)
    shift = (random.uniform(-1, 1, (len(values), 2)).astype(np.float32)) * (1 - side[:, None])
    theta = torch.zeros(len(values), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = torch.from_numpy(side)
    theta[:, :, 2] = torch.from_numpy(shift)
    grid = F.affine_grid(theta.to(values.device), list(values.shape), align_corners=False)
    return F.grid_sample(values, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _drawn(
    pools: tuple[Pool, Pool | None], rows: tuple[NDArray[np.int64], ...], random: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    parts = [
        (pool.images[indices], pool.labels[indices])
        for pool, indices in zip(pools, rows, strict=True)
        if pool is not None
    ]
    images = np.concatenate([images for images, _ in parts])
    mirrored = random.random(len(images)) < 0.5
    images[mirrored] = images[mirrored, :, ::-1]
    return images, np.concatenate([labels for _, labels in parts])


def _shuffled(size: int, random: np.random.Generator) -> Iterator[int]:
    while size:
        yield from random.permutation(size).tolist()


def _settle(
    module: nn.Module,
    prepare: OnArrays,
    pools: tuple[Pool, Pool | None],
    rows: Iterator[tuple[NDArray[np.int64], ...]],
    random: np.random.Generator,
) -> None:
    """Sets batch normalisation's statistics to averages over batches through the finished network, composed as in
    training."""
    norms = _norms(module)
    if not norms:
        return
    device = next(module.parameters()).device
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    with torch.no_grad():
        for _ in range(_SETTLING):
            images, _ = _drawn(pools, next(rows), random)
            module(prepare.normalised(torch.from_numpy(images).to(device)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _norms(module: nn.Module) -> list[_BatchNorm]:
    return [part for part in module.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]


def _device(module: nn.Module) -> torch.device:
    device = next(module.parameters()).device
    if device.type == "cpu":
        torch.set_num_threads(1)  # of this thread
    return device


# Classifiers that can be trained: a new module or one with weights, its preprocessing, and how it is saved.


TRAINABLE = {
    "timm": "c2b_ray.models.timm_classifier:trainable",
    "torchvision": "c2b_ray.models.torchvision_classifier:trainable",
    "world": "c2b_ray.world.zoo:trainable",
}

Build = Callable[[bool], nn.Module]
"""Builds the module, with its weights or with new ones from torch's random state."""


@dataclass(frozen=True)
class Trainable:
    """A trainable classifier. `save`: returns the files of a module, by name. `reload`: returns the spec that loads
    them from their folder."""

    spec: str
    known: Description
    transform: Transform
    build: Build
    save: Callable[[nn.Module], Mapping[str, bytes]]
    reload: Callable[[str], str]

    @property
    def prepare(self) -> OnArrays:
        """The preprocessing: from pixels to uint8 arrays of one size, and from these to the module's input."""
        prepared = batched(self.transform)
        if not isinstance(prepared, OnArrays):
            raise SpecError(
                f"{self.spec}: its preprocessing is none of resizing, cropping and normalising; it cannot be trained"
            )
        return prepared

    def shaped(self, images: Sequence[Pixels]) -> NDArray[np.uint8]:
        """Returns the images as the classifier sees them before normalising, uint8 (images, height, width, 3)."""
        prepare = self.prepare
        return np.stack([prepare.shaped(image) for image in images])

    def fresh(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.build(False)

    def placed(self, module: nn.Module) -> nn.Module:
        """Places the module on the device of the spec, or of this process, in a suitable memory layout."""
        layout = torch.channels_last
        return module.to(device_of(catalog.parse(self.spec)), memory_format=layout)  # type: ignore[call-overload,no-any-return]


def trainable(text: str) -> Trainable:
    """Returns the trainable classifier of a spec. Raises SpecError for a classifier that cannot be trained."""
    spec = catalog.parse(text)
    if spec.scheme not in TRAINABLE:
        raise SpecError(
            f"{text}: only {', '.join(f'{name}:' for name in TRAINABLE)} classifiers can be trained here; others would "
            "need their weights and their code"
        )
    module, _, name = TRAINABLE[spec.scheme].partition(":")
    build: Callable[[Spec], Trainable] = getattr(importlib.import_module(module), name)
    return build(spec)
