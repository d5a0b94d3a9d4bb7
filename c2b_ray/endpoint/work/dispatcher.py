"""The dispatcher. Twice a second it grants free slots to the tenants that were served least, and asks jobs to yield.

One of several dispatchers leads, under a lease; another takes over when the leader stops renewing it. The ledger checks
the lease in the transaction that changes a job, so a dispatcher that was suspended and wakes up decides nothing. It
knows the ledger and no runner; runners announce their slots by leases.

The choice of the next job is fair, weighted by tenant, slice by slice. A tenant's virtual time is the model seconds
that it used, divided by its weight. The tenant with the least virtual time goes first. Of its jobs, the one submitted
first goes first, where each slice that a job has had counts as a later submission by the length of a slice. A tenant
that was idle returns with the least virtual time of the active ones, so it neither owes nor saves time (start-time fair
queueing, Goyal, Vin and Cheng 1996, section 2, with slices for packets, whose length is known only afterwards).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger import migrations, quotas, running, tenants
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.running import DISPATCHER, SLOT, Lease
from c2b_ray.endpoint.ledger.tables import FencedError, Job
from c2b_ray.endpoint.operate.retention import Retention
from c2b_ray.endpoint.operate.webhooks import DeliverySender
from c2b_ray.endpoint.work.runner import Runner, name_of_this_process

EXPRESS_S = 2.0
"""The least seconds of a slice before it yields to a tenant without running jobs, so that those start soon."""
MOST_SHORT = 5
"""Short slices in a row before a job gets a whole one: each slice first loads its models again."""
MOST_LOADING = 8
"""The most time that a job may take to its first answer before it must yield, in lengths of a slice."""
FORGETS = 0.9
"""The factor by which the expected loading time shrinks after each faster one."""
LEAST_SECONDS = 0.01
"""The least use that is expected of a granted job, so that equal tenants each get a slot."""


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits. `slices`: how many it has had."""

    job_id: str
    tenant_id: str
    created: float
    slices: int = 0


@dataclass(frozen=True)
class RunningJob:
    """A job that holds a slot or was granted one. `seconds`: the length of its slice so far. `ending`: whether it was
    asked to end. `images`: images that its models have answered about, in all slices."""

    job_id: str
    tenant_id: str
    created: float
    slices: int = 0
    seconds: float = 0.0
    ending: bool = False
    images: int = 0


@dataclass(frozen=True)
class Decision:
    """Jobs to grant a turn, and jobs to ask to yield."""

    grants: tuple[str, ...] = ()
    yields: tuple[str, ...] = ()


@dataclass
class FairShare:
    """The virtual times of tenants, as this dispatcher has seen them use models.

    `slice_seconds`: the least length of a slice while others wait.
    """

    slice_seconds: float
    served: dict[str, float] = field(default_factory=dict)
    _active: frozenset[str] = frozenset()
    _short: dict[str, int] = field(default_factory=dict)
    _loading: float = 0.0
    _began: dict[tuple[str, int], int | None] = field(default_factory=dict)

    def charge(self, used: Mapping[str, float], weights: Mapping[str, float]) -> None:
        """Adds the model seconds that tenants used since the last call."""
        for tenant, seconds in used.items():
            self.served[tenant] = self.served.get(tenant, 0.0) + max(0.0, seconds) / weights.get(tenant, 1.0)

    def decide(
        self,
        waiting: Sequence[WaitingJob],
        running: Sequence[RunningJob],
        slots: int,
        weights: Mapping[str, float],
    ) -> Decision:
        self._forget(waiting, running)
        self._note_answers(running)
        self._arrive({job.tenant_id for job in waiting} | {job.tenant_id for job in running})
        candidates = sorted(waiting, key=self._turn_of)
        expected = dict(self.served)
        for job in running:
            expected[job.tenant_id] += self._slice(job.tenant_id, weights)
        grants: list[str] = []
        for _ in range(min(slots - len(running), len(candidates))):
            next_job = min(candidates, key=lambda job: (expected[job.tenant_id], self._turn_of(job)))
            candidates.remove(next_job)
            grants.append(next_job.job_id)
            expected[next_job.tenant_id] += self._slice(next_job.tenant_id, weights)
        ending = sum(job.ending for job in running)
        yields = self._yields(candidates, running) if candidates and not grants and not ending else ()
        return Decision(tuple(grants), yields)

    def _yields(self, candidates: Sequence[WaitingJob], running: Sequence[RunningJob]) -> tuple[str, ...]:
        """Returns the job of the most-served tenant that should yield: a less-served tenant waits, and its slice was
        long enough."""
        for waits in sorted(candidates, key=lambda job: (self.served[job.tenant_id], self._turn_of(job))):
            new = waits.slices == 0 and all(job.tenant_id != waits.tenant_id for job in running)
            long_enough = [job for job in running if job.seconds >= self._least(job, new)]
            yielding = [job for job in long_enough if self._before(waits, job)]
            if yielding:
                served_most = max(yielding, key=lambda job: (self.served[job.tenant_id], job.seconds))
                if served_most.seconds < self.slice_seconds:
                    self._short[served_most.job_id] = self._short.get(served_most.job_id, 0) + 1
                elif self._began[served_most.job_id, served_most.slices] is not None:
                    longest = MOST_LOADING * self.slice_seconds
                    self._loading = min(longest, max(self._loading, 2 * served_most.seconds))
                return (served_most.job_id,)
        return ()

    def _before(self, waits: WaitingJob, runs: RunningJob) -> bool:
        if waits.tenant_id != runs.tenant_id:
            return self.served[waits.tenant_id] < self.served[runs.tenant_id]
        next_slice = WaitingJob(runs.job_id, runs.tenant_id, runs.created, runs.slices + 1)
        return self._turn_of(waits) < self._turn_of(next_slice)

    def _least(self, runs: RunningJob, new: bool) -> float:
        """Returns how long the slice of `runs` must last before it may end: short for the first job of a tenant without
        running jobs."""
        soon = new and self._short.get(runs.job_id, 0) < MOST_SHORT
        return min(EXPRESS_S, self.slice_seconds) if soon else self.slice_seconds + self._loading

    def _note_answers(self, running: Sequence[RunningJob]) -> None:
        """Measures how long slices take to their first answer, because each slice loads its models again.

        On a busy machine, or from remote storage, loading may take longer than a slice; jobs that yielded sooner would
        only load. `_began` holds the count of images at the start of each slice, and None once the slice has answered.
        """
        previous, self._began = self._began, {}
        for job in running:
            key = job.job_id, job.slices
            images_at_start = previous.get(key, job.images)
            if images_at_start is not None and job.images > images_at_start:
                self._loading, images_at_start = max(job.seconds, FORGETS * self._loading), None
            self._began[key] = images_at_start
        self._loading = min(self._loading, MOST_LOADING * self.slice_seconds)

    def _forget(self, waiting: Sequence[WaitingJob], running: Sequence[RunningJob]) -> None:
        """Lets a job that had a whole slice have short ones again."""
        had_slice = {job.job_id for job in running if job.seconds >= self.slice_seconds}
        present = {job.job_id for job in waiting} | {job.job_id for job in running}
        self._short = {job: count for job, count in self._short.items() if job in present - had_slice}

    def _turn_of(self, job: WaitingJob) -> tuple[float, str]:
        return job.created + job.slices * self.slice_seconds, job.job_id

    def _slice(self, tenant: str, weights: Mapping[str, float]) -> float:
        return max(LEAST_SECONDS, self.slice_seconds) / weights.get(tenant, 1.0)

    def _arrive(self, active: Iterable[str]) -> None:
        """Sets the virtual time of returning tenants to that of the least served active tenant, unless their own is
        later."""
        now_active = frozenset(active)
        stayed = [self.served[tenant] for tenant in self._active & now_active]
        served = stayed or [self.served[tenant] for tenant in self._active if tenant in self.served]
        floor = min(served, default=0.0)
        for tenant in now_active - self._active:
            self.served[tenant] = max(self.served.get(tenant, 0.0), floor)
        if now_active:
            self._active = now_active
            for tenant in [
                tenant for tenant, time in self.served.items() if tenant not in now_active and time <= floor
            ]:
                del self.served[tenant]  # it would return at the floor anyway


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
                running.give_back_lease(self._db, self._lease)

    def step(self) -> bool:
        """Decides once which jobs run and which yield; returns whether this dispatcher leads."""
        lease = self._leading()
        if lease is None:
            return False
        for job in running.sweep(self._db, self._config.runners.attempts):
            _log.warning("%s ended as %s: its runner was lost", job.id, job.state)
        weights = {tenant.id: tenant.weight for tenant in tenants.every(self._db)}
        self._charge(weights)
        waiting, running_jobs = running.waiting(self._db), self._running()
        slots = len(running.live_leases(self._db, SLOT))
        queued = [WaitingJob(job.id, job.tenant_id, job.created, job.slices) for job in waiting]
        decision = self._share.decide(queued, running_jobs, slots, weights)
        for job_id in decision.grants:
            running.grant(self._db, job_id, lease)
        for job_id in decision.yields:
            running.ask_to_yield(self._db, job_id, lease)
        return True

    def _leading(self) -> Lease | None:
        now = time.monotonic()
        if self._lease is not None and now - self._renewed < LEASE_S / 3:
            return self._lease
        try:
            if self._lease is not None:
                self._lease = running.renew_lease(self._db, self._lease)
            else:
                self._lease = running.take_lease(self._db, DISPATCHER, self._owner, LEASE_S)
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
        running.forget_leases(self._db, SLOT, FORGOTTEN_S)

    def _charge(self, weights: dict[str, float]) -> None:
        """Charges tenants for the model seconds since the last call, computed from daily sums."""
        now = quotas.seconds_by_tenant(self._db)
        if self._used is not None:
            previous = self._used
            self._share.charge(
                {tenant: seconds - previous.get(tenant, 0.0) for tenant, seconds in now.items()}, weights
            )
        self._used = now

    def _running(self) -> list[RunningJob]:
        """Returns the jobs that hold a slot, and those that were granted one."""
        now = time.monotonic()
        job_of_slot = {(job.id, job.fence): job for job in running.running(self._db)}
        self._seen = {key: self._seen.get(key, now) for key in job_of_slot}
        granted = [
            RunningJob(job.id, job.tenant_id, job.created, job.slices, images=job.images)
            for job in running.granted(self._db)
        ]
        return granted + [
            RunningJob(job.id, job.tenant_id, job.created, job.slices, now - self._seen[key], _ending(job), job.images)
            for key, job in job_of_slot.items()
        ]


def _ending(job: Job) -> bool:
    return job.yield_requested or job.cancel_requested


# Runs the sender of webhooks and retention beside a dispatcher, in threads of its process. See `operate`.


@contextmanager
def upkeep(db: Database, config: EndpointConfig, owner: str) -> Iterator[None]:
    """Runs both during the block; afterwards they have ended. `owner`: a unique name of this process."""
    with in_threads([DeliverySender(db, config).run, Retention(db, config, owner).run]):
        yield


@contextmanager
def in_threads(work: list[Callable[[threading.Event], None]]) -> Iterator[None]:
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
    return tenants.create_key(db, tenant.id, "first", ("submit", "read", "admin")).text


@contextmanager
def working(db: Database, config: EndpointConfig) -> Iterator[None]:
    """Runs a dispatcher, its upkeep and a runner in threads during the block; afterwards all that they started has
    ended."""
    owner = name_of_this_process()
    runner = Runner(db, config, owner, Path(config.folder) / LOG)
    with upkeep(db, config, owner), in_threads([Dispatcher(db, config, owner).run, runner.run]):
        yield
