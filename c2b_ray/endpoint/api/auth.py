"""Authentication: the key of a request, what it allows, and how many requests its tenant may send.

A handler calls `enter` first. The call runs in the handler's thread, because its queries of the ledger may block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastapi import Request
from fastapi.security import HTTPBearer

from c2b_ray.endpoint.api.context import Context, context_of
from c2b_ray.endpoint.api.problems import ProblemError
from c2b_ray.endpoint.ledger.keys import Key, Scope

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


def _unauthenticated(sent: bool) -> ProblemError:
    detail = (
        "the key is unknown, expired or revoked"
        if sent
        else "send a key in the header Authorization, by the scheme Bearer"
    )
    parameters = ', error="invalid_token"' if sent else ""
    return ProblemError(
        401, "not_authenticated", detail, headers={"WWW-Authenticate": f'Bearer realm="c2b-ray"{parameters}'}
    )
