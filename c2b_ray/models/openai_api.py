"""`LanguageModel` and `Captioner` at a URL that speaks the OpenAI protocol: vLLM, llama.cpp, Ollama, a hosted service.

    openai:http://host/v1#model        the key is read from the environment variable OPENAI_API_KEY

It knows the protocol and how such servers differ, and not the prompts' purpose. `chat` uses /chat/completions;
`next_tokens` and `log_likelihood` use /completions, whose log-probabilities not every server gives. A captioner's
answers are restricted to their choices by a JSON schema where the service supports response_format, and parsed from its
text otherwise. The model behind a URL can change unnoticed: a revision is a hash of the address, and for a captioner of
our prompts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any, TypeVar

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models.captioned import CAPTION_TOKENS, answers, captions, question_prompt, wording
from c2b_ray.models.catalog import Spec
from c2b_ray.models.json_service import JsonService, RequestLimits, RequestRefused, check_url, find
from c2b_ray.models.spec_options import to_pil
from c2b_ray.roles import (
    Answer,
    CaptionReply,
    ChatReply,
    ChatRequest,
    Description,
    Message,
    Pixels,
    Question,
    TokenLogProb,
)
from c2b_ray.tables import content_id

KEY_VARIABLE = "OPENAI_API_KEY"
PATIENCE = RequestLimits(timeout_s=120, attempts=5, in_flight=16)
UNKNOWN_ID = -1  # the protocol gives tokens as text, without their ids
RowValue = TypeVar("RowValue")


def load_language_model(spec: Spec) -> OpenAILanguageModel:
    """Loads the model of `openai:http://host/v1#model` without sending a request. Raises SpecError where the URL or the
    model is missing."""
    url, _, model = spec.name.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise SpecError(f"{spec.text}: expected openai:http://host/v1#model, a URL and the model's name after a #")
    check_url(url, KEY_VARIABLE)
    return OpenAILanguageModel(url, model)


def describe_language_model(spec: Spec) -> Description:
    """Returns a description with a hash of the address; no request is sent."""
    model = load_language_model(spec)
    model.close()
    return Description(model.revision)


class OpenAILanguageModel:
    """A served model. Safe to use from several threads.

    Every method raises ServiceError where the service is down, refuses the key or does not know the model.
    """

    def __init__(self, url: str, model: str, patience: RequestLimits = PATIENCE) -> None:
        self._url, self._model = url.rstrip("/"), model
        self.revision = content_id("openai_lm", self._url, model)
        self._service = JsonService(self._url, KEY_VARIABLE, patience, model=model, probe="/models")
        # Fields that this server refused once; they are left out afterwards.
        self._constrains, self._length_name = True, "max_tokens"

    def __repr__(self) -> str:
        return f"OpenAILanguageModel({self._url!r}, {self._model!r})"

    def close(self) -> None:
        self._service.close()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Returns one reply per request; its `error` tells if it was cut short, filtered, refused or empty."""
        return self._service.each(self._chat, requests)

    def chat_about(self, images: Sequence[str], requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Like `chat`, with each request about the image at a (data) URI, which precedes its first message's text."""
        return self._service.each(lambda row: self._chat(row[1], row[0]), list(zip(images, requests, strict=True)))

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens, likeliest first, with ids of −1; none for a text that the server
        refuses."""
        return self._service.each(lambda text: self._next_tokens(text, k), texts)

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """Returns the sum of log P of every token after the first; NaN for a text that the server refuses."""
        return self._service.each(self._log_likelihood, texts)

    def _chat(self, request: ChatRequest, image: str | None = None) -> ChatReply:
        refusal = ""
        for _ in range(3):  # as it is known, then without each of the two fields that servers differ in
            try:
                answer = self._service.ask("POST", "/chat/completions", self._chat_body(request, image))
                return _chat_reply(answer, request.max_tokens)
            except RequestRefused as refused:
                refusal = refused.reply
                if not self._adapt(refusal):
                    break
        return ChatReply("", f"the service refused the request: {refusal}")

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
            instruction = f"Answer with one JSON object and nothing else. It must satisfy: {json.dumps(request.schema)}"
            messages.append(Message("user", instruction))
        body_messages: list[dict[str, Any]] = [
            {"role": message.role, "content": message.content} for message in messages
        ]
        if image is not None:
            text = {"type": "text", "text": body_messages[0]["content"]}
            body_messages[0]["content"] = [{"type": "image_url", "image_url": {"url": image}}, text]
        return {**body, "messages": body_messages}

    def _adapt(self, refusal: str) -> bool:
        """Tells whether the server refused an optional field; the request is then repeated without it."""
        if self._length_name == "max_tokens" and "max_completion_tokens" in refusal:
            self._length_name = "max_completion_tokens"
            return True
        if "response_format" in refusal or "json_schema" in refusal:
            # Rows in flight beside this one may have switched it off already: repeat the request all the same.
            self._constrains = False
            return True
        return False

    def _next_tokens(self, text: str, k: int) -> list[TokenLogProb]:
        body = {"model": self._model, "prompt": text, "max_tokens": 1, "temperature": 0, "logprobs": k}
        try:
            answer = self._service.ask("POST", "/completions", body)
        except RequestRefused as refusal:
            return self._row_value(refusal, [])
        top = find(answer, "choices", 0, "logprobs", "top_logprobs", 0)
        if not isinstance(top, dict):
            raise ServiceError(f"{self._url} gives no log-probabilities from /completions; {_NEEDS_LOGPROBS}")
        result = [TokenLogProb(UNKNOWN_ID, token, float(value)) for token, value in top.items()]
        return sorted(result, key=lambda t: -t.log_prob)[:k]  # some servers add the sampled token to the k

    def _log_likelihood(self, text: str) -> float:
        body = {"model": self._model, "prompt": text, "max_tokens": 0, "temperature": 0, "logprobs": 1, "echo": True}
        try:
            answer = self._service.ask("POST", "/completions", body)
        except RequestRefused as refusal:
            return self._row_value(refusal, float("nan"))
        values = find(answer, "choices", 0, "logprobs", "token_logprobs")
        if not isinstance(values, list):
            raise ServiceError(f"{self._url} does not echo the log-probabilities of a text; {_NEEDS_LOGPROBS}")
        return float(sum(value for value in values[1:] if value is not None))

    def _row_value(self, refusal: RequestRefused, value: RowValue) -> RowValue:
        """Returns `value` for a row whose text is too long for the context; raises for any other refusal, which would
        concern every row."""
        if any(word in refusal.reply.lower() for word in ("context", "too long", "maximum", "length")):
            return value
        raise ServiceError(f"{self._url}/completions refuses: {refusal.reply}; {_NEEDS_LOGPROBS}") from None


_NEEDS_LOGPROBS = (
    "this audit needs next-token log-probabilities: serve the model with vLLM, or load it in process with hf:NAME"
)


def _chat_reply(answer: Any, max_tokens: int) -> ChatReply:
    """Converts a service's answer to a reply; a missing part of the answer is an error of the row."""
    message, finish = find(answer, "choices", 0, "message"), find(answer, "choices", 0, "finish_reason")
    text = find(message, "content")
    text = text if isinstance(text, str) else ""
    refusal = find(message, "refusal")
    if message is None:
        return ChatReply("", f"the service's answer holds no message: {str(answer)[:120]}")
    if refusal:
        return ChatReply(text, f"the model refused: {str(refusal)[:300]}")
    if finish == "length":
        return ChatReply(text, f"the reply was cut after {max_tokens} tokens, at max_tokens or the end of the context")
    if finish == "content_filter":
        return ChatReply(text, "the service's content filter cut the reply")
    return ChatReply(text, None if text.strip() else "the reply is empty")


# `Captioner` at a URL that speaks the OpenAI protocol and takes images: vLLM, llama.cpp, Ollama, a hosted service.


ANSWER_TOKENS = 64
LARGE = 4 * 2**20  # bytes of pixels from which an image travels as JPEG


def load_captioner(spec: Spec) -> OpenAICaptioner:
    """Loads the model of `openai:http://host/v1#model` without sending a request. Raises SpecError where the URL or the
    model is missing."""
    return OpenAICaptioner(load_language_model(spec), spec.name)


def describe_captioner(spec: Spec) -> Description:
    """Returns a description with a hash of the address and our prompts; no request is sent."""
    captioner = load_captioner(spec)
    captioner.close()
    return Description(captioner.revision)


class OpenAICaptioner:
    """Implements `roles.Captioner`. Raises ServiceError where the service is down, refuses the key or does not know the
    model."""

    def __init__(self, service: OpenAILanguageModel, address: str) -> None:
        self._service = service
        self._revision = content_id("openai_captioner", address, wording())

    @property
    def revision(self) -> str:
        return self._revision

    def close(self) -> None:
        self._service.close()

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """Returns the service's captions; asks a second time where the label is missing."""
        return captions(images, labels, self._say)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """Returns the choice that the service names, without probabilities."""
        return answers(images, questions, self._say_choice)

    def _say(self, images: Sequence[Pixels], texts: Sequence[str]) -> list[ChatReply]:
        requests = [ChatRequest((Message("user", text),), max_tokens=CAPTION_TOKENS) for text in texts]
        return self._service.chat_about([data_uri(image) for image in images], requests)

    def _say_choice(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[ChatReply]:
        requests = [
            ChatRequest((Message("user", question_prompt(q)),), schema=_schema(q), max_tokens=ANSWER_TOKENS)
            for q in questions
        ]
        return self._service.chat_about([data_uri(image) for image in images], requests)


def data_uri(image: Pixels) -> str:
    """Encodes the image as a PNG, a large one as a JPEG of quality 95."""
    kind, settings = ("JPEG", {"quality": 95}) if image.nbytes > LARGE else ("PNG", {"compress_level": 1})
    buffer = BytesIO()
    to_pil(image).save(buffer, kind, **settings)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _schema(question: Question) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(question.choices)}},
        "required": ["answer"],
        "additionalProperties": False,
    }
