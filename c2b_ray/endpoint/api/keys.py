"""Routes of administration: keys, tenants, use, the audit log. Only operators see other tenants."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from c2b_ray.endpoint.api.context import Pages, enter, enter_operator
from c2b_ray.endpoint.api.envelope import Document, document
from c2b_ray.endpoint.api.jobs import Cursor, Limit
from c2b_ray.endpoint.api.models import (
    Answer,
    Json,
    KeyBody,
    KeyList,
    LogPage,
    NewKeyAnswer,
    NewKeyBody,
    NewTenantBody,
    RotateBody,
    SpendBody,
    TenantBody,
    TenantList,
    answers,
    body,
    errors,
    router,
)
from c2b_ray.endpoint.api.problems import ProblemError, not_found
from c2b_ray.endpoint.ledger import audit_log, quotas, tenants
from c2b_ray.endpoint.ledger.database import is_id
from c2b_ray.endpoint.ledger.tenants import Key
from c2b_ray.errors import ConfigError, InputError

routes = router("administration")
Many = Annotated[int, Query(ge=1, le=10_000, description="The most items of a page.")]
Day = Annotated[str | None, Query(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$", description="UTC.")]


class SpendList(Answer):
    items: list[SpendBody]
    next: str | None


@routes.get("/quotas", responses={200: {"description": "Each quota's limit and use."}})
def quotas_used(request: Request) -> Json:
    """Return the tenant's quotas and what it has used of them."""
    context, caller = enter(request, "read")
    return Json(quotas.limits_and_use(context.db, caller.tenant_id, context.config.quotas))


@routes.get("/admin/keys", responses=answers(KeyList))
def listed(request: Request, limit: Many = 1000, cursor: Cursor = None) -> Json:
    """List keys, without their secrets, in the order of their creation."""
    context, caller, tenant_id = enter_operator(request)
    pages = Pages(context.signer, limit, ("keys", caller.tenant_id, tenant_id))
    rows = tenants.list_keys(context.db, tenant_id, pages.after(cursor), limit + 1)
    return Json(pages.page(rows, _key, lambda last: [last.created, last.id]))


@routes.post("/admin/keys", status_code=201, responses={**answers(NewKeyAnswer, 201), **errors(415, 422)},
             openapi_extra=body(NewKeyBody))  # fmt: skip
def create(request: Request, sent: Annotated[Document, Depends(document)]) -> Json:
    """Create a key of this tenant; operators may create one of any tenant. The key's text is shown only once."""
    context, caller, tenant_id = enter_operator(request)
    request_body = sent.as_model(NewKeyBody)
    owner_id = request_body.tenant_id or caller.tenant_id
    if (
        (tenant_id is not None and owner_id != tenant_id)
        or not is_id(owner_id)
        or tenants.get(context.db, owner_id) is None
    ):
        raise not_found("tenant")
    new = tenants.create_key(
        context.db, owner_id, request_body.name, set(request_body.scopes), request_body.expires_in, caller.actor
    )
    return Json({**_key(new.key), "key": new.text}, 201)


@routes.delete("/admin/keys/{key_id}", responses=answers(KeyBody))
def revoke(request: Request, key_id: str) -> Json:
    """Revoke a key. Revoking it again has no effect."""
    context, caller, tenant_id = enter_operator(request)
    key = tenants.revoke_key(context.db, tenant_id, key_id, caller.actor)
    if key is None:
        raise not_found("key")
    context.keys.forget()
    return Json(_key(key))


@routes.post(
    "/admin/keys/{key_id}/rotate",
    status_code=201,
    responses={**answers(NewKeyAnswer, 201), **errors(409, 415, 422)},
    openapi_extra=body(RotateBody),
)
def rotate(request: Request, key_id: str, sent: Annotated[Document, Depends(document)]) -> Json:
    """Replace a key by a new one. The old key works for another `grace_seconds`."""
    context, caller, tenant_id = enter_operator(request)
    request_body = sent.as_model(RotateBody)
    old_key = tenants.get_key(context.db, tenant_id, key_id)
    if old_key is None:
        raise not_found("key")
    try:
        new = tenants.rotate_key(context.db, tenant_id, key_id, request_body.grace_seconds, caller.actor)
    except ConfigError:
        raise
    except InputError as error:
        raise ProblemError(409, "works_no_more", str(error)) from error
    assert new is not None
    context.keys.forget()
    return Json({**_key(new.key), "key": new.text}, 201)


@routes.get("/admin/tenants", responses=answers(TenantList))
def tenants_listed(request: Request, limit: Many = 1000, cursor: Cursor = None) -> Json:
    """List the key's tenant; for operators, every tenant, by name."""
    context, caller, tenant_id = enter_operator(request)
    pages = Pages(context.signer, limit, ("tenants", caller.tenant_id, tenant_id))
    position = pages.after(cursor)
    if tenant_id is None:
        rows = tenants.every(context.db, position, limit + 1)
    else:
        tenant = tenants.get(context.db, tenant_id)
        rows = [] if tenant is None else [tenant]
    return Json(pages.page(rows, asdict, lambda last: last.name))


@routes.post("/admin/tenants", status_code=201, responses={**answers(TenantBody, 201), **errors(409, 415, 422)},
             openapi_extra=body(NewTenantBody))  # fmt: skip
def tenant_created(request: Request, sent: Annotated[Document, Depends(document)]) -> Json:
    """Create a tenant. For operators."""
    context, caller, tenant_id = enter_operator(request)
    request_body = sent.as_model(NewTenantBody)
    if tenant_id is not None:
        raise ProblemError(403, "operators_only", "only operators can create tenants")
    values: dict[str, Any] = {"weight": request_body.weight, "quotas": request_body.quotas, "actor": caller.actor}
    try:
        tenant = tenants.create(context.db, request_body.name, **values)
    except tenants.ExistsError as error:
        raise ProblemError(409, "exists", str(error)) from error
    return Json(asdict(tenant), 201)


@routes.get("/admin/usage", responses={**answers(SpendList), **errors(422)})
def spend(
    request: Request, first_day: Day = None, last_day: Day = None, limit: Many = 1000, cursor: Cursor = None
) -> Json:
    """List the images and seconds of each model, by key and day; by default the last 30 days."""
    context, caller, tenant_id = enter_operator(request)
    pages = Pages(context.signer, limit, ("usage", caller.tenant_id, tenant_id, first_day, last_day))
    position = pages.after(cursor)
    if position is None:
        with context.db.reading() as tx:
            now = tx.now
        days, row_position = (first_day or quotas.day_of(now - 30 * quotas.DAY), last_day or quotas.day_of(now)), None
    else:  # the days of the first page, which midnight does not move
        days, row_position = position[:2], position[2:]
    rows = quotas.spend(context.db, tenant_id, *days, after=row_position, limit=limit + 1)
    return Json(pages.page(rows, asdict, lambda row: [*days, *quotas.position(row)]))


@routes.get("/admin/audit-log", responses={**answers(LogPage), **errors(422)})
def log(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Json:
    """List the audit log: who did what to what, latest first."""
    context, caller, tenant_id = enter_operator(request)
    context_parts = ("audit-log", caller.tenant_id, tenant_id)
    position = context.signer.open(cursor, *context_parts)
    entries = audit_log.page(context.db, tenant_id=tenant_id, before=position, limit=limit)
    following = context.signer.seal(entries[-1].seq, *context_parts) if len(entries) == limit else None
    names = ("seq", "at", "actor", "tenant_id", "action", "subject", "data", "hash")
    return Json({"items": [{name: getattr(entry, name) for name in names} for entry in entries], "next": following})


def _key(key: Key) -> dict[str, Any]:
    return {**asdict(key), "scopes": list(key.scopes)}
