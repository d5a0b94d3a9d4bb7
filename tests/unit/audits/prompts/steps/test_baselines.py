"""Prompts that no search has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from c2b_ray.audits.prompts.steps.judging import written
from c2b_ray.audits.prompts.steps.tasks import Target
from c2b_ray.roles import ChatReply, ChatRequest, LanguageModel

NIGHT = Target(("lighting",), ("night",))


class Replies:
    """Replies to every request alike."""

    def __init__(self, reply: ChatReply) -> None:
        self.reply = reply

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        return [self.reply for _ in requests]


def _written(reply: ChatReply) -> tuple[list[tuple[str, str | None]], str | None]:
    return written(cast(LanguageModel, Replies(reply)), NIGHT, ["bus"], 2, False, 0)


def test_a_model_without_a_usable_reply_tells_why() -> None:
    assert _written(ChatReply("", "the prompt has 53 tokens")) == ([], "the prompt has 53 tokens")
    assert _written(ChatReply(" ")) == ([], "its replies are empty")


def test_a_prompt_counts_once() -> None:
    assert _written(ChatReply('"a rusty  bus"')) == ([("a rusty bus", "bus")], None)
