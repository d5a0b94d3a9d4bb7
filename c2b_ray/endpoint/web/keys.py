"""The page of keys, for admins: creates, rotates and revokes them. A new key's text is shown only once."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.ledger import audit_log, keys, quotas, tenants
from c2b_ray.endpoint.ledger import quotas as usage
from c2b_ray.endpoint.ledger.keys import SCOPES, NewKey
from c2b_ray.endpoint.ledger.quotas import Spend
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest, goto
from c2b_ray.errors import ConfigError, InputError

DAY = 86_400.0
_LONGEST = 6


def keys_page(visit: PageRequest) -> Response:
    return _shown(visit, None)


def create(visit: PageRequest) -> Response:
    tenant_id = visit.sent("tenant") or visit.tenant_id
    if visit.administered not in (None, tenant_id) or tenants.get(visit.context.db, tenant_id) is None:
        raise not_found("tenant")
    scopes = {scope for scope in SCOPES if visit.sent(f"scope_{scope}")}
    days = _number(visit, "days", None)
    seconds = None if days is None else days * DAY
    new = keys.create(visit.context.db, tenant_id, visit.sent("name"), scopes, seconds, visit.caller.actor)
    return _shown(visit, new, 201)


def rotate(visit: PageRequest) -> Response:
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


def revoke(visit: PageRequest) -> Response:
    if keys.revoke(visit.context.db, visit.administered, visit.part("key_id"), visit.caller.actor) is None:
        raise not_found("key")
    visit.context.keys.forget()
    return goto("/ui/keys")


def _shown(visit: PageRequest, new: NewKey | None, status: int = 200) -> Response:
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


def _number(visit: PageRequest, name: str, default: int | None) -> int | None:
    text = visit.sent(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST):
        raise ProblemError(422, "invalid", f"{name}: expected a whole number", [
            FieldError(name, "expected a whole number")
        ])  # fmt: skip
    return int(text)


# Pages of quotas and use: the tenant's quotas, and the use of the visitor's key by model; for admins the use of
# every key, and the audit log.


_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
DAYS, PAGE = 30, 50


def usage_page(visit: PageRequest) -> Response:
    db, admin = visit.context.db, "admin" in visit.caller.key.scopes
    with db.reading() as tx:
        now = tx.now
    first, last = _day(visit, "first") or usage.day_of(now - DAYS * usage.DAY), _day(visit, "last") or usage.day_of(now)
    key = visit.caller.key
    if admin:
        rows = usage.spend(db, visit.administered, first, last)
        names = {key_row.id: key_row.name for key_row in keys.listed(db, visit.administered)}
    else:
        rows, names = usage.spend(db, key.tenant_id, first, last, key.id), {key.id: key.name}
    return shown(visit, "usage.html.j2", {
        "standing": quotas.limits_and_use(db, visit.tenant_id, visit.context.config.quotas), "admin": admin,
        "rows": _by_key_and_model(rows, names), "first": first, "last": last,
    })  # fmt: skip


def log_page(visit: PageRequest) -> Response:
    context_parts = ("audit-log", visit.tenant_id, visit.administered)
    position = visit.context.signer.open(visit.query("cursor") or None, *context_parts)
    entries = audit_log.page(visit.context.db, tenant_id=visit.administered, before=position, limit=PAGE)
    following = visit.context.signer.seal(entries[-1].seq, *context_parts) if len(entries) == PAGE else None
    return shown(visit, "log.html.j2", {"entries": entries, "next": following})


def _by_key_and_model(rows: list[Spend], names: dict[str, str]) -> list[dict[str, Any]]:
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for use in rows:
        row = sums.setdefault((use.key_id, use.model), {
            "key_id": use.key_id, "key": names.get(use.key_id, ""), "model": use.model, "images": 0, "seconds": 0.0,
            "days": 0,
        })  # fmt: skip
        row["images"] += use.images
        row["seconds"] += use.model_seconds
        row["days"] += 1
    return sorted(sums.values(), key=lambda row: -row["seconds"])


def _day(visit: PageRequest, name: str) -> str:
    text = visit.query(name)
    if text and not _DAY.fullmatch(text):
        raise ProblemError(422, "invalid", f"{name}: expected a day such as 2026-11-22", [
            FieldError(name, "expected YYYY-MM-DD")
        ])  # fmt: skip
    return text
