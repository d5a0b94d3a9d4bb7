"""Models behind Serve that write, the language model and the image generator: each is a role like those of
`handles`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from c2b_ray.roles import (
    ChatReply,
    ChatRequest,
    Floats,
    GeneratedImage,
    GenerationRequest,
    Message,
    TokenLogProb,
)
from c2b_ray.serving.channel import APPS, Channel
from c2b_ray.serving.in_app import InApp
from c2b_ray.serving.payload import spans

_TEXTS = 16
"""Texts per request for tokens or likelihoods. Replicas do not join these with other callers' requests."""


class ServedLanguageModel:
    """The language model `spec` in the app of that name. Raises ServiceError if the app serves another one."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int | None = None) -> None:
        self.spec = spec
        self.channel = channel or Channel(APPS["language_model"])
        self.chunk = chunk
        self._ends: tuple[int, ...] = ()

    @property
    def revision(self) -> str:
        return str(self.channel.call("describe", self.spec)["revision"])

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        return self._ask("chat", self.channel.rows(self.chunk, len(requests)), list(requests))

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        return self._ask("next_tokens", self.chunk or _TEXTS, list(texts), k)

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        return self._ask("log_likelihood", self.chunk or _TEXTS, list(texts))

    @property
    def end_tokens(self) -> tuple[int, ...]:
        if not self._ends:
            self._ends = tuple(self.channel.call("end_tokens", self.spec))
        return self._ends

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(self.channel.call("reply_start", self.spec, list(messages)))

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        return self._ask("continuations", self.chunk or _TEXTS, [tuple(row) for row in prefixes], k)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        return self._ask("token_counts", self.chunk or 4 * _TEXTS, list(texts))

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        return self._ask("texts_of", self.chunk or 4 * _TEXTS, [tuple(row) for row in tokens])

    def _ask(self, method: str, most: int, rows: list[Any], *rest: Any) -> list[Any]:
        calls = [(self.spec, rows[span], *rest) for span in spans([0] * len(rows), most)]
        return [answer for answers in self.channel.call_many(method, calls) for answer in answers]


class ServedGenerator(InApp):
    """The image generator `spec` in the app of that name. Raises ServiceError if the app serves another one."""

    app = "image_generator"

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        parts = self._parts(requests)
        calls = [(self.spec, list(requests[part])) for part in parts]
        return [image for images in self.channel.call_many("generate", calls) for image in images]

    @property
    def activation_names(self) -> tuple[str, ...]:
        return tuple(self.fact("activation_names"))

    @property
    def denoising_steps(self) -> int:
        return int(self.fact("denoising_steps"))

    def activations(self, requests: Sequence[GenerationRequest], name: str, steps: Sequence[int]) -> Floats:
        calls = [(self.spec, list(requests[part]), name, list(steps)) for part in self._parts(requests)]
        replies: list[Floats] = self.channel.call_many("activations", calls)
        return np.concatenate(replies) if replies else np.empty((0, len(steps), 0), np.float32)

    def _parts(self, requests: Sequence[GenerationRequest]) -> list[slice]:
        return spans([0] * len(requests), self.rows(len(requests)))
