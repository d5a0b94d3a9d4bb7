"""Trains the zoo of skewed CLIP models, and measures each.

Knows the base of each model and the directories of both; does not know how they learn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from c2b_ray.world.clip_zoo_members import MEMBERS, ZooMember, described
from c2b_ray.world.training.clip_zoo import quality, training
from c2b_ray.world.training.clip_zoo.networks import SIZES
from c2b_ray.world.truth import EVALUATION_SEEDS
from c2b_ray.world.zoo import WEIGHTS

METRICS = "metrics.json"


def train_described(out: Path, seed: int, skews: Sequence[str]) -> None:
    """Trains one model for each skew, as `described` parses it, or the shipped zoo where none is named."""
    train_clip_zoo(out, seed, [described(text, seed + k) for k, text in enumerate(skews)] or list(MEMBERS.values()))


def train_clip_zoo(out: Path, seed: int, zoo: Sequence[ZooMember]) -> None:
    """Trains the models, each from the base of its size; a model that `out` already holds stays.

    The base comes from `out`, else from the shipped ones; where neither has it, it is trained first.
    """
    for member in zoo:
        directory = out / member.name
        if (directory / METRICS).is_file():
            continue
        metrics = training.train_member(directory, _base(out, member.size, seed), member)
        metrics["quality"] = quality.evaluate(directory, member.skew, EVALUATION_SEEDS + member.seed)
        _record(directory, metrics)
        print(f"{member.name}: {metrics['training']['cpu_seconds']} s of CPU time", flush=True)


def _base(out: Path, size: str, seed: int) -> Path:
    name = f"clip-base-{size}"
    for directory in (out / name, WEIGHTS / name):
        if (directory / METRICS).is_file():
            return directory
    _record(out / name, training.train_base(out / name, SIZES[size], seed))
    return out / name


def _record(directory: Path, metrics: dict[str, Any]) -> None:
    (directory / METRICS).write_text(json.dumps(metrics, indent=2) + "\n")
