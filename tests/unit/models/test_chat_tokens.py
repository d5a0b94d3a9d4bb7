"""Where a reply begins, for chat templates of different models."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from c2b_ray.models.chat_tokens import ChatTokens
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
