"""Trains the world's open_clip model on pictures and texts.

Knows open_clip, its local-dir format and the contrastive loss; does not know where shipped weights lie. The meaning of
every text is known, so whether a text is true of a picture is known for every pair of a batch: all pictures of which a
text is true are its positives, and factors that it omits do not influence its similarity.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from c2b_ray.world.queries import (
    FACTORS,
    Codes,
    Query,
    alternatives,
    long_query,
    matches,
    query_codes,
    scene_codes,
    short_query,
)
from c2b_ray.world.scenes import Scene, sample
from c2b_ray.world.training.classifiers import MEAN, STD, pixels
from c2b_ray.world.truth import render_all

CONTEXT = 56
EMBED = 128
VISION: dict[str, Any] = {"layers": [1, 1, 1, 1], "width": 16, "head_width": 64, "image_size": 64}
TEXT: dict[str, Any] = {
    "context_length": CONTEXT,
    "width": 128,
    "heads": 4,
    "layers": 2,
    "pool_type": "eos",
    "eos_id": 2,
}
Tokenize = Callable[[list[str]], Tensor]
Worder = Callable[[Scene, bool, Random], Query]
"""Writes a text about a scene: a long one or a short one."""
_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")


@dataclass(frozen=True)
class Recipe:
    """The training's length and data: `scenes` random scenes, and `families` of four scenes that differ in one factor.

    The vision tower first learns to name every factor (`vision_steps`), since contrast with texts teaches it slowly;
    then both towers learn from texts (`steps`).
    """

    scenes: int = 16_000
    families: int = 3_000
    vision_steps: int = 700
    steps: int = 500
    batch: int = 128
    texts: int = 64
    vision_rate: float = 2e-3
    learning_rate: float = 1.5e-3


@dataclass(frozen=True)
class Examples:
    scenes: Sequence[Scene]
    images: NDArray[np.uint8]
    codes: Codes


def train(out: Path, seed: int, recipe: Recipe | None = None, workers: int = 1) -> dict[str, Any]:
    """Trains from scratch and writes an open_clip local directory; returns the training's record."""
    recipe = recipe or Recipe()
    torch.manual_seed(seed)
    random = Random(seed)  # noqa: S311 (no secret)
    started = time.time()
    scenes = sample(recipe.scenes, seed) + families(recipe.families, seed + 500)
    examples = Examples(scenes, render_all(scenes, workers), scene_codes(scenes))
    out.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(out, scenes[: recipe.scenes], random)
    _write_config(out)
    model = open_clip.create_model(f"local-dir:{out}", load_weights=False)
    tokenize = open_clip.get_tokenizer(f"local-dir:{out}")
    name_factors(model, examples, recipe, random)
    contrast(model, tokenize, examples, recipe, random, _query)
    _save(model, out)
    how = {"seed": seed, "recipe": vars(recipe), "seconds": round(time.time() - started)}
    return {"training": how, "parameters": sum(p.numel() for p in model.parameters())}


def families(n: int, seed: int) -> list[Scene]:
    """Samples n families of four scenes that agree in all but one factor: the hardest negatives, side by side."""
    random = Random(seed)  # noqa: S311 (no secret)
    members = []
    for scene in sample(n, seed):
        factor = random.choice(list(FACTORS))
        values = list(FACTORS[factor])
        random.shuffle(values)
        for k in range(4):
            changes: dict[str, Any] = {factor: values[k % len(values)], "jitter": random.getrandbits(32)}
            members.append(replace(scene, horizon=random.random(), x=random.random(), **changes))
    return members


def name_factors(model: nn.Module, examples: Examples, recipe: Recipe, random: Random) -> None:
    """Trains the vision tower alone, with a linear layer for each factor, which is discarded afterwards."""
    codes = torch.from_numpy(examples.codes)
    sizes = [len(values) for values in FACTORS.values()]
    dimension: int = model.visual.output_dim  # type: ignore[union-attr, assignment]
    learner = nn.ModuleList([model.visual, nn.Linear(dimension, sum(sizes))])  # type: ignore[list-item]
    learner.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(decayed(learner), lr=recipe.vision_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.vision_rate, recipe.vision_steps, pct_start=0.1)
    started = time.time()
    for step in range(recipe.vision_steps):
        rows = [random.randrange(len(codes)) for _ in range(recipe.batch)]
        answers = learner[1](learner[0](pixels(examples.images[rows]))).split(sizes, dim=1)
        losses = [F.cross_entropy(answer, codes[rows, column]) for column, answer in enumerate(answers)]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            each = " ".join(f"{loss.item():.2f}" for loss in losses)
            print(f"vision {step + 1}/{recipe.vision_steps} {time.time() - started:.0f}s losses {each}", flush=True)


def contrast(
    model: nn.Module, tokenize: Tokenize, examples: Examples, recipe: Recipe, random: Random, word: Worder
) -> None:
    """Trains both towers on texts about the batch's scenes, which `word` writes: half of them long, half short."""
    model.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(decayed(model), lr=recipe.learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.learning_rate, recipe.steps, pct_start=0.06)
    started = time.time()
    for step in range(recipe.steps):
        rows = _rows(recipe, random)
        features = F.normalize(model.encode_image(pixels(examples.images[rows])), dim=-1)  # type: ignore[operator]
        scenes = [examples.scenes[row] for row in rows]
        described = random.sample(range(len(scenes)), recipe.texts)
        queries = [word(scenes[row], k % 2 == 0, random) for k, row in enumerate(described)]
        loss = _loss(model, tokenize, features, examples.codes[rows], queries, random)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.0)  # type: ignore[operator]
        if step % 50 == 49:
            print(f"clip {step + 1}/{recipe.steps} {time.time() - started:.0f}s loss {loss.item():.3f}", flush=True)


def _query(scene: Scene, long: bool, random: Random) -> Query:
    return (long_query if long else short_query)(scene, random)


def _rows(recipe: Recipe, random: Random) -> list[int]:
    """Draws half of a batch at random; the other half are whole families."""
    half = recipe.batch // 2
    picked = [random.randrange(recipe.scenes) for _ in range(half)]
    for _ in range(half // 4):
        first = recipe.scenes + 4 * random.randrange(recipe.families)
        picked += range(first, first + 4)
    return picked


def _loss(
    model: nn.Module, tokenize: Tokenize, features: Tensor, codes: Codes, queries: list[Query], random: Random
) -> Tensor:
    """Computes the contrastive loss of texts and pictures in both directions, plus zero-shot classification by every
    factor.

    queries: long and short in turn; they are encoded separately, since each group is padded to its longest text.
    """
    prompts = [alternatives(factor, random) for factor in FACTORS]
    short = [query.text for query in queries[1::2]] + [text for group in prompts for text in group]
    long = [query.text for query in queries[0::2]]
    encoded_short, encoded_long = encode(model, tokenize(short)), encode(model, tokenize(long))
    count = len(queries[1::2])
    scale = model.logit_scale.exp()  # type: ignore[operator]
    ordered: list[Query] = queries[1::2] + queries[0::2]
    logits = scale * torch.cat([encoded_short[:count], encoded_long]) @ features.T
    truth = torch.from_numpy(matches(query_codes(ordered), codes)).float()
    loss = _cross_entropy(logits, truth) + 0.3 * _cross_entropy(logits.T, truth.T)
    start = count
    for column, group in enumerate(prompts):
        answers = scale * features @ encoded_short[start : start + len(group)].T
        loss = loss + 0.25 * F.cross_entropy(answers, torch.from_numpy(codes[:, column]))
        start += len(group)
    return loss


def _cross_entropy(logits: Tensor, truth: Tensor) -> Tensor:
    """Computes cross-entropy against equal shares for all positives; omits rows without positives."""
    has_truth = truth.sum(dim=1) > 0
    target = truth[has_truth] / truth[has_truth].sum(dim=1, keepdim=True)
    excess = -(target * target.clamp_min(1e-9).log()).sum(dim=1)  # so that 0 is a perfect fit
    return (F.cross_entropy(logits[has_truth], target, reduction="none") - excess).mean()


def encode(model: nn.Module, tokens: Tensor) -> Tensor:
    """Returns unit-norm text features; cuts off padding beyond the longest text, which changes only the time."""
    text: Any = model.text
    length = int((tokens != 0).sum(dim=1).max())
    mask = text.attn_mask
    text.attn_mask = mask[:length, :length]
    try:
        return F.normalize(text(tokens[:, :length]), dim=-1)
    finally:
        text.attn_mask = mask


def decayed(model: nn.Module) -> list[dict[str, Any]]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def _write_tokenizer(out: Path, scenes: Sequence[Scene], random: Random) -> None:
    """Writes a lower-case byte-pair vocabulary of the world's words; other words split into letters, so none is
    unknown."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=list(_SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    texts = [make(scene, random).text for scene in scenes[:6000] for make in (long_query, short_query)]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        "<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    wrapped: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, model_max_length=CONTEXT, **names
    )
    wrapped.save_pretrained(out)


def _write_config(out: Path) -> None:
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    text = {**TEXT, "vocab_size": tokenizer.get_vocab_size(), "hf_tokenizer_name": "local"}
    model = {"embed_dim": EMBED, "custom_text": True, "vision_cfg": VISION, "text_cfg": text}
    preprocess = {"size": 64, "mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "shortest"}
    config = {"model_cfg": model, "preprocess_cfg": preprocess}
    (out / "open_clip_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _save(model: nn.Module, out: Path) -> None:
    """Writes the weights in half precision; open_clip's loader converts them to float32."""
    state = {name: value.half() if value.is_floating_point() else value for name, value in model.state_dict().items()}
    save_file({name: value.contiguous() for name, value in state.items()}, out / "open_clip_model.safetensors")
