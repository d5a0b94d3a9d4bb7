"""The dispatcher. Twice a second it grants free slots to the tenants that were served least, and asks jobs to yield.

One of several dispatchers leads, under a lease; another takes over when the leader stops renewing it. The ledger checks
the lease in the transaction that changes a job, so a dispatcher that was suspended and wakes up decides nothing. It
knows the ledger and no runner; runners announce their slots by leases.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger import jobs, keys, locks, migrations, quotas, tenants
from c2b_ray.endpoint.ledger import running as queue
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.job import FencedError, Job
from c2b_ray.endpoint.ledger.locks import DISPATCHER, SLOT, Lease
from c2b_ray.endpoint.operate.retention import Retention
from c2b_ray.endpoint.operate.webhooks import DeliverySender
from c2b_ray.endpoint.work.fairness import FairShare, Running, WaitingJob
from c2b_ray.endpoint.work.runner import Runner, name_of_this_process

LEASE_S = 5.0
EVERY_S = 0.5
FORGOTTEN_S = 3600.0

_log = logging.getLogger(__name__)


class Dispatcher:
    """Decides which jobs run next. `owner`: a unique name of this process."""

    def __init__(self, db: Database, config: EndpointConfig, owner: str) -> None:
        self._db, self._config, self._owner = db, config, owner
        self._share = FairShare(config.runners.slice_seconds)
        self._used: dict[str, float] | None = None
        self._seen: dict[tuple[str, int], float] = {}
        self._lease: Lease | None = None
        self._renewed = 0.0

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set; waits while the database is down."""
        is_down = False
        while not stop.wait(EVERY_S):
            try:
                self.step()
                if is_down:
                    _log.warning("the database is back")
                is_down = False
            except DatabaseDownError as error:
                if not is_down:
                    _log.warning("%s; the dispatcher waits", error)
                is_down = True
        with suppress(DatabaseDownError):
            if self._lease is not None:
                locks.give_back(self._db, self._lease)

    def step(self) -> bool:
        """Decides once which jobs run and which yield; returns whether this dispatcher leads."""
        lease = self._leading()
        if lease is None:
            return False
        for job in queue.sweep(self._db, self._config.runners.attempts):
            _log.warning("%s ended as %s: its runner was lost", job.id, job.state)
        weights = {tenant.id: tenant.weight for tenant in tenants.every(self._db)}
        self._charge(weights)
        waiting, running = jobs.waiting(self._db), self._running()
        slots = len(locks.live(self._db, SLOT))
        decision = self._share.decide([_waiting(job) for job in waiting], running, slots, weights)
        for job_id in decision.grants:
            jobs.grant(self._db, job_id, lease)
        for job_id in decision.yields:
            jobs.ask_to_yield(self._db, job_id, lease)
        return True

    def _leading(self) -> Lease | None:
        now = time.monotonic()
        if self._lease is not None and now - self._renewed < LEASE_S / 3:
            return self._lease
        try:
            if self._lease is not None:
                self._lease = locks.renew(self._db, self._lease)
            else:
                self._lease = locks.take(self._db, DISPATCHER, self._owner, LEASE_S)
                if self._lease is not None:
                    self._begin()
        except FencedError:
            _log.warning("another dispatcher leads")
            self._lease = None
        self._renewed = now
        return self._lease

    def _begin(self) -> None:
        """Resets the state, so that every new leader starts alike: what the last leader knew is lost."""
        self._share = FairShare(self._config.runners.slice_seconds)
        self._used = None
        locks.forget(self._db, SLOT, FORGOTTEN_S)

    def _charge(self, weights: dict[str, float]) -> None:
        """Charges tenants for the model seconds since the last call, computed from daily sums."""
        now = quotas.seconds_by_tenant(self._db)
        if self._used is not None:
            previous = self._used
            self._share.charge(
                {tenant: seconds - previous.get(tenant, 0.0) for tenant, seconds in now.items()}, weights
            )
        self._used = now

    def _running(self) -> list[Running]:
        """Returns the jobs that hold a slot, and those that were granted one."""
        now = time.monotonic()
        job_of_slot = {(job.id, job.fence): job for job in jobs.running(self._db)}
        self._seen = {key: self._seen.get(key, now) for key in job_of_slot}
        granted = [
            Running(job.id, job.tenant_id, job.created, job.slices, images=job.images)
            for job in queue.granted(self._db)
        ]
        return granted + [
            Running(job.id, job.tenant_id, job.created, job.slices, now - self._seen[key], _ending(job), job.images)
            for key, job in job_of_slot.items()
        ]


def _waiting(job: Job) -> WaitingJob:
    return WaitingJob(job.id, job.tenant_id, job.created, job.slices)


def _ending(job: Job) -> bool:
    return job.yield_requested or job.cancel_requested


# Runs the sender of webhooks and retention beside a dispatcher, in threads of its process. See `operate`.


@contextmanager
def upkeep(db: Database, config: EndpointConfig, owner: str) -> Iterator[None]:
    """Runs both during the block; afterwards they have ended. `owner`: a unique name of this process."""
    with running([DeliverySender(db, config).run, Retention(db, config, owner).run]):
        yield


@contextmanager
def running(work: list[Callable[[threading.Event], None]]) -> Iterator[None]:
    """Runs each function in a thread, until the block ends."""
    stop = threading.Event()
    threads = [threading.Thread(target=_guarded, args=(run, stop), name=run.__qualname__) for run in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _guarded(run: Callable[[threading.Event], None], stop: threading.Event) -> None:
    try:
        run(stop)
    except Exception:
        _log.exception("a thread of the endpoint ended; restart it")
        raise


# A whole endpoint in one process, for one host: the API, a dispatcher, and a runner that starts a process per job.


FIRST_TENANT = "default"
LOG = "jobs.log"


def prepared(config: EndpointConfig) -> Database:
    """Returns the config's ledger with its tables at the newest revision, and creates the folder for runs."""
    Path(config.folder).mkdir(parents=True, exist_ok=True)
    db = Database(config.database_url)
    migrations.prepare(db)
    return db


def first_key(db: Database) -> str | None:
    """Creates the tenant `default` and returns a key with all scopes; None if there is a tenant already."""
    if tenants.every(db):
        return None
    tenant = tenants.create(db, FIRST_TENANT)
    return keys.create(db, tenant.id, "first", ("submit", "read", "admin")).text


@contextmanager
def working(db: Database, config: EndpointConfig) -> Iterator[None]:
    """Runs a dispatcher, its upkeep and a runner in threads during the block; afterwards all that they started has
    ended."""
    owner = name_of_this_process()
    runner = Runner(db, config, owner, Path(config.folder) / LOG)
    with upkeep(db, config, owner), running([Dispatcher(db, config, owner).run, runner.run]):
        yield
