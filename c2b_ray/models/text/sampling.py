"""The next tokens of many sequences with a common prefix, which is computed once.

It knows a causal model's key-value cache; it does not know tokenizers, nor what the tokens say.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xgrammar
from torch import Tensor
from transformers import DynamicCache, LogitsProcessor, StoppingCriteria
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from c2b_ray.models.text.chat_tokens import Prompt

REPEATABLE = (DynamicLayer, DynamicSlidingWindowLayer)
"""Layers of keys and values alone. The state of a recurrent layer (Mamba, Qwen3-Next, LFM2) cannot be repeated for
several rows, so such a model reads every sequence from its beginning."""


class PrefixCache:
    """Keeps the keys and values of the last shared beginning, for the next call is likely to begin with it too."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._tokens: tuple[int, ...] = ()
        self._cache: DynamicCache | None = None
        self._repeatable = True  # until a first cache says otherwise

    @torch.inference_mode()
    def next_log_probs(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Returns natural-log probabilities of the next token of each row, none of them empty: (rows, vocabulary)."""
        prefix = self._shared(rows)
        suffixes = [list(row[len(prefix) :]) for row in rows]
        width = max(map(len, suffixes))
        # Padded on the right, where a causal model does not look from the tokens that count.
        ids = torch.tensor([suffix + [0] * (width - len(suffix)) for suffix in suffixes], device=self._model.device)
        cache = None
        if prefix and self._cache is not None:
            cache = copy.deepcopy(self._cache)
            cache.batch_repeat_interleave(len(rows))
        logits = self._model(input_ids=ids, past_key_values=cache, use_cache=cache is not None).logits
        ends = torch.tensor([len(suffix) - 1 for suffix in suffixes], device=logits.device)
        last: Tensor = logits[torch.arange(len(rows), device=logits.device), ends].float().log_softmax(-1)
        return last

    def _shared(self, rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Fills the cache with the rows' common prefix and returns it; it leaves at least one token of each row."""
        shortest = min(map(len, rows))
        cached = self._tokens
        if cached and len(cached) < shortest and all(tuple(row[: len(cached)]) == cached for row in rows):
            return cached
        columns = zip(*rows, strict=False)
        common = next((i for i, column in enumerate(columns) if len(set(column)) > 1), shortest)
        prefix = tuple(rows[0][: min(common, shortest - 1)])
        if prefix and self._repeatable:
            ids = torch.tensor([prefix], device=self._model.device)
            self._cache = getattr(self._model(input_ids=ids, use_cache=True), "past_key_values", None)
            layers = [] if self._cache is None else self._cache.layers
            self._repeatable = bool(layers) and all(type(layer) in REPEATABLE for layer in layers)
        self._tokens = prefix if self._repeatable else ()
        return self._tokens


# How the tokens of a batch are chosen in transformers' `generate`: each row by its schema, temperature, seed,
# limit.


@dataclass
class Row:
    """One request on its way through `generate`. `matcher` follows its JSON schema; `broken` if it cannot go on."""

    index: int
    prompt: Prompt
    matcher: xgrammar.GrammarMatcher | None
    broken: bool = False


class Sampler(LogitsProcessor):
    """Makes greedy decoding sample: masks what a row's schema forbids, then adds Gumbel noise from its own generator.

    argmax(logits / temperature + Gumbel noise) is a draw from the softmax. Rows of temperature 0 get no noise.
    """

    def __init__(
        self, rows: Sequence[Row], stops: Sequence[int], device: torch.device, writable: Tensor | None = None
    ) -> None:
        self._rows, self._stops, self._steps, self._writable = rows, list(stops), 0, writable
        self._ended = [False] * len(rows)
        self._noisy = [i for i, row in enumerate(rows) if row.prompt.request.temperature > 0]
        self._generators = {
            i: torch.Generator(device).manual_seed(rows[i].prompt.request.seed & (2**63 - 1)) for i in self._noisy
        }
        self._bitmask: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._steps:
            self._accept(input_ids[:, -1].tolist())
        self._steps += 1
        self._constrain(scores)
        noisy = [i for i in self._noisy if not self._ended[i]]
        if noisy:
            scores[noisy] = self._perturbed(scores[noisy], noisy)
        return scores

    def _accept(self, tokens: Sequence[int]) -> None:
        for i, token in enumerate(tokens):
            matcher = self._rows[i].matcher
            if not self._ended[i] and matcher is not None and not matcher.accept_token(token):
                self._rows[i].broken = self._ended[i] = True
            self._ended[i] = self._ended[i] or token in self._stops or self._steps >= self._rows[i].prompt.limit

    def _constrain(self, scores: Tensor) -> None:
        constrained = []
        for i, row in enumerate(self._rows):
            if row.matcher is not None and not self._ended[i]:
                if self._bitmask is None:
                    self._bitmask = xgrammar.allocate_token_bitmask(len(self._rows), scores.shape[-1])
                row.matcher.fill_next_token_bitmask(self._bitmask, i)
                if self._writable is not None:
                    self._bitmask[i] &= self._writable
                constrained.append(i)
            elif row.broken:
                scores[i, self._stops[0]] = float("inf")  # nothing useful can follow: end the row
        if constrained and self._bitmask is not None:
            mask = self._bitmask.to(scores.device)
            xgrammar.apply_token_bitmask_inplace(scores, mask, vocab_size=scores.shape[-1], indices=constrained)

    def _perturbed(self, scores: Tensor, indices: Sequence[int]) -> Tensor:
        requests = [self._rows[i].prompt.request for i in indices]
        scores = scores / scores.new_tensor([r.temperature for r in requests])[:, None]
        if any(r.top_p < 1 for r in requests):
            ordered, order = scores.sort(dim=-1, descending=True)
            mass_before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            is_excluded = mass_before >= scores.new_tensor([r.top_p for r in requests])[:, None]
            is_excluded[:, 0] = False
            is_excluded &= scores.new_tensor([r.top_p < 1 for r in requests], dtype=torch.bool)[:, None]
            scores = scores.masked_fill(is_excluded.gather(-1, order.argsort(-1)), float("-inf"))
        noise = torch.stack([torch.empty_like(scores[0]).exponential_(generator=self._generators[i]) for i in indices])
        return scores - noise.log()


def unwritable(tokens: xgrammar.TokenizerInfo, special: Collection[int]) -> list[int]:
    """Returns the tokens that must not occur in JSON.

    Those of `special`: the grammar would take a role marker for text. Those with control characters:
    JSON forbids them in strings, xgrammar's grammar of a string of bounded length (0.2.8) allows them. Line ends stay:
    no string of its grammars takes those, and models indent with them.
    """
    forbidden = {byte for byte in range(32) if byte not in b"\r\n"}
    vocabulary: Sequence[bytes] = tokens.decoded_vocab
    return [i for i, token in enumerate(vocabulary) if i in special or not forbidden.isdisjoint(token)]


def writable_mask(tokens: xgrammar.TokenizerInfo, special: Collection[int]) -> Tensor:
    """Returns all other tokens as a bitmask, int32 (vocabulary / 32, rounded up)."""
    size = len(tokens.decoded_vocab)
    is_writable = torch.ones(size + -size % 32, dtype=torch.bool)
    is_writable[size:] = False
    is_writable[unwritable(tokens, special)] = False
    words = (is_writable.view(-1, 32).long() << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


class RowLimits(StoppingCriteria):
    """Ends each row at its own `max_tokens`, so that a short request does not wait for a long one's text."""

    def __init__(self, rows: Sequence[Row], width: int) -> None:
        self._limits, self._width = torch.tensor([row.prompt.limit for row in rows]), width

    def __call__(self, input_ids: Tensor, scores: object, **_: Any) -> Tensor:
        return (input_ids.shape[1] - self._width >= self._limits).to(input_ids.device)
