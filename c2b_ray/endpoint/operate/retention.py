"""Deletes expired runs, uploads, events and Idempotency-Keys, and all data of a removed tenant.

Rows of the ledger are deleted first, then files, so that nobody reads half of a run; the ledger refuses a job that has
not ended. If a process dies in between, the next pass deletes files that the ledger or its audit log says were deleted.
A file that neither mentions is never deleted, because the database may be the wrong one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pyarrow import fs

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger import jobs, quotas, running, tenants, uploads, webhooks
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError, is_id, steady_now
from c2b_ray.endpoint.policy import uploads as stored_uploads
from c2b_ray.errors import C2BError, InputError, RunError
from c2b_ray.storage import files, resolve
from c2b_ray.storage.s3 import file_info

ACTOR = "retention"
EVERY_S = 900.0
CLOCK_S = 3600.0
"""Seconds that the database's clock may gain or lose between two passes, so that setting it ahead deletes nothing."""
DAY_S, HOUR_S = 86_400.0, 3600.0
AT_ONCE = 200

_log = logging.getLogger(__name__)


@dataclass
class Deleted:
    """Counts what a pass deleted. `leftovers`: what an earlier, interrupted pass had begun to delete."""

    runs: int = 0
    uploads: int = 0
    events: int = 0
    deliveries: int = 0
    idempotency_keys: int = 0
    leftovers: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = [f"{value} {name.replace('_', ' ')}" for name, value in vars(self).items() if isinstance(value, int)]
        return ", ".join(counts) + "".join(f"; {failure}" for failure in self.failures)

    def __bool__(self) -> bool:
        return any(vars(self).values())


class Retention:
    """Runs a pass every quarter of an hour, in one of several processes, by a lease."""

    def __init__(self, db: Database, config: EndpointConfig, owner: str) -> None:
        self._db, self._config, self._owner = db, config, owner
        self._clocks: tuple[float, float] | None = None
        self._waits_until = float("-inf")

    def run(self, stop: threading.Event, every: float = EVERY_S) -> None:
        """Runs until `stop` is set. The first pass waits until the clock was watched from one call to the next."""
        while True:
            try:
                if self.clock_is_steady() and running.take_lease(self._db, ACTOR, self._owner, every / 2) is not None:
                    deleted = purge(self._db, self._config)
                    if deleted:
                        _log.info("deleted: %s", deleted)
            except DatabaseDownError as error:
                _log.debug("%s; retention waits", error)
            except C2BError as error:
                _log.warning("retention waits: %s", error)
            if stop.wait(every):
                return

    def clock_is_steady(self) -> bool:
        """Returns whether the database's clock ran like this process's for a day, or since the first call; the first
        call returns False."""
        with self._db.reading() as tx:
            now = self._db.now(tx.connection), steady_now()
        previous, self._clocks = self._clocks, now
        if previous is None:
            return False
        drift = (now[0] - previous[0]) - (now[1] - previous[1])
        if abs(drift) > CLOCK_S:
            _log.warning("the database's clock was set by %.0f s; nothing is deleted for a day", drift)
            self._waits_until = now[1] + DAY_S
        return now[1] >= self._waits_until


def purge(db: Database, config: EndpointConfig) -> Deleted:
    """Runs one pass."""
    retention, deleted = config.retention, Deleted()
    with db.reading() as tx:
        now = db.now(tx.connection)
    if retention.runs_days is not None:
        deleted.runs = _purge_runs(db, config, now - retention.runs_days * DAY_S)
    if retention.uploads_days is not None:
        deleted.uploads = _purge_uploads(db, config, now - retention.uploads_days * DAY_S)
    deleted.events = webhooks.forget_events(db, now - retention.events_days * DAY_S)
    deleted.deliveries = webhooks.forget(db, now - retention.events_days * DAY_S)
    deleted.idempotency_keys = jobs.forget_idempotency(db, now - retention.idempotency_hours * HOUR_S)
    quotas.forget(db, now - DAY_S)
    tenants.forget_sessions(db, now)
    db.overwrite_deleted()
    for tenant_id in filter(is_id, files.entries(f"{config.storage_root.rstrip('/')}/tenants")):
        try:
            deleted.leftovers += _leftovers(db, config, tenant_id)
        except C2BError as error:  # an error in one tenant's folder must not stop the others
            deleted.failures.append(str(error))
    return deleted


def remove_tenant(db: Database, config: EndpointConfig, name: str, actor: str = "operator") -> str:
    """Deletes all of a tenant for good: rows, keys, runs, uploads, data. Returns its id. The audit log keeps ids.

    Raises InputError if there is no such tenant; RunError while jobs of it wait or run.
    """
    tenant = tenants.by_name(db, name)
    if tenant is None or not tenants.remove(db, tenant.id, actor):
        raise InputError(f"there is no tenant {name!r}")
    db.overwrite_deleted()
    _remove_folder(_root(config, tenant.id))
    return tenant.id


def _purge_runs(db: Database, config: EndpointConfig, cutoff: float) -> int:
    count = 0
    while old := uploads.ended_before(db, cutoff, AT_ONCE):
        for tenant_id, job_id in old:
            with suppress(RunError):  # a job that reads the run was submitted since; the next query leaves it out
                if jobs.set_deleted(db, tenant_id, job_id, ACTOR) is not None:
                    _remove_folder(f"{_root(config, tenant_id)}/runs/{job_id}")
                    count += 1
    return count


def _purge_uploads(db: Database, config: EndpointConfig, cutoff: float) -> int:
    count = 0
    for upload in uploads.unused_uploads(db, cutoff):
        with uploads.upload_lock(db, upload.tenant_id, upload.sha256):
            if uploads.remove(db, upload.tenant_id, upload.sha256, ACTOR):
                stored_uploads.remove_upload(_root(config, upload.tenant_id), upload.sha256, upload.kind)
                count += 1
    return count


def _leftovers(db: Database, config: EndpointConfig, tenant_id: str) -> int:
    """Deletes what was deleted in the ledger before and still lies in a tenant's folder; returns how many."""
    root = _root(config, tenant_id)
    if uploads.tenant_was_removed(db, tenant_id):
        _remove_folder(root)
        return 1
    runs = [name for name in files.entries(f"{root}/runs") if is_id(name)]
    deleted_ids = uploads.deleted_jobs(db, runs)
    for job_id in deleted_ids:
        _remove_folder(f"{root}/runs/{job_id}")
    orphans = uploads.removed_uploads(db, tenant_id, sorted(set(_old_files(f"{root}/uploads"))))
    for sha256 in orphans:
        with uploads.upload_lock(db, tenant_id, sha256):
            if uploads.get(db, tenant_id, sha256) is None:  # it may have been uploaded again
                for kind in stored_uploads.KINDS:
                    stored_uploads.remove_upload(root, sha256, kind)
    return len(deleted_ids) + len(orphans) + stored_uploads.sweep_uploads(root)


def _old_files(folder: str) -> Iterator[str]:
    """Yields the SHA-256 of uploads that have been in the folder for a day. A newer one may not have its row yet."""
    filesystem, path = resolve(folder)
    with files.answers(folder):
        infos = file_info(filesystem, fs.FileSelector(path, allow_not_found=True))
    for info in infos:
        sha256 = info.base_name.partition(".")[0]
        if len(sha256) == 64 and (info.mtime_ns or 0) / 1e9 < time.time() - DAY_S:
            yield sha256


def _root(config: EndpointConfig, tenant_id: str) -> str:
    return f"{config.storage_root.rstrip('/')}/tenants/{tenant_id}"


def _remove_folder(path: str) -> None:
    if files.entries(path):
        files.remove_directory(path)
