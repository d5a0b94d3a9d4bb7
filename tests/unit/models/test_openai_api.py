"""How OpenAILanguageModel meets a service that limps: answers by script, over a transport without a network."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.openai_api import PATIENCE, OpenAILanguageModel
from c2b_ray.roles import ChatReply, ChatRequest, Message

KEY = "sk-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
Handler = Callable[[httpx.Request], httpx.Response]


def ask(text: str = "hello", **settings: Any) -> ChatRequest:
    return ChatRequest((Message("user", text),), **settings)


def answer(text: str | None, finish: str = "stop", **message: Any) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"content": text, **message}, "finish_reason": finish}]})


def says(status: int, message: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message}}, headers=headers)


class Service:
    """Gives its answers in order, the last one for ever; keeps what it was sent."""

    def __init__(self, *answers: httpx.Response | Exception | Handler) -> None:
        self.answers, self.bodies, self.headers, self.lock = list(answers), [], [], threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            self.bodies.append(json.loads(request.content))
            self.headers.append(request.headers)
            now = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(now, Exception):
            raise now
        return now(request) if callable(now) else now


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[OpenAILanguageModel, Service]]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    client = httpx.Client

    def start(*answers: Any, **settings: Any) -> tuple[OpenAILanguageModel, Service]:
        service = Service(*answers)
        transport = httpx.MockTransport(service)
        monkeypatch.setattr(httpx, "Client", lambda **settings: client(**{**settings, "transport": transport}))
        patience = replace(PATIENCE, first_wait_s=0.001, attempts=3, **settings)
        return OpenAILanguageModel("http://model.test/v1/", "m", patience), service

    return start


def test_a_request_as_the_protocol_has_it(serve: Any) -> None:
    model, service = serve(answer('{"a": "b"}'))
    request = ask(schema=SCHEMA, temperature=0.6, top_p=0.9, max_tokens=7, seed=2**63 + 5)
    assert model.chat([request]) == [ChatReply('{"a": "b"}')]
    [body] = service.bodies
    assert body.pop("response_format")["json_schema"]["schema"] == SCHEMA
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.6,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 5,  # servers read a signed 64-bit number
    }
    assert service.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "hiccup",
    [
        says(429, "slow down"),
        says(500, "oops"),
        says(503, "starting", **{"retry-after": "0"}),
        says(503, "starting", **{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        httpx.Response(200, text="<html>proxy</html>"),
        httpx.ReadTimeout("timed out"),
        httpx.ConnectError("refused"),
    ],
)
def test_what_may_pass_is_tried_again(serve: Any, hiccup: Any) -> None:
    model, service = serve(hiccup, hiccup, answer("fine"))
    assert model.chat([ask()]) == [ChatReply("fine")]
    assert len(service.bodies) == 3


def test_retry_after_is_waited_for(serve: Any) -> None:
    model, _ = serve(says(429, "slow down", **{"retry-after": "0.2"}), answer("fine"))
    started = time.monotonic()
    model.chat([ask()])
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize(
    "failure",
    [says(500, f"boom, your key {KEY}"), httpx.ReadTimeout(f"timed out {KEY}"), httpx.Response(200, text=KEY)],
)
def test_a_dead_service_is_an_exception_that_names_the_url_and_no_key(
    serve: Any, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model, service = serve(failure)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ServiceError, match=r"http://model\.test/v1/chat.* 3 times") as caught,
    ):
        model.chat([ask()] * 4)
    assert "curl http://model.test/v1/models" in str(caught.value)
    assert caught.value.__cause__ is None
    assert KEY not in f"{caught.value!r} {model!r} {caplog.text}"
    assert len(service.bodies) % 3 == 0


@pytest.mark.parametrize(("status", "hint"), [(401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY"), (404, "model's name")])
def test_what_will_not_pass_is_not_tried_again(serve: Any, status: int, hint: str) -> None:
    model, service = serve(says(status, f"no: {KEY}"))
    with pytest.raises(ServiceError, match=hint) as caught:
        model.chat([ask()])
    assert KEY not in str(caught.value)
    assert len(service.bodies) == 1


@pytest.mark.parametrize(
    ("given", "text", "error"),
    [
        (answer("cut", "length"), "cut", "after 512 tokens"),
        (answer("", "stop"), "", "empty"),
        (answer(None, "stop"), "", "empty"),
        (answer(None, "stop", refusal="I cannot"), "", "refused: I cannot"),
        (answer("half", "content_filter"), "half", "filter"),
        (httpx.Response(200, json={"choices": []}), "", "no message"),
        (httpx.Response(200, json=[1]), "", "no message"),
        (says(400, "maximum context length is 8192"), "", "maximum context length"),
        (says(422, f"bad {KEY}"), "", "bad …"),
    ],
)
def test_a_reply_that_cannot_be_used_is_an_error_of_its_row(serve: Any, given: Any, text: str, error: str) -> None:
    model, _ = serve(given, answer("fine"))
    first = model.chat([ask()])[0]
    assert first.text == text
    assert first.error is not None
    assert error in first.error
    assert model.chat([ask()]) == [ChatReply("fine")]


def test_a_server_without_json_schemas_is_asked_in_words_from_then_on(serve: Any) -> None:
    model, service = serve(says(400, "'response_format' of type json_schema is not supported"), answer('{"a": "b"}'))
    assert [reply.error for reply in model.chat([ask(schema=SCHEMA)])] == [None]
    assert [reply.error for reply in model.chat([ask(schema=SCHEMA)])] == [None]
    assert ["response_format" in body for body in service.bodies] == [True, False, False]
    assert json.dumps(SCHEMA) in service.bodies[1]["messages"][-1]["content"]


def test_a_server_that_wants_max_completion_tokens_gets_them(serve: Any) -> None:
    refusal = says(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    model, service = serve(refusal, answer("fine"))
    assert model.chat([ask(max_tokens=9)]) == [ChatReply("fine")]
    assert service.bodies[1]["max_completion_tokens"] == 9
    assert "max_tokens" not in service.bodies[1]


def test_order_is_kept_and_requests_in_flight_are_bounded(serve: Any) -> None:
    now = most = 0
    lock = threading.Lock()

    def slow(request: httpx.Request) -> httpx.Response:
        nonlocal now, most
        text = json.loads(request.content)["messages"][0]["content"]
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02 if int(text) % 3 else 0.04)
        with lock:
            now -= 1
        return answer(text)

    model, _ = serve(slow, in_flight=4)
    assert [reply.text for reply in model.chat([ask(str(i)) for i in range(20)])] == [str(i) for i in range(20)]
    assert 1 < most <= 4


def completion(**log_probs: Any) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"text": "", "logprobs": log_probs}]})


def test_next_tokens_are_sorted_and_cut_to_k(serve: Any) -> None:
    model, service = serve(completion(top_logprobs=[{" a": -2.0, " b": -0.5, " c": -1.0, " d": -9.0}]))
    [row] = model.next_tokens(["once"], 3)
    assert [(token.token, token.log_prob, token.token_id) for token in row] == [
        (" b", -0.5, -1),
        (" c", -1, -1),
        (" a", -2, -1),
    ]
    assert service.bodies[0] == {"model": "m", "prompt": "once", "max_tokens": 1, "temperature": 0, "logprobs": 3}


def test_log_likelihood_leaves_the_first_token_out(serve: Any) -> None:
    model, service = serve(completion(token_logprobs=[None, -1.5, -0.25]))
    assert model.log_likelihood(["a b c"]) == [-1.75]
    assert service.bodies[0]["echo"] is True


def test_a_text_too_long_is_a_bad_row_and_a_service_without_log_probs_is_useless(serve: Any) -> None:
    model, _ = serve(says(400, "This model's maximum context length is 10 tokens"))
    assert model.next_tokens(["long"], 2) == [[]]
    assert math.isnan(model.log_likelihood(["long"])[0])
    for useless in (says(400, "logprobs are not supported"), completion(), httpx.Response(200, json={})):
        model, _ = serve(useless)
        with pytest.raises(ServiceError, match="vLLM"):
            model.next_tokens(["x"], 2)
        with pytest.raises(ServiceError, match="vLLM"):
            model.log_likelihood(["x"])


@pytest.mark.parametrize("text", ["openai:http://host/v1", "openai:host/v1#m", "openai:http://me:pw@host/v1#m"])
def test_a_spec_is_a_url_and_a_model(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        catalog.language_model(text)
    assert "pw" not in str(caught.value)


def test_nobody_at_the_door() -> None:
    model = OpenAILanguageModel(
        "http://127.0.0.1:9", "m", replace(PATIENCE, attempts=2, first_wait_s=0.001, timeout_s=1)
    )
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9"):
        model.chat([ask()])
    model.close()
