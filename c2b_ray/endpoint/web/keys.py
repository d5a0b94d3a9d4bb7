"""The page of keys, for admins: creates, rotates and revokes them. A new key's text is shown only once."""

from __future__ import annotations

from starlette.responses import Response

from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.ledger import keys, tenants
from c2b_ray.endpoint.ledger.keys import SCOPES, NewKey
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.visit import Visit, goto
from c2b_ray.errors import ConfigError, InputError

DAY = 86_400.0
_LONGEST = 6


def keys_page(visit: Visit) -> Response:
    return _shown(visit, None)


def create(visit: Visit) -> Response:
    of = visit.sent("tenant") or visit.tenant_id
    if visit.administered not in (None, of) or tenants.get(visit.context.db, of) is None:
        raise not_found("tenant")
    scopes = {scope for scope in SCOPES if visit.sent(f"scope_{scope}")}
    days = _number(visit, "days", None)
    seconds = None if days is None else days * DAY
    new = keys.create(visit.context.db, of, visit.sent("name"), scopes, seconds, visit.caller.actor)
    return _shown(visit, new, 201)


def rotate(visit: Visit) -> Response:
    hours = _number(visit, "hours", 24)
    try:
        new = keys.rotate(
            visit.context.db, visit.administered, visit.part("key_id"), (hours or 0) * 3600.0, visit.caller.actor
        )
    except ConfigError:
        raise
    except InputError as error:
        raise ProblemError(409, "works_no_more", str(error)) from error
    if new is None:
        raise not_found("key")
    visit.context.keys.forget()
    return _shown(visit, new, 201)


def revoke(visit: Visit) -> Response:
    if keys.revoke(visit.context.db, visit.administered, visit.part("key_id"), visit.caller.actor) is None:
        raise not_found("key")
    visit.context.keys.forget()
    return goto("/ui/keys")


def _shown(visit: Visit, new: NewKey | None, status: int = 200) -> Response:
    """Shows the page. `new`: a key whose text only this answer shows; no cookie and no URL contains it."""
    db = visit.context.db
    with db.reading() as tx:
        now = tx.now
    names = {tenant.id: tenant.name for tenant in tenants.every(db) if visit.administered in (None, tenant.id)}
    rows = [
        {"key": key, "works": key.revoked is None and (key.expires is None or key.expires > now)}
        for key in keys.listed(db, visit.administered)
    ]
    return shown(visit, "keys.html.j2", {
        "rows": rows, "new": new, "scopes": SCOPES, "tenants": names, "own": visit.caller.key.id,
        "tenant": visit.tenant_id,
    }, status)  # fmt: skip


def _number(visit: Visit, name: str, default: int | None) -> int | None:
    text = visit.sent(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST):
        raise ProblemError(422, "invalid", f"{name}: expected a whole number", [
            FieldError(name, "expected a whole number")
        ])  # fmt: skip
    return int(text)
