"""A `LanguageModel` that says what it was told to say: for tests, demonstrations and dry runs.

It knows its script and keeps what it was asked; it does not read the questions, unless its script is a function of
them. It ships with the package, obeys the role like any other model, and fails loudly when its script runs out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ChatReply, ChatRequest, TokenLogProb

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def load_language_model(spec: Spec) -> ScriptedLanguageModel:
    """The model of `scripted:PATH.json`, a list of reply texts, given out in order. SpecError where that is not one."""
    spec.options_among(())
    try:
        replies = json.loads(Path(spec.name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"{spec.text}: no readable JSON file at {spec.name!r} ({error})") from error
    if not isinstance(replies, list) or not all(isinstance(reply, str) for reply in replies):
        raise SpecError(f"{spec.text}: {spec.name!r} must hold a JSON list of strings, the replies in their order")
    return ScriptedLanguageModel(replies)


class ScriptedLanguageModel:
    """Each script is a list, used up in the order of the asking, or a function of what is asked, which never runs out.

    `replies` answers `chat`, `next_tokens` and `log_likelihoods` the methods of those names. Every request is kept in
    `asked`, in order. ServiceError where a script runs out: nothing is given out from a batch that it cannot fill.
    """

    def __init__(
        self,
        replies: Sequence[str | ChatReply] | Callable[[ChatRequest], str | ChatReply] = (),
        next_tokens: Sequence[list[TokenLogProb]] | Callable[[str], list[TokenLogProb]] = (),
        log_likelihoods: Sequence[float] | Callable[[str], float] = (),
    ) -> None:
        self._replies = _Script("replies", replies)
        self._next_tokens = _Script("next_tokens", next_tokens)
        self._log_likelihoods = _Script("log_likelihoods", log_likelihoods)
        self.asked: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """The script's next replies, one per request."""
        self.asked.extend(requests)
        replies = self._replies.answers(requests)
        return [reply if isinstance(reply, ChatReply) else ChatReply(reply) for reply in replies]

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """The script's next lists, each sorted by log-probability and cut to k."""
        return [sorted(row, key=lambda t: -t.log_prob)[:k] for row in self._next_tokens.answers(texts)]

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """The script's next numbers."""
        return self._log_likelihoods.answers(texts)


class _Script(Generic[Asked, Answer]):
    """What one method says. A lock, because Serve and thread pools ask from several threads."""

    def __init__(self, name: str, script: Sequence[Answer] | Callable[[Asked], Answer]) -> None:
        self._name, self._lock, self._used = name, Lock(), 0
        self._function = script if callable(script) else None
        self._list = [] if callable(script) else list(script)

    def answers(self, asked: Sequence[Asked]) -> list[Answer]:
        if self._function is not None:
            return [self._function(item) for item in asked]
        with self._lock:
            left = len(self._list) - self._used
            if len(asked) > left:
                raise ServiceError(
                    f"the script of {self._name} has run out: {len(asked)} asked for, {left} of {len(self._list)} "
                    "left; give the scripted model more, or a function"
                )
            self._used += len(asked)
            return self._list[self._used - len(asked) : self._used]
