"""`LanguageModel` from a causal model of transformers in this process; xgrammar holds replies to their JSON schemas.

It knows tokens, padding, sampling and the model's context; it does not know the meaning of requests and replies.
Weights are read from safetensors alone, and no code of a model's repository is run.

A request's reply depends on its messages, settings and seed, not on its neighbours in a batch: noise comes from a
generator of the row's own, padding is masked out. (Sums are taken in another order in a batch of another shape, so a
reply may still turn where two tokens are equally likely to within rounding, about 1e-6.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
import xgrammar
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from c2b_ray.errors import SpecError, nearest
from c2b_ray.extras import hint_for
from c2b_ray.models import devices
from c2b_ray.models.catalog import Spec
from c2b_ray.models.chat_tokens import (
    ChatTokens,
    PrefixCache,
    Row,
    RowLimits,
    Sampler,
    Tokenised,
    no_language_model,
    writable_mask,
)
from c2b_ray.models.spec_options import options_of
from c2b_ray.models.tensor_names import selection_of
from c2b_ray.models.torch_runtime import DTYPES, device_of
from c2b_ray.models.transformers_weights import load_strictly
from c2b_ray.models.weights import language_model_revision
from c2b_ray.roles import ChatReply, ChatRequest, Description, TokenLogProb

MAX_ROWS = 64
MAX_LOGITS = 2**27  # entries of one batch's logits in next_tokens and log_likelihood: half a GiB of float32
MAX_WHITESPACE = 8  # between JSON tokens: enough to indent, too little to never end
_OPTIONS = options_of("language_model", "hf")
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def load(spec: Spec) -> TransformersLanguageModel:
    """The model of `hf:PATH_OR_NAME`. Options: dtype (float32, float16, bfloat16), device (cpu, cuda:1), revision,
    unused (`tensor_names`).

    By default on a GPU where there is one, in the dtype of its weights; in float32 on a CPU.
    SpecError: an unknown option. WeightsError: nothing there, no safetensors, a tensor missing or unused. A model
    without a chat template or an end token reads texts, and raises WeightsError where it is asked for a reply.
    """
    options = spec.options_among(_OPTIONS)
    device = device_of(spec)
    dtype = dtype_of(spec, device)
    requested = options.get("revision")
    load_options: dict[str, Any] = {"revision": requested or "main", "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(spec.name, **load_options)
        loaded = load_strictly(AutoModelForCausalLM, spec.name, selection_of(spec), dtype=dtype, **load_options)
    except (OSError, ValueError, ImportError) as error:
        raise no_language_model(spec.text, f"{error}{hint_for(str(error))}") from error
    revision = language_model_revision(spec.name, requested)
    return TransformersLanguageModel(loaded.model.to(device), tokenizer, revision or "", spec.text)


def describe(spec: Spec) -> Description | None:
    """Returns a description by the files of a directory, or of a repository that was downloaded; None without them."""
    revision = language_model_revision(spec.name, spec.options_among(_OPTIONS).get("revision"))
    return None if revision is None else Description(revision)


def dtype_of(spec: Spec, device: torch.device) -> torch.dtype | str:
    """Returns `dtype=` of a spec; without it the placement's precision; without that, the weights' own on a GPU and
    float32 elsewhere."""
    name = spec.options.get("dtype")
    if name is not None:
        if name not in _DTYPES:
            raise SpecError(f"{spec.text}: unknown dtype {name!r}; {nearest(name, _DTYPES)}")
        return _DTYPES[name]
    if (precision := devices.precision(None, spec.text)) is not None:
        return DTYPES[precision]
    return "auto" if device.type == "cuda" else torch.float32


class TransformersLanguageModel(Tokenised):
    """A causal model and its tokenizer as a `LanguageModel`. Safe to call from one thread at a time.

    `name` stands in error messages. The sampling settings of the model's generation config are ignored: requests
    say how they are sampled.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, revision: str, name: str = "the model"
    ) -> None:
        config = model.config.get_text_config()
        context: int = getattr(config, "max_position_embeddings", None) or 2**31
        super().__init__(ChatTokens(tokenizer, model.generation_config, context, name))
        model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self._model = cast(Any, model)  # its classes are typed in part only
        self._model.eval()
        self.revision = revision
        self._name, self._context = name, context
        self._vocabulary = int(self._model.get_output_embeddings().weight.shape[0])
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else next(iter(self._tokens.stops), 0)
        self._compiler: xgrammar.GrammarCompiler | None = None
        self._grammars: dict[str, xgrammar.CompiledGrammar] = {}
        self._writable: Tensor | None = None
        self._prefixes = PrefixCache(self._model)

    def __repr__(self) -> str:
        return f"TransformersLanguageModel({self._name!r})"

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Returns one reply per request; its `error` tells if the prompt exceeds the context or the reply was cut
        short."""
        replies: list[ChatReply | None] = [None] * len(requests)
        rows: list[Row] = []
        for index, request in enumerate(requests):
            row = self._row(index, request)
            if isinstance(row, ChatReply):
                replies[index] = row
            else:
                rows.append(row)
        rows.sort(key=lambda row: (row.prompt.limit, len(row.prompt.tokens)))
        for start in range(0, len(rows), MAX_ROWS):
            batch = rows[start : start + MAX_ROWS]
            for row, reply in zip(batch, self._decode(batch), strict=True):
                replies[row.index] = reply
        return [reply for reply in replies if reply is not None]

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens, likeliest first; none for a text of no tokens or longer than the
        context."""
        result: list[list[TokenLogProb]] = [[] for _ in texts]
        encoded = [self._tokens.encode(text) for text in texts]
        for batch in self._batches([i for i, ids in enumerate(encoded) if 0 < len(ids) <= self._context], encoded):
            logits = self._logits([encoded[i] for i in batch])
            ends = torch.tensor([len(encoded[i]) - 1 for i in batch], device=logits.device)
            last = logits[torch.arange(len(batch), device=logits.device), ends].float().log_softmax(-1)
            for index, tokens in zip(batch, self._likeliest(last, k), strict=True):
                result[index] = tokens
        return result

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each sequence; none for an empty one or one longer than the
        context."""
        result: list[list[TokenLogProb]] = [[] for _ in prefixes]
        usable = [i for i, tokens in enumerate(prefixes) if 0 < len(tokens) <= self._context]
        for start in range(0, len(usable), MAX_ROWS):
            batch = usable[start : start + MAX_ROWS]
            last = self._prefixes.next_log_probs([prefixes[i] for i in batch])
            for index, tokens in zip(batch, self._likeliest(last, k), strict=True):
                result[index] = tokens
        return result

    def _likeliest(self, log_probs: Tensor, k: int) -> list[list[TokenLogProb]]:
        values, ids = (x.tolist() for x in log_probs.topk(min(k, log_probs.shape[-1]), dim=-1))
        return [
            [
                TokenLogProb(token, self._tokens.text([token], skip_special=False), value)
                for token, value in zip(row_ids, row_values, strict=True)
            ]
            for row_ids, row_values in zip(ids, values, strict=True)
        ]

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """Returns the sum of log P of every token after the first (the begin token, where the tokenizer puts one); 0
        for fewer than two tokens, NaN for a text longer than the context."""
        encoded = [self._tokens.encode(text) for text in texts]
        sums = [0.0 if len(ids) <= self._context else float("nan") for ids in encoded]
        for batch in self._batches([i for i, ids in enumerate(encoded) if 1 < len(ids) <= self._context], encoded):
            rows = [encoded[i] for i in batch]
            log_probs = self._logits(rows)[:, :-1].float().log_softmax(-1)
            ids, mask = self._padded(rows, on_left=False)
            of_tokens = log_probs.gather(-1, ids[:, 1:, None]).squeeze(-1).double() * mask[:, 1:]
            for index, total in zip(batch, of_tokens.sum(-1).tolist(), strict=True):
                sums[index] = total
        return sums

    def _row(self, index: int, request: ChatRequest) -> Row | ChatReply:
        prompt = self._tokens.prompt(request)
        if isinstance(prompt, ChatReply):
            return prompt
        try:
            matcher = None if request.schema is None else xgrammar.GrammarMatcher(self._grammar(request.schema))
        except RuntimeError as error:
            return ChatReply("", f"the JSON schema cannot constrain decoding: {error}")
        return Row(index, prompt, matcher)

    def _grammar(self, schema: object) -> xgrammar.CompiledGrammar:
        text = json.dumps(schema)
        if text not in self._grammars:
            if self._compiler is None:
                info = xgrammar.TokenizerInfo.from_huggingface(
                    self._tokens.tokenizer, vocab_size=self._vocabulary, stop_token_ids=self._tokens.stops
                )
                special = set(self._tokens.tokenizer.all_special_ids) - set(self._tokens.stops)
                self._compiler, self._writable = xgrammar.GrammarCompiler(info), writable_mask(info, special)
            self._grammars[text] = self._compiler.compile_json_schema(text, max_whitespace_cnt=MAX_WHITESPACE)
        return self._grammars[text]

    @torch.inference_mode()
    def _decode(self, rows: Sequence[Row]) -> list[ChatReply]:
        ids, mask = self._padded([row.prompt.tokens for row in rows], on_left=True)
        sampler = Sampler(rows, self._tokens.stops, self._model.device, self._writable)
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=max(row.prompt.limit for row in rows),
            eos_token_id=self._tokens.stops,
            pad_token_id=self._pad,
        )
        output = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=config,
            logits_processor=LogitsProcessorList([sampler]),
            stopping_criteria=StoppingCriteriaList([RowLimits(rows, ids.shape[1])]),
        )
        return [self._reply(row, new) for row, new in zip(rows, output[:, ids.shape[1] :].tolist(), strict=True)]

    def _reply(self, row: Row, tokens: Sequence[int]) -> ChatReply:
        reply = self._tokens.reply(row.prompt, tokens)
        return replace(reply, error="no token of the model continues the JSON schema") if row.broken else reply

    def _batches(self, indices: list[int], encoded: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yields the indices of rows that go through the model together: of similar length, and few enough for their
        logits."""
        batch: list[int] = []
        for index in sorted(indices, key=lambda i: len(encoded[i])):
            full = (len(batch) + 1) * len(encoded[index]) * self._vocabulary > MAX_LOGITS
            if batch and (full or len(batch) == MAX_ROWS):
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    @torch.inference_mode()
    def _logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        ids, mask = self._padded(rows, on_left=False)
        logits: Tensor = self._model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return logits

    def _padded(self, rows: Sequence[Sequence[int]], on_left: bool) -> tuple[Tensor, Tensor]:
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self._pad)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for row, tokens in enumerate(rows):
            columns = slice(width - len(tokens), None) if on_left else slice(len(tokens))
            ids[row, columns] = torch.tensor(tokens)
            mask[row, columns] = 1
        return ids.to(self._model.device), mask.to(self._model.device)
