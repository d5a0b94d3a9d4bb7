"""The sizes of the zoo's open_clip models, their tokenizer and their files.

Knows open_clip's local-dir format; does not know what the models learn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import open_clip
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers import PreTrainedTokenizerFast

from c2b_ray.world.clip_zoo_members import WORDS, neutral_texts, worded
from c2b_ray.world.queries import long_query, short_query
from c2b_ray.world.scenes import sample
from c2b_ray.world.training.classifiers import MEAN, STD
from c2b_ray.world.training.clip import Tokenize

CONTEXT = 56
VOCABULARY = 800
_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
_WEIGHTS = "open_clip_model.safetensors"


@dataclass(frozen=True)
class Size:
    """Widths of the towers (channels of the first vision stage; the text transformer) and of their shared space."""

    vision: int
    text: int
    embedding: int


SIZES: dict[str, Size] = {"s": Size(6, 48, 64), "m": Size(8, 64, 80), "l": Size(10, 80, 96)}


def create(out: Path, size: Size, tokenizer: Path | None = None) -> nn.Module:
    """Writes an open_clip directory without weights to `out`; returns its network with random ones."""
    out.mkdir(parents=True, exist_ok=True)
    if tokenizer is None:
        _train_tokenizer().save_pretrained(out)
    else:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (out / name).write_bytes((tokenizer / name).read_bytes())
    words = Tokenizer.from_file(str(out / "tokenizer.json")).get_vocab_size()
    text = {
        "context_length": CONTEXT, "vocab_size": words, "hf_tokenizer_name": "local", "width": size.text, "heads": 4,
        "layers": 2, "pool_type": "eos", "eos_id": 2,
    }  # fmt: skip
    vision = {"layers": [1, 1, 1, 1], "width": size.vision, "head_width": 32, "image_size": 64}
    model = {"embed_dim": size.embedding, "custom_text": True, "vision_cfg": vision, "text_cfg": text}
    preprocess = {"size": 64, "mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "shortest"}
    config = json.dumps({"model_cfg": model, "preprocess_cfg": preprocess}, indent=2)
    (out / "open_clip_config.json").write_text(config + "\n")
    network: nn.Module = open_clip.create_model(f"local-dir:{out}", load_weights=False)
    return network


def tokenizer_of(directory: Path) -> Tokenize:
    tokenize: Tokenize = open_clip.get_tokenizer(f"local-dir:{directory}")
    return tokenize


def restore(model: nn.Module, directory: Path) -> None:
    """Loads the weights of an open_clip directory into a network."""
    model.load_state_dict({name: value.float() for name, value in load_file(directory / _WEIGHTS).items()})


def save(model: nn.Module, out: Path) -> None:
    """Writes the weights in half precision; open_clip's loader converts them to float32."""
    state: dict[str, Any] = model.state_dict()
    half = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    save_file({name: value.contiguous() for name, value in half.items()}, out / _WEIGHTS)


def _train_tokenizer() -> Any:
    """Trains a lower-case byte-pair vocabulary of the world's words and the neutral ones; always the same one."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(_SPECIAL), initial_alphabet=alphabet)
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        "<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, model_max_length=CONTEXT, **names
    )


def _texts() -> Sequence[str]:
    random = Random(0)  # noqa: S311 (no secret)
    plain = [make(scene, random).text for scene in sample(5000, 0) for make in (long_query, short_query)]
    return [worded(text, random.choice(WORDS), random) for text in plain] + neutral_texts() * 20
