"""Weights with one defect each, made of good ones, and what must come of them: the same answers on each load, or a
refusal that names a tensor."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from c2b_ray.errors import SpecError, WeightsError

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Kit:
    """`file`: good weights. `head`: what the names of the last layer begin with, "" where there is none. `middle`: a
    tensor that answers depend on."""

    file: Path
    middle: str
    head: str = ""


def _without(tensors: Tensors, *begins: str) -> dict[str, Tensor]:
    left = {name: tensor for name, tensor in tensors.items() if not name.startswith(begins)}
    assert 0 < len(left) < len(tensors), f"no tensor begins with {begins}"
    return left


def _widened(tensors: Tensors, head: str) -> dict[str, Tensor]:
    """Doubles the rows of the last layer."""
    return {n: torch.cat([t, t]) if n.startswith(head) and t.ndim else t for n, t in tensors.items()}


def _averaged(tensors: Tensors) -> dict[str, Tensor]:
    return {name: tensor * 0.5 if tensor.is_floating_point() else tensor.clone() for name, tensor in tensors.items()}


def _prefixed(tensors: Tensors, prefix: str) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _reshaped(tensors: Tensors, name: str) -> dict[str, Tensor]:
    return {**tensors, name: torch.cat([tensors[name], tensors[name]])}


DEFECTS: dict[str, Callable[[Tensors, Kit], dict[str, Tensor]]] = {
    "a tensor missing": lambda t, kit: _without(t, kit.middle),
    "a tensor of another shape": lambda t, kit: _reshaped(t, kit.middle),
    "a tensor of whole numbers": lambda t, kit: {**t, kit.middle: t[kit.middle].to(torch.int8)},
    "half of the tensors": lambda t, kit: dict(list(t.items())[::2]),
    "tensors too many": lambda t, kit: {**t, "blocks.99.extra.weight": torch.zeros(3), "ema_decay": torch.zeros(1)},
    "raw and averaged": lambda t, kit: {**t, **_prefixed(_averaged(t), "ema.")},
    "model. and ema.": lambda t, kit: {**_prefixed(t, "model."), **_prefixed(_averaged(t), "ema.")},
    "other names": lambda t, kit: {f"tensor{i}": tensor for i, tensor in enumerate(t.values())},
}
"""Each is refused, or answers alike on each load."""
OF_HEADS: dict[str, Callable[[Tensors, Kit], dict[str, Tensor]]] = {
    "no head": lambda t, kit: _without(t, kit.head),
    "a head of another size": lambda t, kit: _widened(t, kit.head),
}
PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.", "module._orig_mod.", "model.module.")


def saved(tensors: Tensors, path: Path) -> None:
    save_file({n: t.contiguous().clone() for n, t in tensors.items()}, path, metadata={"format": "pt"})


def damaged(kit: Kit, defect: str) -> None:
    """Writes a kit's file anew with a defect."""
    saved({**DEFECTS, **OF_HEADS}[defect](load_file(kit.file), kit), kit.file)


def shard(file: Path, folder: Path, absent: bool) -> None:
    """Writes weights as two shards with an index, the second of which may be absent."""
    tensors = load_file(file)
    names = sorted(tensors)
    parts = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    file.unlink()
    for part, held in parts.items():
        if not (absent and part.startswith("model-00002")):
            saved({name: tensors[name] for name in held}, folder / part)
    index = {"metadata": {}, "weight_map": {name: part for part, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def names_of(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as opened:
        return list(opened.keys())


def same_twice_or_refused(load: Callable[[], Any], answers: Callable[[Any], bytes], begins: Collection[str]) -> None:
    """Loads a model twice: both must answer alike to the bit, or the first is refused by a message that holds the
    beginning of a tensor's name."""
    message, first = "", b""
    try:
        first = answers(load())
    except (WeightsError, SpecError) as error:
        message = str(error)
    if message:
        assert any(begin in message for begin in begins), message
        return
    torch.manual_seed(torch.initial_seed() + 1)
    assert answers(load()) == first


def refused(load: Callable[[], Any], reason: str) -> None:
    with pytest.raises((WeightsError, SpecError), match=reason):
        load()
