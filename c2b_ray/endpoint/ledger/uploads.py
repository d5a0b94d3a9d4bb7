"""Uploads of tenants: rows about files that are stored under the SHA-256 of their content. It opens no file."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import delete, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import audit_log, quotas, tables
from c2b_ray.endpoint.ledger.database import Database, record

_uploads = tables.uploads.c
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Upload:
    """An upload. `kind`: the type of file, such as onnx, safetensors or image. `meta`: what was read from it, as
    JSON."""

    tenant_id: str
    sha256: str
    kind: str
    bytes: int
    name: str | None
    meta: dict[str, Any]
    created: float


COLUMNS = [_uploads[field.name] for field in fields(Upload)]


@dataclass(frozen=True)
class NewUpload:
    sha256: str
    kind: str
    bytes: int
    name: str | None
    meta: dict[str, Any]


def add(db: Database, tenant_id: str, key_id: str | None, new: NewUpload, defaults: Quotas) -> tuple[Upload, bool]:
    """Adds an upload; returns it and whether it is new. The same content again returns the earlier upload.

    The caller holds `alone`, and has stored the file. Raises quotas.Denied if the tenant may not store that much.
    """
    insert = sqlite.insert(tables.uploads) if db.is_sqlite else postgresql.insert(tables.uploads)
    with db.transaction() as tx:
        limits = quotas.locked_limits(tx, tenant_id, defaults)
        before = tx.execute(select(*COLUMNS).where(*_here(tenant_id, new.sha256))).first()
        if before is not None:
            return record(Upload, before), False
        quotas.check_storage(quotas.held(tx, tenant_id)[1], limits, new.bytes)
        values = vars(new) | {"tenant_id": tenant_id, "created": tx.now}
        row = tx.execute(insert.values(values).returning(*COLUMNS)).one()
        data = {"kind": new.kind, "bytes": new.bytes}
        audit_log.append(tx, audit_log.Entry(key_id or "operator", "upload.add", tenant_id, new.sha256, data))
    return record(Upload, row), True


def check_room(db: Database, tenant_id: str, more: int, defaults: Quotas) -> None:
    """Raises quotas.Denied if the tenant may not store `more` bytes. Called before a body is read."""
    with db.transaction() as tx:
        limits = quotas.locked_limits(tx, tenant_id, defaults)
        quotas.check_storage(quotas.held(tx, tenant_id)[1], limits, more)


def alone(db: Database, tenant_id: str, sha256: str) -> AbstractContextManager[None]:
    """Lets one block at a time change this upload, its row and its file. Raises DatabaseDownError if its turn does not
    come."""
    return db.alone(f"upload {sha256} of {tenant_id}")


def get(db: Database, tenant_id: str, sha256: str) -> Upload | None:
    """Returns an upload; None if the tenant has no such upload."""
    if not _SHA256.fullmatch(sha256):
        return None
    with db.reading() as tx:
        row = tx.execute(select(*COLUMNS).where(*_here(tenant_id, sha256))).first()
    return None if row is None else record(Upload, row)


def page(
    db: Database, tenant_id: str, cursor: tuple[float, str] | None = None, limit: int = 50
) -> tuple[list[Upload], tuple[float, str] | None]:
    """Returns a page of uploads, latest first, and the cursor of the next page; None at the end."""
    statement = select(*COLUMNS).where(_uploads.tenant_id == tenant_id)
    if cursor is not None:
        statement = statement.where(tuple_(_uploads.created, _uploads.sha256) < tuple_(*cursor))
    with db.reading() as tx:
        ordered = statement.order_by(_uploads.created.desc(), _uploads.sha256.desc()).limit(limit + 1)
        rows = tx.execute(ordered).all()
    items = [record(Upload, row) for row in rows[:limit]]
    return items, ((items[-1].created, items[-1].sha256) if len(rows) > limit else None)


def remove(db: Database, tenant_id: str, sha256: str, actor: str = "operator") -> bool:
    """Deletes the row; returns whether it existed. The caller holds `alone`, and deletes the file afterwards."""
    if not _SHA256.fullmatch(sha256):
        return False
    with db.transaction() as tx:
        gone = bool(tx.execute(delete(tables.uploads).where(*_here(tenant_id, sha256))).rowcount)
        if gone:
            audit_log.append(tx, audit_log.Entry(actor, "upload.remove", tenant_id, sha256))
    return gone


def _here(tenant_id: str, sha256: str) -> tuple[Any, Any]:
    return _uploads.tenant_id == tenant_id, _uploads.sha256 == sha256
