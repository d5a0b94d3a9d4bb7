"""A model in a Serve app: the base of all roles behind Serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ServiceError
from c2b_ray.roles import ChatReply, ChatRequest, Floats, GeneratedImage, GenerationRequest, Message, TokenLogProb
from c2b_ray.serving.answers import owner
from c2b_ray.serving.channel import APPS, Channel
from c2b_ray.serving.pictures import spans


class InApp:
    """The model `spec` in a Serve app, called on behalf of `owner` (see `answers`).

    The app's description of the model is fetched once and travels with the pickle.
    """

    app: ClassVar[str]
    """A key of `APPS`."""
    multiplexed: ClassVar[bool] = False
    """Whether the app's replicas hold several models, and Serve routes calls to one that holds this model."""

    def __init__(
        self,
        spec: str,
        channel: Channel | None = None,
        *,
        chunk: int | None = None,
        computing: Computing = UNSAID,
    ) -> None:
        """`chunk`: rows per request; None: the app's limit. `computing`: how the app has to compute; what it leaves
        open is the app's choice."""
        self.spec, self.computing = spec, computing
        self.channel = channel or Channel(APPS[self.app])
        self.chunk = chunk
        self.owner = owner()
        self._facts: dict[str, Any] = {}

    @property
    def revision(self) -> str:
        return str(self.fact("revision"))

    @property
    def calls_at_once(self) -> int:
        return self.channel.limits().requests

    def fact(self, name: str) -> Any:
        """Returns a field of the app's `describe`. Raises ServiceError if the app serves another model, or has it
        compute in another way."""
        if not self._facts:
            arguments, model_id = ((), self.spec) if self.multiplexed else ((self.spec,), "")
            facts = dict(self.channel.call("describe", *arguments, model_id=model_id))
            self._check_computing(facts.get("computing", UNSAID))
            self._facts = facts
        return self._facts[name]

    def _check_computing(self, app_computing: Computing) -> None:
        if (name := self.computing.contradicts(app_computing)) is not None:
            placed, served = getattr(self.computing, name), getattr(app_computing, name)
            statement = "does not say" if served is None else f"says {served}"
            raise ServiceError(
                f"the placement says {name}: {placed}, and the app {self.channel.app!r} {statement}: set {name} in the "
                "app's `args` and deploy it again, or leave it out of the placement",
                app=self.channel.app,
            )

    def rows(self, count: int) -> int:
        """Returns the rows of one request, where `count` rows are sent in all."""
        return self.channel.rows(self.chunk, count)


# Models behind Serve that write, the language model and the image generator: each is a role like those of
# `handles`.


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

    def _ask(self, method: str, max_rows: int, rows: list[Any], *arguments: Any) -> list[Any]:
        calls = [(self.spec, rows[span], *arguments) for span in spans([0] * len(rows), max_rows)]
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
