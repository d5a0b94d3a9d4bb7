"""The text tower of the world's open_clip model as a transformers model, with its tokenizer: it encodes prompts.

Knows both libraries' names of the same tensors; trains nothing. It returns the state of every token, not only of the
end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

LENGTH = 48
"""Tokens of a prompt: the world's longest captions take about 41."""

_NAMES = {
    "ln_1.": "layer_norm1.",
    "ln_2.": "layer_norm2.",
    "mlp.c_fc.": "mlp.fc1.",
    "mlp.c_proj.": "mlp.fc2.",
    "attn.out_proj.": "self_attn.out_proj.",
}


def tower(encoder: Path) -> Any:
    """Returns the frozen CLIPTextModel of an open_clip directory."""
    about = json.loads((encoder / "open_clip_config.json").read_text())["model_cfg"]["text_cfg"]
    # eos_token_id affects only the pooled state, which is not used here.
    config = CLIPTextConfig(
        vocab_size=about["vocab_size"],
        hidden_size=about["width"],
        intermediate_size=4 * about["width"],
        projection_dim=about["width"],
        num_hidden_layers=about["layers"],
        num_attention_heads=about["heads"],
        max_position_embeddings=LENGTH,
        hidden_act="gelu",
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model: Any = CLIPTextModel(config)
    tensors = load_file(encoder / "open_clip_model.safetensors")
    result = _renamed({name: value.float() for name, value in tensors.items() if name.startswith("text.")})
    left = model.load_state_dict(result, strict=False)
    if left.unexpected_keys or any("position_ids" not in name for name in left.missing_keys):
        raise RuntimeError(f"the text tower of {encoder} has other tensors than expected: {left}")
    return model.eval().requires_grad_(False)


def tokenizer(encoder: Path) -> Any:
    loaded: Any = PreTrainedTokenizerFast.from_pretrained(encoder)
    loaded.model_max_length = LENGTH
    return loaded


@torch.no_grad()
def encode(model: Any, words: Any, prompts: list[str]) -> Tensor:
    """Returns the states of every token, padding included, (prompts, LENGTH, width), as StableDiffusionPipeline
    computes them."""
    tokens = words(prompts, padding="max_length", max_length=LENGTH, truncation=True, return_tensors="pt")
    states: Tensor = model(tokens.input_ids)[0]
    return states


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    result = {
        "embeddings.token_embedding.weight": tensors["text.token_embedding.weight"],
        "embeddings.position_embedding.weight": tensors["text.positional_embedding"][:LENGTH],
        "final_layer_norm.weight": tensors["text.ln_final.weight"],
        "final_layer_norm.bias": tensors["text.ln_final.bias"],
    }
    prefix = "text.transformer.resblocks."
    for name, value in tensors.items():
        if not name.startswith(prefix):
            continue
        layer, _, rest = name.removeprefix(prefix).partition(".")
        if rest.startswith("attn.in_proj_"):
            kind = rest.removeprefix("attn.in_proj_")
            for part, piece in zip("qkv", value.chunk(3), strict=True):
                result[f"encoder.layers.{layer}.self_attn.{part}_proj.{kind}"] = piece.clone()
        else:
            old = next(old for old in _NAMES if rest.startswith(old))
            result[f"encoder.layers.{layer}.{_NAMES[old]}{rest.removeprefix(old)}"] = value
    return result
