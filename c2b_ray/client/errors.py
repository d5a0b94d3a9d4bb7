"""The errors of an endpoint's client, one class for each kind of failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from c2b_ray.errors import InputError, ServiceError


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
        listed = problem.get("errors")
        self.errors = tuple(
            FieldError(str(one.get("field", "")), str(one.get("message", "")))
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, dict)
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
