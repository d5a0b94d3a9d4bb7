"""Errors as clients read them: RFC 9457 problems with a code, the fields that are wrong, and the request's id.

It maps the project's errors to HTTP, and removes from every text what must not leave the machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from c2b_ray.endpoint import counters
from c2b_ray.endpoint.ledger.database import DatabaseDownError, SchemaError
from c2b_ray.endpoint.ledger.quotas import QuotaDenial
from c2b_ray.endpoint.ledger.tables import IdempotencyConflictError
from c2b_ray.errors import C2BError, ConfigError, InputError, RunError, ServiceError, SourceError, StorageError
from c2b_ray.report.redact import clean
from c2b_ray.text import visible

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
_LONGEST = 2000
_CODES = {400: "bad_request", 401: "not_authenticated", 404: "not_found", 405: "method_not_allowed"}


@dataclass(frozen=True)
class FieldError:
    """An error of one field. `field`: its dotted path, such as config.images.index."""

    field: str
    message: str


@dataclass
class ProblemError(C2BError):
    """An error that becomes the answer to a request."""

    status: int
    code: str
    detail: str
    errors: Sequence[FieldError] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.detail)


def not_found(kind: str) -> ProblemError:
    """Returns the same 404 for what does not exist and for what belongs to another tenant."""
    return ProblemError(404, "not_found", f"there is no such {kind}")


def body_of(problem: ProblemError, request_id: str) -> dict[str, Any]:
    """Returns the JSON of a problem."""
    return {
        "type": f"urn:c2b-ray:problem:{problem.code}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": _message(problem.detail),
        "code": problem.code,
        "errors": [{"field": visible(item.field)[:300], "message": _message(item.message)} for item in problem.errors],
        "request_id": request_id,
    }


def encoded(problem: ProblemError, request_id: str) -> bytes:
    """Returns the body of an answer, and counts the problem by its code."""
    counters.refused(problem.code)
    # ASCII, so that lone surrogates from a client cannot break the answer.
    return json.dumps(body_of(problem, request_id)).encode()


def problem_of(error: Exception) -> ProblemError | None:
    """Returns the problem of an error; None for an unexpected error."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "refused")
        # The framework's own words only repeat the title.
        is_bare = error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase
        detail = "there is nothing at this address" if is_bare else str(error.detail)
        return ProblemError(error.status_code, code, detail, headers=dict(error.headers or {}))
    for kind, translate in _TRANSLATIONS.items():
        if isinstance(error, kind):
            return translate(error)
    return None


def handle(
    app: FastAPI, methods: Callable[[str], Iterable[str]], page: Callable[[Request, ProblemError], Response]
) -> None:
    """Answers errors of routes as problems; the envelope answers the others. `methods`: returns the methods of a
    path. `page`: renders a problem for a person who typed an address or followed a link."""

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem is None:
            raise error
        if (
            problem.status == HTTPStatus.METHOD_NOT_ALLOWED
        ):  # the router names only the methods of the first of several routes
            problem.headers = {"Allow": ", ".join(sorted(methods(request.scope["path"])))}
        if is_of_a_browser(request.headers):
            counters.refused(problem.code)
            return page(request, problem)
        content = encoded(problem, request.scope["state"]["request_id"])
        return Response(content, problem.status, headers=dict(problem.headers), media_type=MEDIA_TYPE)

    for kind in (C2BError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer)


def is_of_a_browser(headers: Mapping[str, str]) -> bool:
    """Tells whether a person reads the answer. Clients may want HTML, too, but send a key."""
    return "text/html" in headers.get("accept", "") and "authorization" not in headers


def retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def _message(text: str) -> str:
    return visible(clean(text.encode(errors="replace").decode()))[:_LONGEST]


def _of_validation(error: RequestValidationError) -> ProblemError:
    """Returns the problem of a query or a header. Fields are named without "query" or "header": {"field": "limit"}."""
    errors = [FieldError(".".join(map(str, item["loc"][1:])), str(item["msg"])) for item in error.errors()]
    first = f"{errors[0].field}: {errors[0].message}" if errors else "the request is wrong"
    return ProblemError(422, "invalid", first, errors)


def _of_config(error: ConfigError) -> ProblemError:
    message = error.reason("request")
    return ProblemError(
        422, "invalid", error.worded("request"), [FieldError(name, message) for name in error.fields("request")]
    )


def _of(status: int, code: str) -> Callable[[C2BError], ProblemError]:
    return lambda error: ProblemError(status, code, error.worded("request"))


def _of_quota(error: QuotaDenial) -> ProblemError:
    limits = {
        "RateLimit-Limit": str(int(error.limit)),
        "RateLimit-Remaining": str(int(error.remaining)),
        "RateLimit-Reset": str(max(1, math.ceil(error.retry_after))),
    }
    code = "too_many_requests" if error.quota == "requests" else "quota_exceeded"
    return ProblemError(
        429, code, str(error), [FieldError(error.quota, str(error))], {**limits, **retry_after(error.retry_after)}
    )


def _of_conflict(error: IdempotencyConflictError) -> ProblemError:
    detail = f"{error}: it created {error.job_id}; send another key, or the same body as before"
    return ProblemError(422, "idempotency_conflict", detail, [FieldError("Idempotency-Key", detail)])


def _down(code: str, detail: str, seconds: float = RETRY_SECONDS) -> ProblemError:
    return ProblemError(503, code, detail, headers=retry_after(seconds))


_TRANSLATIONS: dict[type[C2BError], Callable[[Any], ProblemError]] = {
    DatabaseDownError: lambda error: _down(
        "database_down",
        f"the ledger {'cannot be written' if error.readable else 'does not answer'}; try again",
        error.retry_after,
    ),
    SchemaError: lambda error: _down("not_migrated", str(error)),
    QuotaDenial: _of_quota,
    IdempotencyConflictError: _of_conflict,
    ConfigError: _of_config,
    RunError: _of(409, "conflict"),
    SourceError: _of(404, "not_found"),
    InputError: _of(422, "invalid"),
    StorageError: lambda error: _down("storage_down", error.worded("request")),
    ServiceError: lambda error: _down("service_down", str(error)),
}
"""The first match counts, so subclasses stand before their base classes."""
