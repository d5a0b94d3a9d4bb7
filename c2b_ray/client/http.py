"""The errors of an endpoint's client, one class for each kind of failure."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay

from c2b_ray.errors import InputError, ServiceError
from c2b_ray.text import visible


@dataclass(frozen=True)
class FieldError:
    """A field of what was sent, such as config.images.index, and what is wrong with it."""

    field: str
    message: str


class EndpointError(ServiceError):
    """The endpoint refused a request or failed. `status`, `code`, `errors` and `request_id` come from its answer."""

    def __init__(
        self, message: str, status: int = 0, problem: Mapping[str, Any] | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        problem = problem or {}
        self.status, self.retry_after = status, retry_after
        self.code = str(problem.get("code", ""))
        self.request_id = str(problem.get("request_id", ""))
        errors = problem.get("errors")
        self.errors = tuple(
            FieldError(str(error.get("field", "")), str(error.get("message", "")))
            for error in (errors if isinstance(errors, list) else ())
            if isinstance(error, dict)
        )

    @property
    def field(self) -> str | None:
        """The first field that is wrong."""
        return self.errors[0].field if self.errors else None


class RefusedError(EndpointError, InputError):
    """The request is wrong (400, 413, 415, 422) and must be changed."""


class NotAllowedError(EndpointError, InputError):
    """The key does not work, or may not do this (401, 403)."""


class NotThereError(EndpointError, InputError):
    """The tenant has no such object (404)."""


class NotNowError(EndpointError, InputError):
    """The object's state does not allow the request, such as the report of a running job (409)."""


class BusyError(EndpointError):
    """A quota is used up, or the endpoint cannot serve now (429, 503), also after retries."""


class UnreachableError(EndpointError):
    """The endpoint did not answer."""


KINDS: Mapping[int, type[EndpointError]] = {
    400: RefusedError, 413: RefusedError, 415: RefusedError, 422: RefusedError, 401: NotAllowedError,
    403: NotAllowedError, 404: NotThereError, 409: NotNowError, 429: BusyError, 503: BusyError,
}  # fmt: skip


# Sends requests to an endpoint, with the key, retries and typed errors. It knows no route.


PATIENCE_SECONDS = 120.0
LONGEST_WAIT = 60.0
NOTICED_SECONDS = 5.0
"""A wait of so many seconds is logged with its reason."""
_log = logging.getLogger(__name__)


class Http:
    """`patience`: the seconds for which a request is sent again."""

    def __init__(
        self, url: str, key: str, patience: float = PATIENCE_SECONDS, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._patience = patience
        self._client = httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}", "User-Agent": "c2b-ray"},
            timeout=httpx.Timeout(60.0, connect=10.0),
            transport=transport,
            follow_redirects=False,  # the key goes to this host alone
        )

    def close(self) -> None:
        self._client.close()

    def json(self, method: str, path: str, **options: Any) -> Any:
        answer = self.send(method, path, **options)
        try:
            return answer.json()
        except ValueError as error:
            raise EndpointError(f"{path}: the answer is no JSON", answer.status_code) from error

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Returns a successful answer. Raises the EndpointError of its kind for any other. `again`: whether the request
        may be sent twice although it has no Idempotency-Key."""
        headers, is_repeatable = options.get("headers") or {}, options.pop("again", False)
        may_retry = is_repeatable or method in ("GET", "DELETE") or "Idempotency-Key" in headers

        def try_again(error: BaseException) -> bool:
            if isinstance(error, BusyError):  # a quota of the day is not waited for: nobody sits there until midnight
                return error.retry_after is None or error.retry_after <= self._patience
            return may_retry and isinstance(error, UnreachableError)

        for attempt in Retrying(
            retry=retry_if_exception(try_again), wait=_wait, stop=stop_after_delay(self._patience),
            before_sleep=_say_wait, reraise=True,
        ):  # fmt: skip
            with attempt:
                return self._once(method, path, options)
        raise AssertionError  # reraise=True

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Yields an answer whose body is read while it arrives."""
        timeout = httpx.Timeout(10.0, read=60.0)
        try:
            with self._client.stream("GET", path, headers=dict(headers), timeout=timeout) as answer:
                if answer.status_code >= 300:
                    answer.read()
                    raise _error(answer)
                yield answer
        except httpx.HTTPError as error:
            raise UnreachableError(f"{path}: {_words(error)}") from error

    def _once(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        try:
            answer = self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self._client.base_url}: {_words(error)}") from error
        if answer.status_code >= 300:
            raise _error(answer)
        return answer


def _error(answer: httpx.Response) -> EndpointError:
    problem: dict[str, Any] = {}
    try:
        document = json.loads(answer.content)
        problem = document if isinstance(document, dict) else {}
    except ValueError:
        pass
    detail = str(problem.get("detail") or f"{answer.request.url.path} answered {answer.status_code}")
    request_id = problem.get("request_id")
    message = f"{visible(detail)}{f' (request {visible(str(request_id))})' if request_id else ''}"
    kind = KINDS.get(answer.status_code, EndpointError)
    return kind(message, answer.status_code, problem, _seconds(answer.headers.get("retry-after")))


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def _wait(state: RetryCallState) -> float:
    """Returns the seconds of Retry-After, otherwise more for each attempt; and up to a quarter more at random, so that
    clients do not all come back at once."""
    error = state.outcome.exception() if state.outcome else None
    retry_after = getattr(error, "retry_after", None)
    seconds = float(retry_after) if retry_after is not None else 0.25 * 2 ** min(state.attempt_number, 8)
    return min(LONGEST_WAIT, seconds) * (1 + random.random() / 4)  # noqa: S311 — spreads requests, hides nothing


def _say_wait(state: RetryCallState) -> None:
    """Logs why a request waits, where somebody would wonder."""
    if state.outcome is not None and state.next_action is not None and state.next_action.sleep >= NOTICED_SECONDS:
        _log.warning("%s; sent again in %.0f s", state.outcome.exception(), state.next_action.sleep)


def _words(error: httpx.HTTPError) -> str:
    return f"no answer: {visible(str(error)) or type(error).__name__}"
