"""A tenant's pages: signing in and out, keys, use and quotas, the audit log, and uploads."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from c2b_ray.endpoint.api.context import verified
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.api.uploads import CHUNK, kept, refusals, removed, upload_body
from c2b_ray.endpoint.ledger import audit_log, quotas, tenants, uploads
from c2b_ray.endpoint.ledger.quotas import Spend
from c2b_ray.endpoint.ledger.tenants import SCOPES, NewKey
from c2b_ray.endpoint.policy.uploads import KINDS, UploadReceiver
from c2b_ray.endpoint.web import rendering
from c2b_ray.endpoint.web.rendering import PageRequest, goto, shown
from c2b_ray.errors import ConfigError, InputError

HOME = f"{rendering.PAGES}/"
_OURS = re.compile(r"/ui/[A-Za-z0-9_.~/-]*(\?[A-Za-z0-9_.~%&=+:,/-]*)?")


def sign_in_form(visit: PageRequest) -> Response:
    """Shows the form to paste a key."""
    if visit.key is not None:
        return goto(_after(visit.query("next")))
    return shown(visit, "signin.html.j2", {"next": _after(visit.query("next")), "wrong": ""})


def sign_in(visit: PageRequest) -> Response:
    """Starts a new session and ends the old one, so that knowing the old one is of no use."""
    next_page = _after(visit.sent("next"))
    key = verified(visit.request, visit.context, visit.sent("key"))
    if key is None:
        wrong = "This key is unknown, expired or revoked. Check that you pasted all of it: c2b_… with 45 characters."
        return shown(visit, "signin.html.j2", {"next": next_page, "wrong": wrong}, 401)
    if not key.allows("read"):
        raise ProblemError(
            403, "missing_scope", "this key lacks the scope read, which these pages need; use another key"
        )
    _end_session(visit)
    response = goto(next_page)
    rendering.keep_session(response, visit.context, rendering.begin_session(key.id))
    return response


def sign_out(visit: PageRequest) -> Response:
    """Ends the session. Copies of its cookie stop working at once."""
    _end_session(visit)
    response = goto(f"{rendering.PAGES}/signin")
    response.delete_cookie(rendering.COOKIE, path=rendering.PAGES)
    return response


def _end_session(visit: PageRequest) -> None:
    if visit.key is not None:
        tenants.end_session(visit.context.db, visit.session.nonce, visit.session.begun + rendering.SESSION_SECONDS)


def _after(path: str) -> str:
    """Returns where to go next: one of these pages, never another site."""
    return path if _OURS.fullmatch(path) else HOME


# The page of keys, for admins: creates, rotates and revokes them. A new key's text is shown only once.


DAY_S = 86_400.0
_LONGEST = 6


def keys_page(visit: PageRequest) -> Response:
    return _keys_shown(visit, None)


def create_key(visit: PageRequest) -> Response:
    tenant_id = visit.sent("tenant") or visit.tenant_id
    if visit.administered not in (None, tenant_id) or tenants.get(visit.context.db, tenant_id) is None:
        raise not_found("tenant")
    scopes = {scope for scope in SCOPES if visit.sent(f"scope_{scope}")}
    days = _number(visit, "days", None)
    seconds = None if days is None else days * DAY_S
    new = tenants.create_key(visit.context.db, tenant_id, visit.sent("name"), scopes, seconds, visit.caller.actor)
    return _keys_shown(visit, new, 201)


def rotate_key(visit: PageRequest) -> Response:
    hours = _number(visit, "hours", 24)
    try:
        new = tenants.rotate_key(
            visit.context.db, visit.administered, visit.part("key_id"), (hours or 0) * 3600.0, visit.caller.actor
        )
    except ConfigError:
        raise
    except InputError as error:
        raise ProblemError(409, "works_no_more", str(error)) from error
    if new is None:
        raise not_found("key")
    visit.context.keys.forget()
    return _keys_shown(visit, new, 201)


def revoke_key(visit: PageRequest) -> Response:
    if tenants.revoke_key(visit.context.db, visit.administered, visit.part("key_id"), visit.caller.actor) is None:
        raise not_found("key")
    visit.context.keys.forget()
    return goto("/ui/keys")


def _keys_shown(visit: PageRequest, new: NewKey | None, status: int = 200) -> Response:
    """Shows the page. `new`: a key whose text only this answer shows; no cookie and no URL contains it."""
    db = visit.context.db
    with db.reading() as tx:
        now = tx.now
    names = {tenant.id: tenant.name for tenant in tenants.every(db) if visit.administered in (None, tenant.id)}
    rows = [
        {"key": key, "works": key.revoked is None and (key.expires is None or key.expires > now)}
        for key in tenants.list_keys(db, visit.administered)
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
PAGE = 50
DAYS = 30


def usage_page(visit: PageRequest) -> Response:
    db, admin = visit.context.db, "admin" in visit.caller.key.scopes
    with db.reading() as tx:
        now = tx.now
    first, last = (
        _day(visit, "first") or quotas.day_of(now - DAYS * quotas.DAY),
        _day(visit, "last") or quotas.day_of(now),
    )
    key = visit.caller.key
    if admin:
        rows = quotas.spend(db, visit.administered, first, last)
        names = {key_row.id: key_row.name for key_row in tenants.list_keys(db, visit.administered)}
    else:
        rows, names = quotas.spend(db, key.tenant_id, first, last, key.id), {key.id: key.name}
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


# The page of a tenant's uploads: lists them, adds one, and deletes one.


def uploads_page(visit: PageRequest) -> Response:
    context_parts = ("uploads", visit.tenant_id)
    position = visit.context.signer.open(visit.query("cursor") or None, *context_parts)
    items, next_position = uploads.page(visit.context.db, visit.tenant_id, position, PAGE)
    return shown(visit, "uploads.html.j2", {
        "uploads": [upload_body(upload) for upload in items], "kinds": KINDS,
        "next": visit.context.signer.following(next_position, *context_parts),
        "may_submit": "submit" in visit.caller.key.scopes, "largest": visit.context.config.policy.upload_bytes,
    })  # fmt: skip


def add_upload(visit: PageRequest) -> Response:
    """Stores a file of a form, with the same checks as the API."""
    file, kind = visit.uploaded("file"), visit.sent("kind")
    if file is None:
        raise ProblemError(422, "invalid", "choose a file", [FieldError("file", "no file was chosen")])
    upload_kind = next((candidate for candidate in KINDS if candidate == kind), None)
    if upload_kind is None:
        raise ProblemError(422, "invalid", f"expected one of {', '.join(KINDS)}", [FieldError("kind", "is unknown")])
    context, caller = visit.context, visit.caller
    uploads.check_room(context.db, caller.tenant_id, file.size or 1, context.config.quotas)
    name = "".join(character for character in file.filename or "" if character.isprintable())[:200] or None
    with (
        context.upload_slots.hold(caller.tenant_id),
        refusals(),
        UploadReceiver(context.tenant_root(caller.tenant_id), context.config.policy) as receiver,
    ):
        while part := file.file.read(CHUNK):
            receiver.write(part)
        kept(context, caller, (receiver, upload_kind, None, name))
    return goto("/ui/uploads")


def remove_upload(visit: PageRequest) -> Response:
    removed(visit.context, visit.caller, visit.part("sha256"))
    return goto("/ui/uploads")
