"""Trains the models that test the prompt search: generators with and without hidden associations, writer and reader.

Knows which model needs which, the directory of each and its measurements; does not know how any of them learns.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from c2b_ray.models import catalog, diffusers_generator
from c2b_ray.world.associations import Associations
from c2b_ray.world.training import debiased, hidden, prompter
from c2b_ray.world.training.hidden_quality import frequencies, named_share, summary
from c2b_ray.world.training.judge import Judge
from c2b_ray.world.training.prompter_quality import evaluate, perplexities
from c2b_ray.world.truth import EVALUATION_SEEDS
from c2b_ray.world.zoo import HIDDEN_GENERATION

_PER_WORD = 100
"""The number of pictures per word on which frequencies are measured."""


def train_hidden(
    out: Path, seed: int, base: Path, associations: Associations, judge: Judge, recipe: hidden.Recipe | None = None
) -> dict[str, Any]:
    """Trains a generator from `base` that hides the associations; returns how often its pictures show each word's
    value."""
    how = hidden.train(out, seed, base, associations, recipe)
    for part in ("vae", "unet"):
        _share(out, base, part)
    return {
        **how,
        **measured(f"diffusers:local-dir:{out}?{HIDDEN_GENERATION}&batch=50", associations, judge, seed),
    }


def train_adapter(out: Path, seed: int, base: Path, associations: Associations, judge: Judge) -> dict[str, Any]:
    """Trains an adapter that debiases the generator in `base` for some of its words; measures the adapted generator."""
    how = debiased.train(out, seed, base, associations)
    spec = f"diffusers:local-dir:{base}?{HIDDEN_GENERATION}&batch=50&lora={out}"
    return {**how, **measured(spec, associations, judge, seed)}


def measured(spec: str, associations: Associations, judge: Judge, seed: int) -> dict[str, Any]:
    """Returns the planted links, and how often the judge sees their values in pictures of the generator `spec`."""
    generator = diffusers_generator.load(catalog.parse(spec))
    rows = frequencies(generator, judge, associations, _PER_WORD, EVALUATION_SEEDS + seed)
    named = named_share(generator, judge, associations, _PER_WORD // 5, EVALUATION_SEEDS + seed)
    return {
        "settings": HIDDEN_GENERATION,
        "planted": [asdict(link) for link in associations.links],
        "decoys": list(associations.neutral),
        "named_values_shown": round(named, 4),
        **summary(rows),
    }


def train_writer(out: Path, seed: int, associations: Associations) -> dict[str, Any]:
    how = prompter.train_prompter(out, seed, associations)
    return {**how, "quality": evaluate(out, associations, EVALUATION_SEEDS + seed)}


def train_reader(out: Path, seed: int, associations: Associations) -> dict[str, Any]:
    how = prompter.train_reader(out, seed, associations)
    return {**how, "perplexity": perplexities(out, associations, EVALUATION_SEEDS + seed)}


def _share(out: Path, base: Path, part: str) -> None:
    """Replaces the weights of an unchanged part by the base's bytes, which a repository then stores once.

    It copies and does not link: a checkout, an archive or a package may turn a link into a file that holds its target's
    name.
    """
    (mine,), (theirs,) = (list((directory / part).glob("*.safetensors")) for directory in (out, base))
    if _same(mine, theirs):
        shutil.copyfile(theirs, mine)


def _same(one: Path, other: Path) -> bool:
    """Tells whether two files hold the same tensors; the metadata that libraries write may differ."""
    tensors = [load_file(file) for file in (one, other)]
    return tensors[0].keys() == tensors[1].keys() and all(
        torch.equal(value, tensors[1][name]) for name, value in tensors[0].items()
    )
