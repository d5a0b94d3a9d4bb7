"""A language model that writes prompts of the world's linked words, one word per token: for tests of `c2b prompts`.

It implements `roles.LanguageModel`, `roles.ReplyContinuer` and `roles.TokenCounter` with exact probabilities, and reads
the subject from the instruction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ChatReply, ChatRequest, Message, TokenLogProb
from c2b_ray.world.associations import LINKS, NEUTRAL, word_forms
from c2b_ray.world.scenes import CLASSES

SPEC = "grammar:world"
TARGET = "grammar_lm:load"
END = "<end>"
FORMS = word_forms(LINKS, NEUTRAL)


def of_form(form: str) -> list[str]:
    return [word for word, each in FORMS.items() if each == form]


ADJECTIVES, OBJECTS, ACTIVITIES = (of_form(form) for form in ("adjective", "object", "activity"))
VOCABULARY = [END, "a", "photo", "of", "near", "at", *CLASSES, *FORMS]
IDS = {word: at for at, word in enumerate(VOCABULARY)}


def even(words: Sequence[str]) -> dict[str, float]:
    return {word: 1 / len(words) for word in words}


def following(words: Sequence[str], subject: str) -> dict[str, float]:
    """Returns P(next word | words so far) of: a photo of a [adjective] SUBJECT [near a OBJECT] [at a ACTIVITY]."""
    start = ["a", "photo", "of", "a"]
    if len(words) < 4:
        return {start[len(words)]: 1.0}
    last = words[-1]
    if len(words) == 4:
        return {subject: 0.1, **{word: 0.9 * p for word, p in even(ADJECTIVES).items()}}
    if last in ADJECTIVES:
        return {subject: 1.0}
    if last in CLASSES:
        return {END: 0.2, "near": 0.4, "at": 0.4}
    if last in OBJECTS:
        return {END: 0.5, "at": 0.5}
    if last in ACTIVITIES:
        return {END: 1.0}
    if last == "a":
        return even(OBJECTS if words[-2] == "near" else ACTIVITIES)
    return {"a": 1.0}


class GrammarModel:
    revision = "grammar"
    end_tokens: tuple[int, ...] = (0,)

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        return [ChatReply(self._sampled(request)) for request in requests]

    def _sampled(self, request: ChatRequest) -> str:
        random, subject = np.random.default_rng(request.seed), self._subject(request.messages)
        words: list[str] = []
        while not words or words[-1] != END:
            row = following(words, subject)
            words.append(str(random.choice(list(row), p=list(row.values()))))
        return " ".join(words[:-1])

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return (-IDS[self._subject(messages)],)

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        rows = []
        for prefix in prefixes:
            row = following([VOCABULARY[i] for i in prefix[1:]], VOCABULARY[-prefix[0]])
            tokens = [TokenLogProb(IDS[word], word, math.log(p)) for word, p in row.items()]
            rows.append(sorted(tokens, key=lambda token: -token.log_prob)[:k])
        return rows

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(VOCABULARY[i] for i in row if i > 0) for row in tokens]

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        return [[] for _ in texts]

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        return [-2.0 * len(text.split()) for text in texts]

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def _subject(self, messages: Sequence[Message]) -> str:
        asked = messages[-1].content
        return next((name for name in CLASSES if name in asked), CLASSES[0])


def load(spec: Spec) -> GrammarModel:
    return GrammarModel()
