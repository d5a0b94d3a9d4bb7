"""Whose turn it is: a weighted fair choice between tenants, slice by slice. Pure: it knows no database and no clock.

A tenant's virtual time is the model seconds that it used over its weight. The least one goes first; of a tenant's jobs,
the one that was submitted first, each slice counted as if it had come a slice later. A tenant that was idle comes back
with the least virtual time of those that are active, so that it neither owes nor hoards (start-time fair queueing,
Goyal, Vin and Cheng 1996, section 2, with slices in place of packets and their length known afterwards).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

EXPRESS_S = 2.0
"""How long a slice lasts at least, before it ends for a tenant that nothing runs of: its first slice comes soon."""
MOST_SHORT = 5
"""How often a job's slice may end so early before it gets a whole one: each new slice first loads and reads again."""
MOST_LOADING = 8
"""Slices that a job may take to its first answer at the most, before it yields all the same."""
FORGETS = 0.9
"""What is left of a long loading time after each answer that came sooner."""
LEAST_SECONDS = 0.01
"""What a job that is granted is expected to use at least, so that of equals each gets a slot."""


@dataclass(frozen=True)
class Waiting:
    """A job that waits. `slices`: that it had."""

    job_id: str
    tenant_id: str
    created: float
    slices: int = 0


@dataclass(frozen=True)
class Running:
    """A job that holds a slot, or is about to. `seconds`: of its slice so far; `ending`: whether that was asked for;
    `images`: that its models have answered about, in all its slices."""

    job_id: str
    tenant_id: str
    created: float
    slices: int = 0
    seconds: float = 0.0
    ending: bool = False
    images: int = 0


@dataclass(frozen=True)
class Decision:
    """Jobs whose turn it is, and jobs that are to yield."""

    grants: tuple[str, ...] = ()
    yields: tuple[str, ...] = ()


@dataclass
class FairShare:
    """Virtual times, as far as this dispatcher has seen tenants use models. `slice_seconds`: how long a slice lasts at
    least where others wait."""

    slice_seconds: float
    served: dict[str, float] = field(default_factory=dict)
    _active: frozenset[str] = frozenset()
    _short: dict[str, int] = field(default_factory=dict)
    _loading: float = 0.0
    _began: dict[tuple[str, int], int | None] = field(default_factory=dict)

    def charge(self, used: Mapping[str, float], weights: Mapping[str, float]) -> None:
        """Adds model seconds that tenants used since the last call."""
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
        """The job of the most-served tenant, where a less-served one waits and its slice was long enough."""
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
        """How long its slice must have lasted: hardly, where the first job waits of a tenant that nothing runs of."""
        soon = new and self._short.get(runs.job_id, 0) < MOST_SHORT
        return min(EXPRESS_S, self.slice_seconds) if soon else self.slice_seconds + self._loading

    def _note_answers(self, running: Sequence[Running]) -> None:
        """How long slices take to their first answer: each loads models anew, on a busy machine or from afar for longer
        than a slice. What ended jobs sooner would have them load for ever. In `_began`: the images with which a slice
        began, None once it has answered."""
        before, self._began = self._began, {}
        for job in running:
            key = job.job_id, job.slices
            began = before.get(key, job.images)
            if began is not None and job.images > began:
                self._loading, began = max(job.seconds, FORGETS * self._loading), None
            self._began[key] = began
        self._loading = min(self._loading, MOST_LOADING * self.slice_seconds)

    def _forget(self, waiting: Sequence[Waiting], running: Sequence[Running]) -> None:
        """A job that has had a whole slice may have short ones again."""
        whole = {job.job_id for job in running if job.seconds >= self.slice_seconds}
        there = {job.job_id for job in waiting} | {job.job_id for job in running}
        self._short = {job: count for job, count in self._short.items() if job in there - whole}

    def _turn_of(self, job: Waiting) -> tuple[float, str]:
        return job.created + job.slices * self.slice_seconds, job.job_id

    def _slice(self, tenant: str, weights: Mapping[str, float]) -> float:
        return max(LEAST_SECONDS, self.slice_seconds) / weights.get(tenant, 1.0)

    def _arrive(self, active: Iterable[str]) -> None:
        """Who comes back begins where the least served of those are that stayed, or later where it had used more."""
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
                del self.served[tenant]  # it would begin at the floor all the same
