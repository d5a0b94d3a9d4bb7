"""The role of a model that guesses groups from texts (LIC): one call trains and applies it, fold by fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from c2b_ray.roles.values import ChatReply, ChatRequest, Message, TokenLogProb


@runtime_checkable
class GroupGuesser(Protocol):
    """Guesses the group of texts, after training on texts with known groups."""

    @property
    def name(self) -> str: ...

    def probabilities(
        self, texts: Sequence[str], groups: NDArray[np.int64], others: Sequence[str], number: int, seed: int
    ) -> NDArray[np.float64]:
        """Trains on `texts` of `groups` (0 .. number - 1); returns the probability of each group for each of the
        `others`, float64 (others, number), rows summing to 1."""
        ...


# The roles of language models: Protocols, like those of `protocols`.


@runtime_checkable
class LanguageModel(Protocol):
    @property
    def revision(self) -> str:
        """Changes whenever weights or tokenizer do; that of a service, whose model can change unnoticed, with its
        address."""
        ...

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Returns one reply per request."""
        ...

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each text, likeliest first, with natural-log probabilities."""
        ...

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """Returns log P(text), natural log, summed over the text's tokens after the first."""
        ...


@runtime_checkable
class ReplyContinuer(Protocol):
    """A language model that can write a reply token by token; the caller chooses among its next tokens."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Returns the tokens that end a reply, according to the tokenizer and the generation config."""
        ...

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the tokens of a conversation up to the start of its next reply."""
        ...

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each sequence of tokens, likeliest first; all of them for a large k.

        A common beginning of the sequences is computed once. A sequence that fills the model's context has none.
        """
        ...

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of tokens, without the special ones."""
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """A language model that counts the tokens that `log_likelihood` sums over."""

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Returns the number of each text's tokens after the first."""
        ...
