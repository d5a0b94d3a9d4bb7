"""Saves and restores the state of a long training: weights, Adam's moments and the step, in one file.

Knows torch modules, AdamW and safetensors; does not know what is trained. The random draws of a step depend on its
number, so a training that resumes gives the weights of one that was never interrupted. A file is written whole or not
at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

_STEP = "step"


def save(
    path: Path, step: int, model: nn.Module, optimizer: torch.optim.AdamW, average: dict[str, Tensor] | None = None
) -> None:
    """Writes the state. `average`: the moving average of the weights, where the training keeps one."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in _learning(model):
        for key, value in optimizer.state[parameter].items():
            tensors[f"adam.{name}.{key}"] = torch.as_tensor(value)
    tensors |= {f"average.{name}": value for name, value in (average or {}).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    save_file({name: value.contiguous() for name, value in tensors.items()}, unfinished, {_STEP: str(step)})
    unfinished.replace(path)


def restore(
    path: Path, model: nn.Module, optimizer: torch.optim.AdamW, average: dict[str, Tensor] | None = None
) -> int:
    """Restores model, optimizer and average in place, and returns the number of finished steps: 0 without a file."""
    if not path.is_file():
        return 0
    with safe_open(path, framework="pt") as file:
        step = int(file.metadata()[_STEP])
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    model.load_state_dict(_under("model.", tensors))
    moments = _under("adam.", tensors)
    for name, parameter in _learning(model):
        state: dict[str, Any] = {key: moments[f"{name}.{key}"] for key in ("step", "exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = state
    if average is not None:
        average.update(_under("average.", tensors) or {name: value.clone() for name, value in weights(model).items()})
    return step


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns the model's tensors themselves, which training changes; clone them to keep their values."""
    return dict(model.state_dict())


@torch.no_grad()
def follow(average: dict[str, Tensor], model: nn.Module, keep: float) -> None:
    """Moves the average by a share of 1 − keep towards the model's weights."""
    for name, value in weights(model).items():
        if value.is_floating_point():
            average[name].lerp_(value, 1 - keep)
        else:
            average[name].copy_(value)


def half_where_faster() -> torch.autocast:
    """Computes in bfloat16 on a CPU that has instructions for it (measured: 1.5 times as fast); else in float32."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=torch.cpu._is_avx512_bf16_supported())


def pace(step: int, steps: int, rate: float, warmup: int = 50) -> float:
    """Returns the learning rate of a step: it rises for `warmup` steps, stays level, and falls to 5 % over the last
    third."""
    rise = min(1.0, (step + 1) / warmup)
    left = (steps - step) / max(1, steps / 3)
    return rate * rise * min(1.0, max(0.05, left))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _learning(model: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
