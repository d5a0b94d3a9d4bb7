"""Uploads of tenants: rows about files that are stored under the SHA-256 of their content. It opens no file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, cast, delete, exists, or_, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import audit_log, quotas, tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, record
from c2b_ray.endpoint.ledger.tables import ENDED

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

    The caller holds `upload_lock`, and has stored the file. Raises QuotaDenial if the tenant may not store that much.
    """
    insert = sqlite.insert(tables.uploads) if db.is_sqlite else postgresql.insert(tables.uploads)
    with db.transaction() as tx:
        limits = quotas.locked_limits(tx, tenant_id, defaults)
        existing = tx.execute(select(*COLUMNS).where(*_here(tenant_id, new.sha256))).first()
        if existing is not None:
            return record(Upload, existing), False
        quotas.check_storage(quotas.jobs_and_bytes(tx, tenant_id)[1], limits, new.bytes)
        values = vars(new) | {"tenant_id": tenant_id, "created": tx.now}
        row = tx.execute(insert.values(values).returning(*COLUMNS)).one()
        data = {"kind": new.kind, "bytes": new.bytes}
        audit_log.append(tx, audit_log.Entry(key_id or "operator", "upload.add", tenant_id, new.sha256, data))
    return record(Upload, row), True


def check_room(db: Database, tenant_id: str, size: int, defaults: Quotas) -> None:
    """Raises QuotaDenial if the tenant may not store `size` bytes. Called before a body is read."""
    with db.transaction() as tx:
        limits = quotas.locked_limits(tx, tenant_id, defaults)
        quotas.check_storage(quotas.jobs_and_bytes(tx, tenant_id)[1], limits, size)


def upload_lock(db: Database, tenant_id: str, sha256: str) -> AbstractContextManager[None]:
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
    """Deletes the row; returns whether it existed. The caller holds `upload_lock`, and deletes the file afterwards."""
    if not _SHA256.fullmatch(sha256):
        return False
    with db.transaction() as tx:
        removed = bool(tx.execute(delete(tables.uploads).where(*_here(tenant_id, sha256))).rowcount)
        if removed:
            audit_log.append(tx, audit_log.Entry(actor, "upload.remove", tenant_id, sha256))
    return removed


def _here(tenant_id: str, sha256: str) -> tuple[Any, Any]:
    return _uploads.tenant_id == tenant_id, _uploads.sha256 == sha256


# Queries for retention: which rows are old, and what was deleted. This module deletes nothing.


_jobs, _uploads_of_aged, _log = tables.jobs.c, tables.uploads.c, tables.audit_log.c
_open = tables.jobs.alias("other").c
_AT_ONCE = 500


def _names(job_id: ColumnElement[str] | str) -> ColumnElement[bool]:
    """Returns the condition that the job `_open` names the run of `job_id` in its config, or is about to move it."""
    texts = cast(_open.config, Text), cast(_open.resolved, Text), _open.run_path
    return or_(*(text.contains(job_id) for text in texts))


def ended_before(db: Database, cutoff: float, limit: int) -> list[tuple[str, str]]:
    """Returns (tenant id, job id) of jobs that ended before this time and are not deleted, oldest first. Jobs whose run
    another job needs, which waits or runs, are left out."""
    is_read = exists().where(_open.tenant_id == _jobs.tenant_id, tables.OPEN, _names(_jobs.id))
    conditions = _jobs.state.in_(ENDED), _jobs.ended < cutoff, _jobs.deleted.is_(None), ~is_read
    with db.reading() as tx:
        rows = tx.execute(select(_jobs.tenant_id, _jobs.id).where(*conditions).order_by(_jobs.ended).limit(limit))
        return [(row.tenant_id, row.id) for row in rows]


def reader_of(tx: Transaction, tenant_id: str, job_id: str) -> str | None:
    """Returns the id of a job of the tenant that waits or runs and reads the run of `job_id`; None if there is none."""
    conditions = _open.tenant_id == tenant_id, tables.OPEN, _open.id != job_id, _names(job_id)
    reader: str | None = tx.scalar(select(_open.id).where(*conditions).limit(1))
    return reader


def unused_uploads(db: Database, cutoff: float) -> list[Upload]:
    """Returns uploads created before this time that no current job uses.

    A job counts as current if it has not ended, or ended at this time or later, and is not deleted.
    """
    is_named = cast(_jobs.config, Text).contains(_uploads_of_aged.sha256) | cast(_jobs.resolved, Text).contains(
        _uploads_of_aged.sha256
    )
    lately = or_(_jobs.ended.is_(None), _jobs.ended >= cutoff)
    is_used = exists().where(
        and_(_jobs.tenant_id == _uploads_of_aged.tenant_id, lately, _jobs.deleted.is_(None), is_named)
    )
    with db.reading() as tx:
        return [
            record(Upload, row)
            for row in tx.execute(select(*COLUMNS).where(_uploads_of_aged.created < cutoff, ~is_used))
        ]


def deleted_jobs(db: Database, ids: Sequence[str]) -> list[str]:
    """Returns the ids whose jobs were deleted. Ids that the ledger does not know are left out."""
    deleted: list[str] = []
    with db.reading() as tx:
        for start in range(0, len(ids), _AT_ONCE):
            in_batch = _jobs.id.in_(ids[start : start + _AT_ONCE])
            deleted += tx.execute(select(_jobs.id).where(in_batch, _jobs.deleted.is_not(None))).scalars()
    return deleted


def removed_uploads(db: Database, tenant_id: str, hashes: Sequence[str]) -> list[str]:
    """Returns the hashes that the tenant uploaded and later removed, according to the audit log."""
    removed_hashes: list[str] = []
    with db.reading() as tx:
        for start in range(0, len(hashes), _AT_ONCE):
            batch = hashes[start : start + _AT_ONCE]
            removed = _log.tenant_id == tenant_id, _log.action == "upload.remove", _log.subject.in_(batch)
            present = select(_uploads_of_aged.sha256).where(
                _uploads_of_aged.tenant_id == tenant_id, _uploads_of_aged.sha256.in_(batch)
            )
            still_there = set(tx.execute(present).scalars())
            removed_hashes += sorted(set(tx.execute(select(_log.subject).where(*removed)).scalars()) - still_there)
    return removed_hashes


def tenant_was_removed(db: Database, tenant_id: str) -> bool:
    """Returns whether the audit log says that the tenant was removed.

    The absence of its row is no proof: the ledger may be a different one.
    """
    conditions = _log.tenant_id == tenant_id, _log.action == "tenant.remove"
    with db.reading() as tx:
        tenant = tx.scalar(select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id))
        return tenant is None and tx.scalar(select(_log.seq).where(*conditions).limit(1)) is not None
