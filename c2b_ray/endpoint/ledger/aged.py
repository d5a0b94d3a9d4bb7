"""Queries for retention: which rows are old, and what was deleted. This module deletes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Text, and_, cast, exists, or_, select

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, Transaction, record
from c2b_ray.endpoint.ledger.job import ENDED
from c2b_ray.endpoint.ledger.uploads import COLUMNS, Upload

_jobs, _uploads, _log = tables.jobs.c, tables.uploads.c, tables.audit_log.c
_open = tables.jobs.alias("other").c
_AT_ONCE = 500


def _names(job_id: ColumnElement[str] | str) -> ColumnElement[bool]:
    """Returns the condition that the job `_open` names the run of `job_id` in its config, or is about to move it."""
    texts = cast(_open.config, Text), cast(_open.resolved, Text), _open.run_path
    return or_(*(text.contains(job_id) for text in texts))


def ended_before(db: Database, before: float, limit: int) -> list[tuple[str, str]]:
    """Returns (tenant id, job id) of jobs that ended before this time and are not deleted, oldest first. Jobs whose run
    another job needs, which waits or runs, are left out."""
    needed = exists().where(_open.tenant_id == _jobs.tenant_id, tables.OPEN, _names(_jobs.id))
    where = _jobs.state.in_(ENDED), _jobs.ended < before, _jobs.deleted.is_(None), ~needed
    with db.reading() as tx:
        rows = tx.execute(select(_jobs.tenant_id, _jobs.id).where(*where).order_by(_jobs.ended).limit(limit))
        return [(row.tenant_id, row.id) for row in rows]


def reader_of(tx: Transaction, tenant_id: str, job_id: str) -> str | None:
    """Returns the id of a job of the tenant that waits or runs and reads the run of `job_id`; None if there is none."""
    where = _open.tenant_id == tenant_id, tables.OPEN, _open.id != job_id, _names(job_id)
    reader: str | None = tx.scalar(select(_open.id).where(*where).limit(1))
    return reader


def unused_uploads(db: Database, before: float) -> list[Upload]:
    """Returns uploads created before this time that no current job uses.

    A job counts as current if it has not ended, or ended at this time or later, and is not deleted.
    """
    named = cast(_jobs.config, Text).contains(_uploads.sha256) | cast(_jobs.resolved, Text).contains(_uploads.sha256)
    lately = or_(_jobs.ended.is_(None), _jobs.ended >= before)
    used = exists().where(and_(_jobs.tenant_id == _uploads.tenant_id, lately, _jobs.deleted.is_(None), named))
    with db.reading() as tx:
        return [record(Upload, row) for row in tx.execute(select(*COLUMNS).where(_uploads.created < before, ~used))]


def deleted_jobs(db: Database, ids: Sequence[str]) -> list[str]:
    """Returns the ids whose jobs were deleted. Ids that the ledger does not know are left out."""
    gone: list[str] = []
    with db.reading() as tx:
        for start in range(0, len(ids), _AT_ONCE):
            some = _jobs.id.in_(ids[start : start + _AT_ONCE])
            gone += tx.execute(select(_jobs.id).where(some, _jobs.deleted.is_not(None))).scalars()
    return gone


def removed_uploads(db: Database, tenant_id: str, hashes: Sequence[str]) -> list[str]:
    """Returns the hashes that the tenant uploaded and later removed, according to the audit log."""
    gone: list[str] = []
    with db.reading() as tx:
        for start in range(0, len(hashes), _AT_ONCE):
            some = hashes[start : start + _AT_ONCE]
            removed = _log.tenant_id == tenant_id, _log.action == "upload.remove", _log.subject.in_(some)
            there = select(_uploads.sha256).where(_uploads.tenant_id == tenant_id, _uploads.sha256.in_(some))
            kept = set(tx.execute(there).scalars())
            gone += sorted(set(tx.execute(select(_log.subject).where(*removed)).scalars()) - kept)
    return gone


def tenant_was_removed(db: Database, tenant_id: str) -> bool:
    """Returns whether the audit log says that the tenant was removed.

    The absence of its row is no proof: the ledger may be a different one.
    """
    where = _log.tenant_id == tenant_id, _log.action == "tenant.remove"
    with db.reading() as tx:
        there = tx.scalar(select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id))
        return there is None and tx.scalar(select(_log.seq).where(*where).limit(1)) is not None
