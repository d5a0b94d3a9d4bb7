"""Handles every request: its id and trace (W3C Trace Context), the limit of its body, common headers, the access log.

It is an ASGI application around another. It answers HEAD like GET, without the body. An unexpected error is written to
the log in full; the client only gets the request's id.
"""

from __future__ import annotations

import email.message
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

import yaml
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from c2b_ray.config.reading import first_problem
from c2b_ray.endpoint import counters
from c2b_ray.endpoint.api.problems import MEDIA_TYPE, FieldError, ProblemError, encoded, is_of_a_browser, problem_of
from c2b_ray.errors import ConfigError
from c2b_ray.report.words import size
from c2b_ray.storage.manifest import StrictLoader, parse_json
from c2b_ray.text import HIDDEN

ACCESS = logging.getLogger("c2b_ray.endpoint.access")
ERRORS = logging.getLogger("c2b_ray.endpoint.errors")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_TRACE = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
"""W3C Trace Context, traceparent: version, trace, parent, flags. Later versions may append fields."""
_KEY = re.compile(r"c2b_[A-Za-z0-9]{8}_[A-Za-z0-9]+")
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_DEFAULTS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; sandbox",
}
"""Headers of answers that do not set them."""


def log_to_stderr() -> None:
    """Logs each request as one line of JSON, whatever the format of the process's other lines."""
    if not ACCESS.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        ACCESS.addHandler(handler)
        ACCESS.setLevel(logging.INFO)
        ACCESS.propagate = False


def _trace_of(header: bytes) -> str | None:
    """Returns the id of the caller's trace; None without a header, or with an invalid one, which is ignored."""
    match = _TRACE.fullmatch(header)
    if match is None:
        return None
    version, trace, parent, _, suffix = match.groups()
    is_valid = version != b"ff" and (version != b"00" or suffix is None)
    return trace.decode() if is_valid and trace.strip(b"0") and parent.strip(b"0") else None


class Envelope:
    """The application around the API. `largest`: returns the most bytes of a request's body, by its path. `page`:
    renders a problem for a person."""

    def __init__(
        self, app: ASGIApp, largest: Callable[[str], int], page: Callable[[Request, ProblemError], Response]
    ) -> None:
        self._app, self._largest, self._page = app, largest, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._largest(scope["path"]))
        try:
            exchange.refuse_by_headers()
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except Exception as error:
            await exchange.answer(error, self._page)
        finally:
            exchange.log()


class _Exchange:
    """One request and its answer. `scope`: the scope that the application receives."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, largest: int) -> None:
        self._method: str = scope["method"]
        self.scope = {**scope, "method": "GET"} if self._method == "HEAD" else scope
        self._receive, self._send, self._largest = receive, send, largest
        self._began = time.perf_counter()
        self._status, self._read, self._sent = 0, 0, 0
        self._whole = False
        headers = dict(scope["headers"])
        self._length: bytes = headers.get(b"content-length", b"")
        self._coding: bytes = headers.get(b"content-encoding", b"").strip().lower()
        requested_id = headers.get(b"x-request-id", b"")
        self._id = requested_id.decode() if _REQUEST_ID.fullmatch(requested_id) else secrets.token_hex(12)
        self._trace = _trace_of(headers.get(b"traceparent", b""))
        self._span = secrets.token_hex(8)
        self._state = self.scope.setdefault("state", {})
        self._state["request_id"] = self._id
        self._state["headers"] = {}

    def refuse_by_headers(self) -> None:
        """Refuses a request by its Content-Length or Content-Encoding, before its body is read."""
        if self._length.isdigit() and int(self._length[:20]) > self._largest:
            raise self._too_large()
        if self._coding not in (b"", b"identity"):
            detail = "Content-Encoding is not supported: send the body uncompressed"
            raise ProblemError(415, "unsupported_encoding", detail, headers={"Accept-Encoding": "identity"})

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._largest:
                raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._count()
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers += [(b"x-request-id", self._id.encode()), *_ALWAYS]
            if self._trace:  # lets the caller's trace show this request: level 2 of Trace Context
                headers.append((b"traceresponse", f"00-{self._trace}-{self._span}-00".encode()))
            headers += [pair for pair in _DEFAULTS.items() if pair[0] not in present]
            headers += [
                (name.lower().encode(), value.encode())
                for name, value in self._state["headers"].items()
                if name.lower().encode() not in present
            ]
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            if self._method == "HEAD":
                if self._whole:
                    return
                # The server then tells the application that its client is gone, which ends a stream of events.
                self._whole, message = True, {"type": "http.response.body", "body": b""}
            self._sent += len(message.get("body", b""))
        await self._send(message)

    async def answer(self, error: Exception, page: Callable[[Request, ProblemError], Response]) -> None:
        problem = problem_of(error)
        if isinstance(error, ClientDisconnect):  # nobody reads this answer; the endpoint is not at fault
            problem = ProblemError(400, "disconnected", "the client disconnected before its request was complete")
        if problem is None:
            traced = f" (trace {self._trace})" if self._trace else ""
            ERRORS.error("request %s%s failed", self._id, traced, exc_info=error)
            problem = ProblemError(
                500, "internal", f"the endpoint failed; its operator finds the reason in the log under {self._id}"
            )
        if self._status:  # the answer has begun: the client sees that it is cut off
            raise error
        request = Request(self.scope)
        if is_of_a_browser(request.headers):
            counters.refused(problem.code)
            await page(request, problem)(self.scope, self._receive, self.send)
            return
        content = encoded(problem, self._id)
        headers = {"content-type": MEDIA_TYPE, "content-length": str(len(content)), **problem.headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": content})

    def _count(self) -> None:
        """Counts the request by its route's template, since clients can send any number of different paths."""
        template = getattr(self.scope.get("route"), "path", "")
        counters.answered(self._method, template, self._status, time.perf_counter() - self._began)

    def log(self) -> None:
        """Writes the access log, without headers and without the query, which may contain a signature."""
        if not ACCESS.isEnabledFor(logging.INFO):
            return
        client = self.scope.get("client")
        line: dict[str, Any] = {
            "time": round(time.time(), 3),
            "request_id": self._id,
            "trace_id": self._trace,
            "span_id": self._span if self._trace else None,
            "method": self._method,
            "path": _KEY.sub(HIDDEN, self.scope["path"])[:300],
            "status": self._status,
            "ms": round(1000 * (time.perf_counter() - self._began), 2),
            "read": self._read,
            "sent": self._sent,
            "client": client[0] if client else None,
            "tenant": self._state.get("tenant_id"),
            "key": self._state.get("key_id"),
        }
        ACCESS.info(json.dumps(line))

    def _too_large(self) -> ProblemError:
        return ProblemError(
            413,
            "too_large",
            f"a request may have {size(self._largest)} here ({self._largest} bytes), and this one is larger; send "
            "less, or ask the operator for more",
            headers={"Connection": "close"},
        )


# Reads documents that clients send, JSON or YAML, strictly and at bounded cost.


M = TypeVar("M", bound=BaseModel)
JSON, YAML = ("application/json",), ("application/yaml", "application/x-yaml", "text/yaml")
DEEPEST = 32
LARGEST_YAML = 512 * 1024
"""The most characters of YAML, whose parser is a hundred times slower than JSON's."""


class Document:
    """The body of a request, not yet parsed: its bytes and its media type."""

    def __init__(self, data: bytes, content_type: str) -> None:
        self.data, self.content_type = data, content_type

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def parsed(self) -> Any:
        """Parses the body. Raises 400 if it is malformed, 415 if its type is neither JSON nor YAML."""
        header = email.message.Message()
        header["content-type"] = self.content_type
        kind = header.get_content_type() if self.content_type else JSON[0]
        if kind not in JSON + YAML:
            raise ProblemError(415, "unsupported_media_type", f"send {JSON[0]} or {YAML[0]}, not {kind!r}")
        try:
            text = self.data.decode("utf-8-sig")
            value = _yaml(text) if kind in YAML else parse_json(text)
            _check(value, 0)
        except RecursionError as error:
            raise _malformed(kind, "it is nested too deeply") from error
        except (ValueError, yaml.YAMLError) as error:
            raise _malformed(kind, " ".join(str(error).split())) from error
        return value

    def as_model(self, model: type[M]) -> M:
        """Parses and validates the body. Raises 422, which names the wrong field."""
        value = self.parsed()
        if not isinstance(value, dict):
            raise ProblemError(422, "invalid", "expected an object of fields", [FieldError("", "expected an object")])
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise _of(error, model) from error


async def document(request: Request) -> Document:
    """Reads a request's body; a dependency of routes. The envelope limits its size meanwhile."""
    return Document(await request.body(), request.headers.get("content-type", ""))


def canonical(value: Any) -> bytes:
    """Returns the same bytes for equal JSON values, whatever their formatting."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _of(error: ValidationError, model: type[BaseModel]) -> ProblemError:
    problem = first_problem(error, None, model)
    assert isinstance(problem, ConfigError)
    return ProblemError(422, "invalid", str(problem), [
        FieldError(problem.field, str(problem).removeprefix(f"{problem.field}: "))
    ])  # fmt: skip


def _yaml(text: str) -> Any:
    if len(text) > LARGEST_YAML:
        raise ValueError(f"YAML may have at most {LARGEST_YAML} characters; send JSON")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases (*name); replace them by their values")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return yaml.load(text, StrictLoader)  # noqa: S506 — a safe loader


def _check(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("a text holds NUL or half of a surrogate pair")
    elif isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise ValueError(f"the key {str(name)[:60]!r} is not a text; quote it")
            _check(name, depth)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise ValueError("NaN and Infinity are not numbers in JSON")
    elif isinstance(value, int):
        if abs(value) >= 2**63:
            raise ValueError("a number does not fit in 64 bits")
    elif value is not None and not isinstance(value, float):
        raise ValueError(f"{str(value)[:60]!r} is read as a {type(value).__name__}; quote it")


def _malformed(kind: str, reason: str) -> ProblemError:
    return ProblemError(400, "malformed", f"the body is not valid {kind}: {reason}")
