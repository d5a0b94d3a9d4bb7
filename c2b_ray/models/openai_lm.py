"""`LanguageModel` at a URL that speaks the OpenAI protocol: vLLM, llama.cpp, Ollama, a hosted service.

It knows HTTP, retries and how such servers differ; it does not know what is asked. `chat` uses /chat/completions;
`next_tokens` and `log_likelihood` use /completions, whose log-probabilities not every server gives.

The key is read from the environment variable OPENAI_API_KEY and goes into one header: no message, repr or log holds it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ChatReply, ChatRequest, Message, TokenLogProb

KEY_VARIABLE = "OPENAI_API_KEY"
UNKNOWN_ID = -1  # the protocol gives tokens as text, without their ids
_ROW_ERRORS = (400, 413, 422)  # about this request; the next one may be fine
Row = TypeVar("Row")
Answer = TypeVar("Answer")


def load(spec: Spec) -> OpenAILanguageModel:
    """The model of `openai:http://host/v1#model`. SpecError where the URL or the model is missing. Asks nothing yet."""
    url, _, model = spec.name.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise SpecError(f"{spec.text}: expected openai:http://host/v1#model, a URL and the model's name after a #")
    if "@" in url.split("/")[2]:
        raise SpecError(f"put no password into the URL of a model; the key belongs into {KEY_VARIABLE}")
    return OpenAILanguageModel(url, model)


class _Retryable(Exception):
    """A failure that may pass: too many requests, a server error, a timeout, an answer that is not JSON."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class _Refused(Exception):
    """The server understood and says no to this request; the message is its own."""


class OpenAILanguageModel:
    """A served model. Safe to use from several threads.

    `concurrency`: requests in flight. `timeout`: seconds per attempt. `attempts`: tries per request, with waits that
    double from `first_wait` seconds up to 30, or as long as the server's Retry-After asks for.
    ServiceError from every method: the service is dead, refuses the key or does not know the model.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        concurrency: int = 16,
        timeout: float = 120.0,
        attempts: int = 5,
        first_wait: float = 0.5,
    ) -> None:
        self._url, self._model, self._concurrency = url.rstrip("/"), model, concurrency
        self._attempts, self._first_wait = attempts, first_wait
        self._key = os.environ.get(KEY_VARIABLE, "")
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=concurrency)
        self._client = httpx.Client(headers=headers, timeout=timeout, limits=limits)
        # What this server turned out not to know; found out once, then left away.
        self._constrains, self._length_name = True, "max_tokens"

    def __repr__(self) -> str:
        return f"OpenAILanguageModel({self._url!r}, {self._model!r})"

    def close(self) -> None:
        self._client.close()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply per request; its `error` says where one was cut short, filtered, refused or empty."""
        return self._each(self._chat, requests)

    def chat_about(self, images: Sequence[str], requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """As `chat`, each request about the image at a (data) URI, which goes before its first message's text."""
        return self._each(lambda row: self._chat(row[1], row[0]), list(zip(images, requests, strict=True)))

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """The k likeliest next tokens, likeliest first, with ids of −1; none for a text that the server refuses."""
        return self._each(lambda text: self._next_tokens(text, k), texts)

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """Sum of log P of every token after the first; NaN for a text that the server refuses."""
        return self._each(self._log_likelihood, texts)

    def _each(self, ask: Callable[[Row], Answer], rows: Sequence[Row]) -> list[Answer]:
        if not rows:
            return []
        with ThreadPoolExecutor(min(self._concurrency, len(rows))) as pool:
            futures = [pool.submit(ask, row) for row in rows]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(cancel_futures=True)  # the service is dead: do not wait for the rest of the rows to fail
                raise

    def _chat(self, request: ChatRequest, image: str | None = None) -> ChatReply:
        try:
            answer = self._post("/chat/completions", lambda: self._chat_body(request, image), self._adapt)
        except _Refused as refusal:
            return ChatReply("", f"the service refused the request: {refusal}")
        return _chat_reply(answer, request.max_tokens)

    def _chat_body(self, request: ChatRequest, image: str | None) -> dict[str, Any]:
        messages = list(request.messages)
        body: dict[str, Any] = {
            "model": self._model,
            "temperature": request.temperature,
            "top_p": request.top_p,
            self._length_name: request.max_tokens,
            "seed": request.seed & (2**63 - 1),
        }
        if request.schema is not None and self._constrains:
            schema = {"name": "reply", "schema": dict(request.schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif request.schema is not None:
            ask = f"Answer with one JSON object and nothing else. It must satisfy: {json.dumps(request.schema)}"
            messages.append(Message("user", ask))
        said: list[dict[str, Any]] = [{"role": message.role, "content": message.content} for message in messages]
        if image is not None:
            text = {"type": "text", "text": said[0]["content"]}
            said[0]["content"] = [{"type": "image_url", "image_url": {"url": image}}, text]
        return {**body, "messages": said}

    def _adapt(self, refusal: str) -> bool:
        """Whether the server's complaint is about a field that it can do without: then it is asked again without it."""
        if self._length_name == "max_tokens" and "max_completion_tokens" in refusal:
            self._length_name = "max_completion_tokens"
            return True
        if "response_format" in refusal or "json_schema" in refusal:
            # Rows in flight beside this one may have switched it off already: ask again all the same.
            self._constrains = False
            return True
        return False

    def _next_tokens(self, text: str, k: int) -> list[TokenLogProb]:
        body = {"model": self._model, "prompt": text, "max_tokens": 1, "temperature": 0, "logprobs": k}
        try:
            answer = self._post("/completions", lambda: body)
        except _Refused as refusal:
            return self._row_value(refusal, [])
        top = _find(answer, "choices", 0, "logprobs", "top_logprobs", 0)
        if not isinstance(top, dict):
            raise ServiceError(f"{self._url} gives no log-probabilities from /completions; {_NEEDS_LOGPROBS}")
        found = [TokenLogProb(UNKNOWN_ID, token, float(value)) for token, value in top.items()]
        return sorted(found, key=lambda t: -t.log_prob)[:k]  # some servers add the sampled token to the k

    def _log_likelihood(self, text: str) -> float:
        body = {"model": self._model, "prompt": text, "max_tokens": 0, "temperature": 0, "logprobs": 1, "echo": True}
        try:
            answer = self._post("/completions", lambda: body)
        except _Refused as refusal:
            return self._row_value(refusal, float("nan"))
        values = _find(answer, "choices", 0, "logprobs", "token_logprobs")
        if not isinstance(values, list):
            raise ServiceError(f"{self._url} does not echo the log-probabilities of a text; {_NEEDS_LOGPROBS}")
        return float(sum(value for value in values[1:] if value is not None))

    def _row_value(self, refusal: _Refused, value: Answer) -> Answer:
        """A text too long for the context is a bad row; any other refusal would meet every row."""
        if any(word in str(refusal).lower() for word in ("context", "too long", "maximum", "length")):
            return value
        raise ServiceError(f"{self._url}/completions refuses: {refusal}; {_NEEDS_LOGPROBS}") from None

    def _post(self, path: str, body: Callable[[], dict[str, Any]], adapt: Callable[[str], bool] | None = None) -> Any:
        """The answer's JSON. `body` is made anew for each try, since `adapt` changes what goes into it."""
        for _ in range(3):
            try:
                return self._retrying()(self._once, path, body())
            except _Refused as refusal:
                if adapt is None or not adapt(str(refusal)):
                    raise
            except _Retryable as failure:
                raise ServiceError(
                    f"{self._url}{path} failed {self._attempts} times: {failure}. See that the service runs and "
                    f"answers at that URL (curl {self._url}/models), then run again: what is done is kept"
                ) from None
        raise _Refused("the service goes on refusing the request's fields")

    def _retrying(self) -> Retrying:
        backoff = wait_exponential(self._first_wait, max=30) + wait_random(0, self._first_wait)

        def wait(state: RetryCallState) -> float:
            failure = state.outcome.exception() if state.outcome else None
            asked = failure.retry_after if isinstance(failure, _Retryable) else 0.0
            return max(backoff(state), min(asked, 60.0))

        stop = stop_after_attempt(self._attempts)
        return Retrying(retry=retry_if_exception_type(_Retryable), stop=stop, wait=wait, reraise=True)

    def _once(self, path: str, body: dict[str, Any]) -> Any:
        try:
            response = self._client.post(self._url + path, json=body)
        except httpx.TransportError as error:
            raise _Retryable(f"{type(error).__name__}: {self._clean(str(error))}") from None
        if response.status_code == 429 or response.status_code >= 500:
            raise _Retryable(f"HTTP {response.status_code} {self._said(response)}", _retry_after(response))
        if response.status_code in _ROW_ERRORS:
            raise _Refused(self._said(response))
        if not response.is_success:
            hint = f"set {KEY_VARIABLE}" if response.status_code in (401, 403) else "check the URL and the model's name"
            said = self._said(response)
            raise ServiceError(f"{self._url}{path}: HTTP {response.status_code} for {self._model!r} ({said}); {hint}")
        try:
            return response.json()
        except ValueError:
            raise _Retryable(f"its answer is not JSON: {self._clean(response.text)[:80]!r}") from None

    def _said(self, response: httpx.Response) -> str:
        try:
            message = _find(response.json(), "error", "message") or response.text
        except ValueError:
            message = response.text
        return self._clean(str(message))[:300]

    def _clean(self, text: str) -> str:
        # Services quote the key that they were given, and so would we.
        return text.replace(self._key, "…") if self._key else text


_NEEDS_LOGPROBS = (
    "this audit needs next-token log-probabilities: serve the model with vLLM, or load it in process with hf:NAME"
)


def _chat_reply(answer: Any, max_tokens: int) -> ChatReply:
    """What a service answered, as a reply; whatever is missing from the answer is an error of the row."""
    message, finish = _find(answer, "choices", 0, "message"), _find(answer, "choices", 0, "finish_reason")
    text = _find(message, "content")
    text = text if isinstance(text, str) else ""
    refusal = _find(message, "refusal")
    if message is None:
        return ChatReply("", f"the service's answer holds no message: {str(answer)[:120]}")
    if refusal:
        return ChatReply(text, f"the model refused: {str(refusal)[:300]}")
    if finish == "length":
        return ChatReply(text, f"the reply was cut after {max_tokens} tokens, at max_tokens or the end of the context")
    if finish == "content_filter":
        return ChatReply(text, "the service's content filter cut the reply")
    return ChatReply(text, None if text.strip() else "the reply is empty")


def _find(value: Any, *path: str | int) -> Any:
    """What lies at `path` in JSON, None where it does not lead on."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _retry_after(response: httpx.Response) -> float:
    try:
        return float(response.headers.get("retry-after", "0"))
    except ValueError:  # a date: rare, and the backoff does as well
        return 0.0
