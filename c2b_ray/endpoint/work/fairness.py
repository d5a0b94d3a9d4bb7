"""The fair choice of the next job: weighted by tenant, slice by slice. It knows no database and no clock.

A tenant's virtual time is the model seconds that it used, divided by its weight. The tenant with the least virtual time
goes first. Of its jobs, the one submitted first goes first, where each slice that a job has had counts as a later
submission by the length of a slice. A tenant that was idle returns with the least virtual time of the active ones, so
it neither owes nor saves time (start-time fair queueing, Goyal, Vin and Cheng 1996, section 2, with slices for packets,
whose length is known only afterwards).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
class Waiting:
    """A job that waits. `slices`: how many it has had."""

    job_id: str
    tenant_id: str
    created: float
    slices: int = 0


@dataclass(frozen=True)
class Running:
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
        waiting: Sequence[Waiting],
        running: Sequence[Running],
        slots: int,
        weights: Mapping[str, float],
    ) -> Decision:
        self._forget(waiting, running)
        self._note_answers(running)
        self._arrive({job.tenant_id for job in waiting} | {job.tenant_id for job in running})
        left = sorted(waiting, key=self._turn_of)
        expected = dict(self.served)
        for job in running:
            expected[job.tenant_id] += self._slice(job.tenant_id, weights)
        grants: list[str] = []
        for _ in range(min(slots - len(running), len(left))):
            chosen = min(left, key=lambda job: (expected[job.tenant_id], self._turn_of(job)))
            left.remove(chosen)
            grants.append(chosen.job_id)
            expected[chosen.tenant_id] += self._slice(chosen.tenant_id, weights)
        coming = sum(job.ending for job in running)
        yields = self._yields(left, running) if left and not grants and not coming else ()
        return Decision(tuple(grants), yields)

    def _yields(self, left: Sequence[Waiting], running: Sequence[Running]) -> tuple[str, ...]:
        """Returns the job of the most-served tenant that should yield: a less-served tenant waits, and its slice was
        long enough."""
        for waits in sorted(left, key=lambda job: (self.served[job.tenant_id], self._turn_of(job))):
            new = waits.slices == 0 and all(job.tenant_id != waits.tenant_id for job in running)
            long_enough = [job for job in running if job.seconds >= self._least(job, new)]
            able = [job for job in long_enough if self._before(waits, job)]
            if able:
                chosen = max(able, key=lambda job: (self.served[job.tenant_id], job.seconds))
                if chosen.seconds < self.slice_seconds:
                    self._short[chosen.job_id] = self._short.get(chosen.job_id, 0) + 1
                elif self._began[chosen.job_id, chosen.slices] is not None:
                    most = MOST_LOADING * self.slice_seconds
                    self._loading = min(most, max(self._loading, 2 * chosen.seconds))
                return (chosen.job_id,)
        return ()

    def _before(self, waits: Waiting, runs: Running) -> bool:
        if waits.tenant_id != runs.tenant_id:
            return self.served[waits.tenant_id] < self.served[runs.tenant_id]
        after = Waiting(runs.job_id, runs.tenant_id, runs.created, runs.slices + 1)
        return self._turn_of(waits) < self._turn_of(after)

    def _least(self, runs: Running, new: bool) -> float:
        """Returns how long the slice of `runs` must last before it may end: short for the first job of a tenant without
        running jobs."""
        soon = new and self._short.get(runs.job_id, 0) < MOST_SHORT
        return min(EXPRESS_S, self.slice_seconds) if soon else self.slice_seconds + self._loading

    def _note_answers(self, running: Sequence[Running]) -> None:
        """Measures how long slices take to their first answer, because each slice loads its models again.

        On a busy machine, or from remote storage, loading may take longer than a slice; jobs that yielded sooner would
        only load. `_began` holds the count of images at the start of each slice, and None once the slice has answered.
        """
        before, self._began = self._began, {}
        for job in running:
            key = job.job_id, job.slices
            began = before.get(key, job.images)
            if began is not None and job.images > began:
                self._loading, began = max(job.seconds, FORGETS * self._loading), None
            self._began[key] = began
        self._loading = min(self._loading, MOST_LOADING * self.slice_seconds)

    def _forget(self, waiting: Sequence[Waiting], running: Sequence[Running]) -> None:
        """Lets a job that had a whole slice have short ones again."""
        whole = {job.job_id for job in running if job.seconds >= self.slice_seconds}
        there = {job.job_id for job in waiting} | {job.job_id for job in running}
        self._short = {job: count for job, count in self._short.items() if job in there - whole}

    def _turn_of(self, job: Waiting) -> tuple[float, str]:
        return job.created + job.slices * self.slice_seconds, job.job_id

    def _slice(self, tenant: str, weights: Mapping[str, float]) -> float:
        return max(LEAST_SECONDS, self.slice_seconds) / weights.get(tenant, 1.0)

    def _arrive(self, active: Iterable[str]) -> None:
        """Sets the virtual time of returning tenants to that of the least served active tenant, unless their own is
        later."""
        now_active = frozenset(active)
        stayed = [self.served[tenant] for tenant in self._active & now_active]
        known = stayed or [self.served[tenant] for tenant in self._active if tenant in self.served]
        floor = min(known, default=0.0)
        for tenant in now_active - self._active:
            self.served[tenant] = max(self.served.get(tenant, 0.0), floor)
        if now_active:
            self._active = now_active
            for tenant in [
                tenant for tenant, time in self.served.items() if tenant not in now_active and time <= floor
            ]:
                del self.served[tenant]  # it would return at the floor anyway
