"""The language model's deployment: chats of all requests, gathered into batches.

With more than one thread, the model is one that takes many calls at once (vLLM, a URL) and batches them itself, or does
not benefit from batches: then every call goes straight to it, and none waits for a batch to fill or to end.

It knows the role `LanguageModel` and Serve; which model it serves is an argument, and `deployments/` says where it
runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from ray import serve

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.roles import ChatReply, ChatRequest, Message, ReplyContinuer, TokenCounter, TokenLogProb
from c2b_ray.serving.batching import (
    BatchSettings,
    ModelReplica,
    ModelThreads,
    RequestBatcher,
    can_be_probed,
    refuse_other_model,
    take_gpus,
)
from c2b_ray.serving.channel import carried_in_text
from c2b_ray.serving.meters import Limits, limits_here

DEPLOYMENT = "LanguageModel"


@serve.deployment(name=DEPLOYMENT)
class LanguageModelServer(ModelReplica):
    """Serves one language model; every call names the model that the caller expects."""

    def __init__(self, model: str, threads: int = 1) -> None:
        take_gpus()
        self._spec, self._gathers = model, threads == 1
        with carried_in_text():
            self._model = catalog.language_model(model)
        self._model_threads = ModelThreads(DEPLOYMENT, threads)
        self._settings = BatchSettings()
        self._chats: RequestBatcher[Sequence[ChatRequest], list[ChatReply]] = RequestBatcher(
            self._together, lambda: self._settings
        )

    async def limits(self) -> Limits:
        """Returns the limits of a caller. A model that batches for itself gets one chat per request."""
        return limits_here(self._settings.max_batch_size if self._gathers else 1, 1)

    async def describe(self, model: str | None = None) -> dict[str, Any]:
        """Returns facts about the served model. With a spec, raises an error if another model is served."""
        if model is not None:
            refuse_other_model(DEPLOYMENT, self._spec, model)
        return {"model": self._spec, "revision": self._model.revision}

    async def chat(self, model: str, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Returns one reply per request, as the role defines it."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        if self._gathers:
            return await self._chats.ask(requests, len(requests))
        return await self._model_threads.run_batch(self._model.chat, len(requests), requests)

    async def _together(self, requests: list[Sequence[ChatRequest]]) -> list[list[ChatReply]]:
        chats = [chat for request in requests for chat in request]
        replies = await self._model_threads.run_batch(self._model.chat, len(chats), chats)
        if len(replies) != len(chats):
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} gave {len(replies)} replies to {len(chats)} chats")
        return [replies[a:b] for a, b in pairwise(accumulate(map(len, requests), initial=0))]

    async def next_tokens(self, model: str, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each text."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._model_threads.run_batch(self._model.next_tokens, len(texts), texts, k)

    async def log_likelihood(self, model: str, texts: Sequence[str]) -> list[float]:
        """Returns log P of each text."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._model_threads.run_batch(self._model.log_likelihood, len(texts), texts)

    async def end_tokens(self, model: str) -> tuple[int, ...]:
        """Returns the tokens that end a reply."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return self._continuer().end_tokens

    async def reply_start(self, model: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the tokens of a conversation up to where its reply begins."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._model_threads.run_batch(self._continuer().reply_start, 1, messages)

    async def continuations(self, model: str, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each sequence of tokens."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._model_threads.run_batch(self._continuer().continuations, len(prefixes), prefixes, k)

    async def texts_of(self, model: str, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of tokens."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._model_threads.run_batch(self._continuer().texts_of, len(tokens), tokens)

    async def token_counts(self, model: str, texts: Sequence[str]) -> list[int]:
        """Returns how many tokens `log_likelihood` sums over for each text."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        if not isinstance(self._model, TokenCounter):
            raise SpecError(f"{self._spec}: it does not count tokens; use hf: or vllm:")
        return await self._model_threads.run_batch(self._model.token_counts, len(texts), texts)

    def _continuer(self) -> ReplyContinuer:
        if not isinstance(self._model, ReplyContinuer):
            raise SpecError(f"{self._spec}: its replies cannot be written token by token; use hf: or vllm:")
        return self._model

    async def statistics(self) -> dict[str, Any]:
        """Returns batches and running calls, and the model's counts if it has any."""
        return {**await super().statistics(), **getattr(self._model, "statistics", dict)()}

    async def check_health(self) -> None:
        """Raises where the model gives no next token with a finite probability; Serve then replaces the replica."""
        await self._model_threads.check(self._test)

    def _test(self) -> None:
        if not can_be_probed(self._spec):
            return
        [tokens] = self._model.next_tokens(["A photo of"], 1)
        if not tokens or not math.isfinite(tokens[0].log_prob):
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} gives {tokens} as a next token; its weights are damaged")
