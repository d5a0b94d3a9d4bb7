"""A client of a service that answers JSON over HTTP, with concurrent requests, timeouts and retries.

It knows HTTP, retries and how services word their refusals; it does not know what is asked or what an answer means. The
key is read from an environment variable and goes into one header: no message, repr or log holds it. In a process with a
policy of URLs (`url_guard`), only URLs that it allows are requested.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

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
from c2b_ray.models.url_guard import GuardedTransport, policy_of_environment

_OF_THE_REQUEST = (400, 413, 422)  # statuses about this request; the next one may be fine
Row = TypeVar("Row")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RequestLimits:
    """Timeouts, concurrency and retries for a service. `timeout_s`: of each attempt. `in_flight`: requests at a time.

    Waits between attempts double from `first_wait_s` up to 30 seconds, or last as long as the service's Retry-After
    asks for, up to 60.
    """

    timeout_s: float
    attempts: int
    in_flight: int
    first_wait_s: float = 0.5


class RequestRefused(ServiceError):
    """Raised where the service understood a request and refuses it; `reply` is the service's message."""

    def __init__(self, message: str, reply: str) -> None:
        super().__init__(message)
        self.reply = reply

    def __reduce__(self) -> tuple[type[RequestRefused], tuple[str, str]]:
        return RequestRefused, (str(self), self.reply)


class _Retryable(Exception):
    """A failure that may pass: too many requests, a server error, a timeout, an answer that is not JSON."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class JsonService:
    """A service at a URL. Safe to use from several threads.

    `key_variable`: the environment variable with its key. `model`: the model to use, where the service has several.
    `probe`: a path that answers GET, which error messages suggest to try.
    """

    def __init__(
        self, url: str, key_variable: str, patience: RequestLimits, *, model: str | None = None, probe: str = ""
    ) -> None:
        self._url, self._key_variable, self._patience = url, key_variable, patience
        self._model, self._probe = model, probe
        self._key, policy = _key(key_variable), policy_of_environment()
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(patience.timeout_s, pool=None),  # waiting for one's turn is no failure of the service
            limits=httpx.Limits(max_connections=patience.in_flight),
            transport=None if policy is None else GuardedTransport(policy, connections=patience.in_flight),
        )

    def close(self) -> None:
        self._client.close()

    def ask(self, method: Literal["GET", "POST"], path: str = "", body: Any = None, advice: str = "") -> Any:
        """Returns the answer's JSON. `advice`: what else may help where no attempt succeeds.

        Raises Refused where the service refuses this request; ServiceError where it is down, refuses the key or does
        not know the URL.
        """
        try:
            return self._retrying()(self._once, method, path, body)
        except _Retryable as failure:
            raise ServiceError(
                f"{self._url}{path} failed {self._patience.attempts} times: {failure}. See that the service runs and "
                f"answers at that URL (curl {self._url}{self._probe}), then run again: what is done is kept"
                f"{advice and f'. {advice}'}"
            ) from None

    def each(self, ask: Callable[[Row], Answer], rows: Sequence[Row]) -> list[Answer]:
        """Calls `ask` for every row, several at a time, and returns the answers in order."""
        if not rows:
            return []
        with ThreadPoolExecutor(min(self._patience.in_flight, len(rows))) as pool:
            futures = [pool.submit(ask, row) for row in rows]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(cancel_futures=True)  # the service is dead: do not wait for the rest of the rows to fail
                raise

    def _retrying(self) -> Retrying:
        first = self._patience.first_wait_s
        backoff = wait_exponential(first, max=30) + wait_random(0, first)

        def wait(state: RetryCallState) -> float:
            failure = state.outcome.exception() if state.outcome else None
            requested = failure.retry_after if isinstance(failure, _Retryable) else 0.0
            return max(backoff(state), min(requested, 60.0))

        stop = stop_after_attempt(self._patience.attempts)
        return Retrying(retry=retry_if_exception_type(_Retryable), stop=stop, wait=wait, reraise=True)

    def _once(self, method: str, path: str, body: Any) -> Any:
        try:
            response = self._client.request(method, self._url + path, json=body)
        except httpx.TimeoutException:
            raise _Retryable(f"no answer within {self._patience.timeout_s:g} s") from None
        except httpx.RequestError as error:  # on the way, or in a body that does not unpack
            raise _Retryable(f"{type(error).__name__}: {self._clean(str(error))}") from None
        status = response.status_code
        if status == 429 or status >= 500:
            raise _Retryable(f"HTTP {status} {self._reply_of(response)}", _retry_after(response))
        if not response.is_success:
            reply = self._reply_of(response)
            model = f" for {self._model!r}" if self._model else ""
            message = f"{self._url}{path}: HTTP {status}{model} ({reply}); {self._hint(response)}"
            raise RequestRefused(message, reply) if status in _OF_THE_REQUEST else ServiceError(message)
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise _Retryable(f"its answer is not JSON: {self._clean(response.text)[:80]!r}") from None

    def _hint(self, response: httpx.Response) -> str:
        if response.status_code in (401, 403):
            wrong = "it does not accept the key in" if self._key else "set"
            return f"{wrong} {self._key_variable}"
        if response.has_redirect_location:  # not followed: the key would be sent to a URL that the user did not name
            return f"it redirects to {self._clean(response.headers['location'])}; name that URL"
        if response.status_code in _OF_THE_REQUEST:
            return "it refuses the request; its message says why"
        return "check the URL and the model's name" if self._model else "check the URL"

    def _reply_of(self, response: httpx.Response) -> str:
        try:
            message = find(response.json(), "error", "message") or response.text
        except ValueError:
            message = response.text
        return self._clean(str(message))[:300]

    def _clean(self, text: str) -> str:
        # Services quote the key that they received, and so would we.
        return text.replace(self._key, "…") if self._key else text


def find(value: Any, *path: str | int) -> Any:
    """Returns the value at `path` in JSON; None where the path does not exist."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def check_url(url: str, key_variable: str) -> None:
    """Raises SpecError where `url` is no URL of a service, or has a password in it, which a run directory would keep
    and show."""
    if "@" in url.partition(":")[2].lstrip("/").partition("/")[0]:
        raise SpecError(f"put no password into the URL of a model; its key belongs into {key_variable}")
    try:
        host = httpx.URL(url).host
    except httpx.InvalidURL as error:
        raise SpecError(f"{url}: no URL ({error}); expected http://host:8000/path") from error
    if not host:
        raise SpecError(f"{url}: a URL without a host; expected http://host:8000/path")


def _key(variable: str) -> str:
    """Returns the key from an environment variable, without the newline that files and shells often add; "" where there
    is none."""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):  # the HTTP library would quote it in its complaint
        raise SpecError(
            f"{variable} holds characters that no HTTP header can carry (control characters, or other than ASCII); "
            "set it to the key alone"
        )
    return key


def _retry_after(response: httpx.Response) -> float:
    try:
        return float(response.headers.get("retry-after", "0"))
    except ValueError:  # a date: rare, and the backoff does as well
        return 0.0
