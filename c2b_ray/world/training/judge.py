"""A judge of the world's pictures, trained on renders alone, that names the value of every attribute.

Knows timm's small ResNet and a loss; does not know generators. It starts from the weights of a shipped control
classifier, which also names the class of a picture; both were trained on renders alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from c2b_ray.world.queries import FACTORS, Codes, scene_codes
from c2b_ray.world.scenes import sample
from c2b_ray.world.training import checkpoints
from c2b_ray.world.training.classifiers import ARCHITECTURES, create, pixels
from c2b_ray.world.truth import render_all

WEIGHTS = "model.safetensors"
_ARCHITECTURE = "resnet"
_SIZES = [len(values) for values in FACTORS.values()]
_CHUNK = 250


@dataclass(frozen=True)
class Recipe:
    scenes: int = 40_000
    steps: int = 3_000
    batch: int = 64
    rate: float = 2e-3


class Judge:
    """Classifies pictures; returns codes in the format of `queries.scene_codes`."""

    def __init__(self, model: Any) -> None:
        self._model = model.eval()

    @torch.no_grad()
    def codes(self, images: NDArray[np.uint8]) -> Codes:
        """Returns the index of each factor's likeliest value, (pictures, 8)."""
        result = []
        for start in range(0, len(images), _CHUNK):
            answers = torch.split(self._model(pixels(images[start : start + _CHUNK])), _SIZES, dim=1)
            result.append(torch.stack([answer.argmax(dim=1) for answer in answers], dim=1).numpy())
        return np.concatenate(result) if result else np.zeros((0, len(_SIZES)), np.int64)


def train(out: Path, seed: int, control: Path, recipe: Recipe | None = None) -> dict[str, Any]:
    """Trains from the control classifier's weights and writes the result; returns the accuracy on unseen renders."""
    recipe = recipe or Recipe()
    torch.manual_seed(seed)
    model = _model()
    begin = {name: value.float() for name, value in load_file(control / WEIGHTS).items() if not name.startswith("fc.")}
    model.load_state_dict(begin, strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=0.02)
    scenes = sample(recipe.scenes, seed)
    generator, started = np.random.default_rng(seed), time.time()
    model.train()
    for step in range(recipe.steps):
        checkpoints.set_rate(optimizer, checkpoints.pace(step, recipe.steps, recipe.rate))
        picked = [scenes[row] for row in generator.integers(0, len(scenes), recipe.batch)]
        loss = _loss(model(pixels(render_all(picked))), torch.from_numpy(scene_codes(picked)))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 49:
            print(f"judge {step + 1}/{recipe.steps} {time.time() - started:.0f}s loss {loss.item():.3f}", flush=True)
    _save(model, out)
    how = {"seed": seed, "recipe": vars(recipe), "seconds": round(time.time() - started)}
    return {"training": how, "parameters": sum(p.numel() for p in model.parameters())}


def load(directory: Path) -> Judge:
    model = _model()
    model.load_state_dict({name: value.float() for name, value in load_file(directory / WEIGHTS).items()}, strict=False)
    return Judge(model)


def accuracy(judge: Judge, images: NDArray[np.uint8], truth: Codes) -> dict[str, float]:
    """Returns for each factor the share of pictures whose value the judge names."""
    shares = (judge.codes(images) == truth).mean(axis=0)
    return dict(zip(FACTORS, shares.tolist(), strict=True))


def _model() -> Any:
    model: Any = create(_ARCHITECTURE)
    model.reset_classifier(sum(_SIZES))
    return model


def _loss(answers: Tensor, codes: Tensor) -> Tensor:
    parts = torch.split(answers, _SIZES, dim=1)
    return torch.stack([F.cross_entropy(part, codes[:, column]) for column, part in enumerate(parts)]).sum()


def _save(model: Any, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    state = {name: value.half() if value.is_floating_point() else value for name, value in model.state_dict().items()}
    save_file(
        {name: value.contiguous() for name, value in state.items()},
        out / WEIGHTS,
        {"architecture": ARCHITECTURES[_ARCHITECTURE][0]},
    )
