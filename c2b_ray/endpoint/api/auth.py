"""Authentication: the key of a request, what it allows, and how many requests its tenant may send.

A handler calls `enter` first. The call runs in the handler's thread, because its queries of the ledger may block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Security
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.responses import Response

from c2b_ray.endpoint.api.context import Context, context_of
from c2b_ray.endpoint.api.models import ProblemBody
from c2b_ray.endpoint.api.problems import MEDIA_TYPE, ProblemError
from c2b_ray.endpoint.ledger.keys import Key, Scope
from c2b_ray.text import finite

BEARER = HTTPBearer(
    auto_error=False, scheme_name="key", description="A key of a tenant: `Authorization: Bearer c2b_…`."
)
"""Only for the OpenAPI document: `enter` reads the header itself."""


@dataclass(frozen=True)
class Caller:
    """The sender of a request. `tenant_id`: the tenant whose data it may see."""

    key: Key
    tenant_id: str

    @property
    def actor(self) -> str:
        """The actor of entries in the audit log."""
        return self.key.id


def enter(request: Request, scope: Scope) -> tuple[Context, Caller]:
    """Checks the key of a request and returns who calls.

    Raises 401 without a working key, 403 if the key lacks the scope, and 429 if the tenant sends too many requests or
    the address too many wrong keys.
    """
    context = context_of(request)
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    key = verified(request, context, text.strip()) if scheme.lower() == "bearer" else None
    if key is None:
        raise _unauthenticated(bool(text))
    return context, admitted(request, context, key, scope)


def verified(request: Request, context: Context, text: str) -> Key | None:
    """Returns the key of a text; None for a wrong one. Raises 429 after too many wrong ones."""
    key = context.keys.verify(text)
    if key is None:
        context.wrong_keys.count(request.client.host if request.client else None, text)
    return key


def admitted(request: Request, context: Context, key: Key, scope: Scope) -> Caller:
    """Does what `enter` does for a key that was verified otherwise, such as by a page's session."""
    request.scope["state"]["key_id"] = key.id
    _throttle(request, context, key.tenant_id)
    if not key.allows(scope):
        detail = f"this key may not {scope}: it has the scopes {', '.join(key.scopes)}"
        raise ProblemError(403, "missing_scope", detail)
    return Caller(key, key.tenant_id)


def enter_operator(request: Request) -> tuple[Context, Caller, str | None]:
    """Does what `enter` does with the scope admin. The third value is the tenant that the caller administers; None for
    operators, who administer all."""
    context, caller = enter(request, "admin")
    return context, caller, None if context.remembered.operates(caller.tenant_id) else caller.tenant_id


def enter_artifact(request: Request) -> tuple[Context, str]:
    """Returns whose artifact may be read: by a key with the scope read, or without a key by a signed URL."""
    signature = request.query_params.get("signature")
    if signature is None or "authorization" in request.headers:
        context, caller = enter(request, "read")
        return context, caller.tenant_id
    context = context_of(request)
    tenant_id = context.links.tenant(request.scope["path"], signature)
    if tenant_id is None:
        detail = (
            "the signature does not fit this URL or has expired; get a new URL with a key, from the audit's `signed`"
        )
        raise ProblemError(401, "not_authenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="c2b-ray"'})
    _throttle(request, context, tenant_id)
    return context, tenant_id


def _throttle(request: Request, context: Context, tenant_id: str) -> None:
    """Raises 429 if the tenant sends too many requests."""
    state = request.scope["state"]
    state["tenant_id"] = tenant_id
    limits = context.remembered.limits(tenant_id)
    allowance = context.throttle.take(f"requests:{tenant_id}", limits.requests_per_second, limits.burst)
    state["headers"] |= {
        "RateLimit-Limit": str(allowance.limit),
        "RateLimit-Remaining": str(allowance.remaining),
        "RateLimit-Reset": str(max(0, math.ceil(allowance.reset))),
    }


def _unauthenticated(key_was_sent: bool) -> ProblemError:
    detail = (
        "the key is unknown, expired or revoked"
        if key_was_sent
        else "send a key in the header Authorization, by the scheme Bearer"
    )
    parameters = ', error="invalid_token"' if key_was_sent else ""
    return ProblemError(
        401, "not_authenticated", detail, headers={"WWW-Authenticate": f'Bearer realm="c2b-ray"{parameters}'}
    )


# Responses of routes: fast JSON, and, for the OpenAPI document, the errors that a route may return.


_WORDS = {
    400: "The body or a cursor is malformed.",
    401: "There is no key, or it no longer works.",
    403: "The key lacks the scope.",
    404: "It does not exist, or belongs to another tenant.",
    405: "The path has other methods.",
    409: "The state of the object does not allow this.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "A field is wrong; `errors` names it.",
    429: "A quota is used up; Retry-After says when to try again.",
    503: "The ledger or a store does not answer; Retry-After says when to try again.",
}
_RETRY = {"Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "string"}}}
_ID = {"X-Request-ID": {"description": "In the endpoint's log.", "required": True, "schema": {"type": "string"}}}
_COMMON = (400, 401, 403, 404, 413, 429, 503)


class Json(Response):
    """A dict as JSON, without validation of each field: tests check that answers match the models."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def finite_json(content: Any, status: int = 200) -> Json:
    """Returns JSON with null for NaN and infinity, and text for values that JSON does not have."""
    return Json(json.loads(json.dumps(finite(content), default=str)), status)


def router(tag: str) -> APIRouter:
    """Returns the router of routes that need a key."""
    return APIRouter(prefix="/v1", tags=[tag], dependencies=[Security(BEARER)], responses=errors(*_COMMON))


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the errors of a route for `responses=`."""
    return {
        status: {
            "description": _WORDS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}}},
            "headers": {**_ID, **(_RETRY if status in (429, 503) else {})},
        }
        for status in statuses
    }


def answers(model: type[BaseModel], status: int = 200, description: str = "") -> dict[int | str, dict[str, Any]]:
    return {status: {"model": model, "description": description or (model.__doc__ or model.__name__).strip()}}


def files(media_types: Mapping[str, str], description: str) -> dict[int | str, dict[str, Any]]:
    """Returns the `responses=` of a route that answers with one of several media types: media type → `type` of its
    schema."""
    content = {name: {"schema": {"type": kind}} if kind else {} for name, kind in media_types.items()}
    return {200: {"description": description, "content": content}}


def body(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the body of a route for `openapi_extra=`, because routes read documents themselves."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    examples = schema.pop("examples", [])
    content = {"schema": schema, **({"examples": {"example": {"value": examples[0]}}} if examples else {})}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}
