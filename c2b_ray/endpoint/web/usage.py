"""Pages of quotas and use: the tenant's quotas, and the use of the visitor's key by model; for admins the use of every
key, and the audit log."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.endpoint.ledger import audit_log, keys, quotas, usage
from c2b_ray.endpoint.ledger.usage import Spend
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.visit import Visit

_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
DAYS, PAGE = 30, 50


def usage_page(visit: Visit) -> Response:
    db, admin = visit.context.db, "admin" in visit.caller.key.scopes
    with db.reading() as tx:
        now = tx.now
    first, last = _day(visit, "first") or usage.day_of(now - DAYS * usage.DAY), _day(visit, "last") or usage.day_of(now)
    key = visit.caller.key
    if admin:
        spent = usage.spend(db, visit.administered, first, last)
        names = {one.id: one.name for one in keys.listed(db, visit.administered)}
    else:
        spent, names = usage.spend(db, key.tenant_id, first, last, key.id), {key.id: key.name}
    return shown(visit, "usage.html.j2", {
        "standing": quotas.limits_and_use(db, visit.tenant_id, visit.context.config.quotas), "admin": admin,
        "rows": _by_key_and_model(spent, names), "first": first, "last": last,
    })  # fmt: skip


def log_page(visit: Visit) -> Response:
    about = ("audit-log", visit.tenant_id, visit.administered)
    before = visit.context.signer.open(visit.query("cursor") or None, *about)
    entries = audit_log.page(visit.context.db, tenant_id=visit.administered, before=before, limit=PAGE)
    following = visit.context.signer.seal(entries[-1].seq, *about) if len(entries) == PAGE else None
    return shown(visit, "log.html.j2", {"entries": entries, "next": following})


def _by_key_and_model(spent: list[Spend], names: dict[str, str]) -> list[dict[str, Any]]:
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for one in spent:
        row = sums.setdefault((one.key_id, one.model), {
            "key_id": one.key_id, "key": names.get(one.key_id, ""), "model": one.model, "images": 0, "seconds": 0.0,
            "days": 0,
        })  # fmt: skip
        row["images"] += one.images
        row["seconds"] += one.model_seconds
        row["days"] += 1
    return sorted(sums.values(), key=lambda row: -row["seconds"])


def _day(visit: Visit, name: str) -> str:
    text = visit.query(name)
    if text and not _DAY.fullmatch(text):
        raise ProblemError(422, "invalid", f"{name}: expected a day such as 2026-11-22", [
            FieldError(name, "expected YYYY-MM-DD")
        ])  # fmt: skip
    return text
