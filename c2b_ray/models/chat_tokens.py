"""A chat model's tokens: conversations as prompts, replies as texts, and the choice of next tokens in transformers.

It knows chat templates, the tokens that end a reply, the length of the context, JSON schemas as constraints (xgrammar)
and caches of a common prefix, and nothing of what the texts are for.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xgrammar
from jinja2 import TemplateError
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, PreTrainedTokenizerBase, StoppingCriteria
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from c2b_ray.errors import ServiceError, WeightsError
from c2b_ray.roles import ChatReply, ChatRequest, Message


@dataclass(frozen=True)
class Prompt:
    """A request in tokens, and the most tokens of its reply: `max_tokens`, or the rest of the context."""

    tokens: list[int]
    request: ChatRequest
    limit: int


class ChatTokens:
    """The tokenizer of the model `name` (as error messages call it), whose context holds so many tokens.

    A base model without a chat template reads texts all the same, as for their perplexity; it cannot be asked.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, generation: GenerationConfig | None, context: int, name: str
    ) -> None:
        self.stops = stop_ids(tokenizer, generation)
        self.tokenizer, self.context, self._name = tokenizer, context, name

    def check(self) -> None:
        """Raises WeightsError where the model cannot chat: without a chat template or a token that ends a reply."""
        if not self.tokenizer.chat_template:
            raise WeightsError(
                f"{self._name}: its tokenizer has no chat template, so it cannot be asked in a chat; take an "
                "instruction-tuned variant, or put chat_template.jinja into its folder"
            )
        if not self.stops:
            raise WeightsError(
                f"{self._name}: neither its generation config nor its tokenizer names an end-of-sequence token, so no "
                "reply would end; set eos_token_id in its generation_config.json"
            )

    def prompt(self, request: ChatRequest) -> Prompt | ChatReply:
        """Returns the request in tokens, or a reply with the reason why it cannot be sent."""
        try:
            tokens = self.conversation(request.messages)
        except TemplateError as error:
            return ChatReply("", f"the model's chat template refused the messages: {error}")
        free_tokens = self.context - len(tokens)
        if request.max_tokens < 1:
            return ChatReply("", f"max_tokens is {request.max_tokens}; a reply needs at least one")
        if free_tokens < 1:
            return ChatReply("", f"the prompt has {len(tokens)} tokens; the model's context holds {self.context}")
        return Prompt(tokens, request, min(request.max_tokens, free_tokens))

    def conversation(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens of a conversation up to the start of the reply. Raises TemplateError where the template
        refuses it, and WeightsError as `check`.

        A model that can think first, such as Qwen3, is told not to, in the words of its template: its thoughts would
        be the reply. Templates that know no such setting ignore it.
        """
        self.check()
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Like `conversation`, but raises ServiceError where the template refuses it."""
        try:
            return tuple(self.conversation(messages))
        except TemplateError as error:
            raise ServiceError(f"the model's chat template refused the messages: {error}") from error

    def reply(self, prompt: Prompt, tokens: Sequence[int]) -> ChatReply:
        """Returns the text before the first token that ends a reply; its `error` tells if no such token came in
        time."""
        end = next((i for i, token in enumerate(tokens) if token in self.stops), None)
        text = self.text(tokens[: prompt.limit if end is None else end])
        if end is not None and end < prompt.limit:
            return ChatReply(text)
        reason = "max_tokens" if prompt.limit == prompt.request.max_tokens else "the end of the model's context"
        return ChatReply(text, f"the reply was cut after {prompt.limit} tokens, at {reason}")

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text that is no chat, with the begin token where the tokenizer puts one."""
        return list(self.tokenizer(text)["input_ids"])

    def text(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        return str(
            self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False)
        )


class Tokenised:
    """The methods of `roles.ReplyContinuer` and `roles.TokenCounter` that a tokenizer answers without its model."""

    def __init__(self, tokens: ChatTokens) -> None:
        self._tokens = tokens

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return tuple(self._tokens.stops)

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the tokens of a conversation up to the start of the reply. Raises ServiceError where the template
        refuses it."""
        return self._tokens.reply_start(messages)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        return [max(0, len(self._tokens.encode(text)) - 1) for text in texts]

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        return [self._tokens.text(row) for row in tokens]


def no_language_model(spec: str, reason: object) -> WeightsError:
    return WeightsError(
        f"{spec}: no causal language model with a tokenizer and safetensors weights was found there ({reason}). Give a "
        "folder that holds config.json, model.safetensors and tokenizer.json, or the name of such a model on the "
        "Hugging Face hub"
    )


def stop_ids(tokenizer: PreTrainedTokenizerBase, generation: GenerationConfig | None) -> list[int]:
    """Returns every token that ends a reply: those of the generation config (chat models name several) and the
    tokenizer's."""
    eos_ids = generation.eos_token_id if generation is not None else None
    ids = list(eos_ids) if isinstance(eos_ids, list) else [eos_ids]
    return list(dict.fromkeys(i for i in [*ids, tokenizer.eos_token_id] if i is not None))


# The next tokens of many sequences with a common prefix, which is computed once.


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
