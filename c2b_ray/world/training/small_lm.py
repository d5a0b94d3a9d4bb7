"""Trains a small Llama on chats or plain texts, with a tokenizer trained on the same texts.

Knows tokenizers, the network and the optimiser of `language_model`; callers write the texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from c2b_ray.roles import Message
from c2b_ray.world.training.language_model import BEGIN, END, PAD, ROLES, as_chat_tokenizer, encode, fit, padded

POSITIONS = 256
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Lesson:
    """A chat and its reply; without messages, a plain text."""

    messages: tuple[Message, ...]
    reply: str


Write = Callable[[Random], Lesson]
"""Draws one lesson."""


@dataclass(frozen=True)
class Recipe:
    """`kind` of tokenizer: bpe or unigram. `fixed`: texts that are one token each, for wording that every chat
    holds."""

    kind: str = "bpe"
    vocabulary: int = 1000
    width: int = 128
    layers: int = 3
    heads: int = 4
    steps: int = 1500
    rows: int = 24
    texts: int = 6000
    fixed: tuple[str, ...] = ()


def train(out: Path, seed: int, write: Write, recipe: Recipe, start: Path | None = None) -> dict[str, Any]:
    """Writes config, float16 safetensors and tokenizer to `out`; returns the training's record.

    start: a directory of the same kind, from whose weights and tokenizer training starts.
    """
    torch.set_num_threads(1)
    started = time.monotonic()
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(start) if start else train_tokenizer(seed, write, recipe)
    model = build(seed, len(tokenizer), recipe).train()
    if start is not None:
        model.load_state_dict({name: value.float() for name, value in load_file(start / WEIGHTS).items()}, strict=False)
    losses = []
    for step, loss in enumerate(fit(model, batches(tokenizer, seed, write, recipe.rows), recipe.steps)):
        losses.append(loss)
        if step % 100 == 99:
            seconds = time.monotonic() - started
            print(f"{out.name} {step + 1}/{recipe.steps} {seconds:.0f}s {sum(losses[-50:]) / 50:.4f}", flush=True)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    model.config._attn_implementation = "sdpa"
    parameters = sum(p.numel() for p in model.parameters())
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    how = {"seed": seed, "recipe": vars(recipe), "seconds": round(time.monotonic() - started)}
    last = losses[-100:]
    return {"training": how, "parameters": parameters, "loss": round(sum(last) / len(last), 4)}


def train_tokenizer(seed: int, write: Write, recipe: Recipe) -> PreTrainedTokenizerFast:
    """Trains a tokenizer whose alphabet is bytes, so any text encodes. Ids 0, 1, 2 are pad, begin (before every text)
    and end."""
    random = Random(f"tokenizer {seed}")  # noqa: S311 (no secret)
    lessons = (write(random) for _ in range(recipe.texts))
    texts = (text for lesson in lessons for text in (*(m.content for m in lesson.messages), lesson.reply))
    bpe, alphabet = recipe.kind == "bpe", pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE() if bpe else models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=not bpe)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = (trainers.BpeTrainer if bpe else trainers.UnigramTrainer)(
        vocab_size=recipe.vocabulary,
        special_tokens=[PAD, BEGIN, END, *ROLES],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return as_chat_tokenizer(tokenizer, recipe.fixed, POSITIONS)


def build(seed: int, vocabulary: int, recipe: Recipe) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.width,
        intermediate_size=3 * recipe.width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    config._attn_implementation = "eager"  # at this size plain matrix products are faster than the fused kernel
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]


def batches(tokenizer: Any, seed: int, write: Write, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields endless pairs (ids, learn), int64 and bool (rows, tokens), padded right; rows of one batch are of similar
    length."""
    random = Random(f"batches {seed}")  # noqa: S311 (no secret)
    while True:
        lessons = (write(random) for _ in range(rows * 16))
        pool = sorted((encode(tokenizer, one.messages, one.reply) for one in lessons), key=lambda row: len(row[0]))
        parts = [pool[start : start + rows] for start in range(0, len(pool), rows)]
        random.shuffle(parts)
        yield from (padded(part) for part in parts)
