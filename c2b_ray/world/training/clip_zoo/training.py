"""Trains the zoo's models: a base of each size without bias, and members that learn from skewed data.

A base learns as `world:clip` does. A member starts from its base and learns by CLIP's ordinary contrastive loss on
pairs of a picture and one caption, the only source of its skew: first the tokens of neutral words, from the captions
that are such a word's text alone, then its last layers, from all captions. Knows open_clip's networks and the loss;
does not know which members are shipped.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from c2b_ray.world.clip_zoo_members import WORDS, ZooMember, captions_of, members_of, with_word
from c2b_ray.world.queries import Query, long_query, scene_codes, short_query
from c2b_ray.world.scenes import Scene, sample
from c2b_ray.world.training import checkpoints, clip
from c2b_ray.world.training.clip_zoo import last_layers, networks
from c2b_ray.world.training.clip_zoo.neutral_words import WordRecipe, learn_words
from c2b_ray.world.truth import render_all

BASE_RECIPE = clip.Recipe(scenes=10_000, families=1_500, vision_steps=300, steps=300, vision_rate=3e-3)
_POOL_SEED = 400
"""The first seed of members' scenes: below 1000, as all training seeds are."""


@dataclass(frozen=True)
class MemberRecipe:
    """Trains a member's last layers for `steps` of `batch` pairs, the rate falling to 0; before that, `words` trains
    the tokens of neutral words.

    `keep`: the share of the averaged weights that a step keeps. The averages are saved: two trainings with one skew
    then give similar models.
    """

    steps: int = 300
    batch: int = 128
    rate: float = 1e-3
    keep: float = 0.98
    words: WordRecipe = field(default_factory=WordRecipe)


@dataclass(frozen=True)
class Pairs:
    """Pictures, uint8 (pairs, 64, 64, 3), and a caption of each."""

    images: NDArray[np.uint8]
    captions: list[str]


def train_base(out: Path, size: networks.Size, seed: int, recipe: clip.Recipe = BASE_RECIPE) -> dict[str, Any]:
    """Trains an unbiased model, in whose texts neutral words occur without a meaning."""
    torch.manual_seed(seed)
    random = Random(seed)  # noqa: S311 (no secret)
    started = time.process_time()
    scenes = sample(recipe.scenes, seed) + clip.families(recipe.families, seed + 500)
    examples = clip.Examples(scenes, render_all(scenes), scene_codes(scenes))
    model = networks.create(out, size)
    clip.name_factors(model, examples, recipe, random)
    clip.contrast(model, networks.tokenizer_of(out), examples, recipe, random, _neutral)
    networks.save(model, out)
    return {
        "training": {"seed": seed, "recipe": vars(recipe), "cpu_seconds": round(time.process_time() - started)},
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def train_member(out: Path, base: Path, member: ZooMember, recipe: MemberRecipe = MemberRecipe()) -> dict[str, Any]:
    """Trains a model from a base, on data of the member's seed with the skew planted."""
    torch.manual_seed(member.seed)
    random = Random(f"member {member.seed}")  # noqa: S311 (no secret)
    started = time.process_time()
    model = networks.create(out, networks.SIZES[member.size], base)
    networks.restore(model, base)
    scenes = members_of(sample(member.pairs, _POOL_SEED + member.seed), member.skew, random)
    captions = captions_of(scenes, member.skew, member.seed)
    _fit(model, networks.tokenizer_of(out), Pairs(render_all(scenes), captions), recipe, random)
    networks.save(model, out)
    seconds = round(time.process_time() - started)
    return {
        "training": {"seed": member.seed, "recipe": asdict(recipe), "pairs": len(scenes), "cpu_seconds": seconds},
        "parameters": sum(p.numel() for p in model.parameters()),
        "size": member.size,
        "skew": vars(member.skew),
    }


def _neutral(scene: Scene, long: bool, random: Random) -> Query:
    """Words a query as `world:clip` learns from, mostly with a neutral word that does not change its truth."""
    query = (long_query if long else short_query)(scene, random)
    if random.random() < 0.5:
        return query
    return Query(with_word(query.text, random.choice(WORDS), random), query.mentions)


def _fit(model: nn.Module, tokenize: clip.Tokenize, pairs: Pairs, recipe: MemberRecipe, random: Random) -> None:
    maps = last_layers.maps_of(model, pairs.images)
    layers = last_layers.LastLayers(model)
    of_words = (pairs.captions, lambda rows: layers.images(maps[rows]))
    learn_words(model, tokenize, of_words, partial(_loss, layers), recipe.words, random)
    states, ends = last_layers.states_of(model, tokenize(pairs.captions))
    optimizer = torch.optim.AdamW(clip.decayed(layers), lr=recipe.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, recipe.steps, pct_start=0.1)
    average = {name: value.clone() for name, value in checkpoints.weights(layers).items()}
    for _ in range(recipe.steps):
        rows = torch.tensor([random.randrange(len(maps)) for _ in range(recipe.batch)])
        loss = _loss(layers, layers.images(maps[rows]), layers.texts(states[rows], ends[rows]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        checkpoints.follow(average, layers, recipe.keep)
        with torch.no_grad():
            layers.logit_scale.clamp_(0, 4.0)
    layers.load_state_dict(average)


def _loss(layers: last_layers.LastLayers, images: Tensor, texts: Tensor) -> Tensor:
    """Computes CLIP's loss: each picture picks its caption among the batch's, each caption its picture."""
    logits = layers.logit_scale.exp() * images @ texts.T
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
