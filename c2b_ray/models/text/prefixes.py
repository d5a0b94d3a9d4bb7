"""The next tokens of many sequences with a common prefix, which is computed once.

It knows a causal model's key-value cache; it does not know tokenizers, nor what the tokens say.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

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
        shared = self._shared(rows)
        rests = [list(row[len(shared) :]) for row in rows]
        width = max(map(len, rests))
        # Padded on the right, where a causal model does not look from the tokens that count.
        ids = torch.tensor([rest + [0] * (width - len(rest)) for rest in rests], device=self._model.device)
        cache = None
        if shared and self._cache is not None:
            cache = copy.deepcopy(self._cache)
            cache.batch_repeat_interleave(len(rows))
        logits = self._model(input_ids=ids, past_key_values=cache, use_cache=cache is not None).logits
        ends = torch.tensor([len(rest) - 1 for rest in rests], device=logits.device)
        last: Tensor = logits[torch.arange(len(rows), device=logits.device), ends].float().log_softmax(-1)
        return last

    def _shared(self, rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Fills the cache with the rows' common prefix and returns it; it leaves at least one token of each row."""
        shortest = min(map(len, rows))
        kept = self._tokens
        if kept and len(kept) < shortest and all(tuple(row[: len(kept)]) == kept for row in rows):
            return kept
        columns = zip(*rows, strict=False)
        same = next((at for at, column in enumerate(columns) if len(set(column)) > 1), shortest)
        shared = tuple(rows[0][: min(same, shortest - 1)])
        if shared and self._repeatable:
            ids = torch.tensor([shared], device=self._model.device)
            self._cache = getattr(self._model(input_ids=ids, use_cache=True), "past_key_values", None)
            layers = [] if self._cache is None else self._cache.layers
            self._repeatable = bool(layers) and all(type(layer) in REPEATABLE for layer in layers)
        self._tokens = shared if self._repeatable else ()
        return self._tokens
