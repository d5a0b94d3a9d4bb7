"""Queries of the ledger for retention: what is old, and what was deleted. It deletes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Text, and_, cast, exists, or_, select

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database, record
from c2b_ray.endpoint.ledger.job import ENDED
from c2b_ray.endpoint.ledger.uploads import COLUMNS, Upload

_jobs, _uploads, _log = tables.jobs.c, tables.uploads.c, tables.audit_log.c
_AT_ONCE = 500


def ended_before(db: Database, before: float, limit: int) -> list[tuple[str, str]]:
    """Tenant and id of jobs that ended before then and are not deleted."""
    where = _jobs.state.in_(ENDED), _jobs.ended < before, _jobs.deleted.is_(None)
    with db.reading() as tx:
        rows = tx.execute(select(_jobs.tenant_id, _jobs.id).where(*where).order_by(_jobs.ended).limit(limit))
        return [(row.tenant_id, row.id) for row in rows]


def unused_uploads(db: Database, before: float) -> list[Upload]:
    """Uploads from before then that no job names which has not ended by then."""
    named = cast(_jobs.config, Text).contains(_uploads.sha256) | cast(_jobs.resolved, Text).contains(_uploads.sha256)
    lately = or_(_jobs.ended.is_(None), _jobs.ended >= before)
    used = exists().where(and_(_jobs.tenant_id == _uploads.tenant_id, lately, _jobs.deleted.is_(None), named))
    with db.reading() as tx:
        return [record(Upload, row) for row in tx.execute(select(*COLUMNS).where(_uploads.created < before, ~used))]


def deleted_jobs(db: Database, ids: Sequence[str]) -> list[str]:
    """Those of the ids whose jobs were deleted; not those that the ledger does not know."""
    gone: list[str] = []
    with db.reading() as tx:
        for start in range(0, len(ids), _AT_ONCE):
            some = _jobs.id.in_(ids[start : start + _AT_ONCE])
            gone += tx.execute(select(_jobs.id).where(some, _jobs.deleted.is_not(None))).scalars()
    return gone


def removed_uploads(db: Database, tenant_id: str, hashes: Sequence[str]) -> list[str]:
    """Which of the hashes the tenant uploaded and later removed, by the audit log."""
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
    """By the audit log: that the ledger has no such tenant is no proof."""
    where = _log.tenant_id == tenant_id, _log.action == "tenant.remove"
    with db.reading() as tx:
        there = tx.scalar(select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id))
        return there is None and tx.scalar(select(_log.seq).where(*where).limit(1)) is not None
