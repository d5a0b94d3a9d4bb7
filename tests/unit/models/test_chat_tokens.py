"""A chat model's tokens: prompts, replies, and the next tokens of sequences with a common prefix."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    FalconH1Config,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from c2b_ray.models.chat_tokens import ChatTokens, PrefixCache
from c2b_ray.roles import Message

TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
AS_QWEN3 = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"


@pytest.mark.parametrize(
    ("template", "end"),
    [(TURNS, "assistant: "), (TURNS + AS_QWEN3, "assistant: <think>\n\n</think>\n\n")],
    ids=["plain", "thinking"],
)
def test_a_model_that_can_think_first_is_told_not_to(template: str, end: str) -> None:
    """Its thoughts were the reply: `c2b prompts` evaluated "<think> Okay, the user wants …" as prompts."""
    backend = Tokenizer(
        models.BPE(vocab={c: n for n, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="!")
    tokenizer.chat_template = template
    tokens = ChatTokens(tokenizer, None, 100, "the model")
    assert tokens.text(tokens.conversation([Message("user", "a bus")])) == f"user: a bus\n{end}"


SMALL: dict[str, Any] = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}
HEADS: dict[str, Any] = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
SCAN: dict[str, Any] = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SMALL, **HEADS),
        MistralConfig(**SMALL, **HEADS, sliding_window=4),
        MambaConfig(**SMALL, state_size=4),
        Lfm2Config(**SMALL, **HEADS, layer_types=["conv", "full_attention"]),
        FalconH1Config(**SMALL, **HEADS, **SCAN, mamba_chunk_size=16),
    ],
    ids=lambda config: str(config.model_type),
)
def test_the_next_tokens_of_beams_are_those_of_each_alone(config: PreTrainedConfig) -> None:
    """Recurrent and hybrid models, which keep more than keys and values, ended a search with a traceback."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    cache, start = PrefixCache(model), [3, 1, 4, 1, 5, 9, 2, 6]
    for beams in ([start], [[*start, 7], [*start, 8, 9]], [[*start, 7, 7, 1], [*start, 7], [*start, 8]]):
        found = cache.next_log_probs(beams)
        with torch.inference_mode():
            alone = [model(input_ids=torch.tensor([beam])).logits[0, -1].log_softmax(-1) for beam in beams]
        torch.testing.assert_close(found, torch.stack(alone), atol=1e-4, rtol=0)
