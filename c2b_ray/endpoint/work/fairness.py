"""The fair choice of the next job: weighted by tenant, slice by slice. It knows no database and no clock.

A tenant's virtual time is the model seconds that it used, divided by its weight. The tenant with the least virtual time
goes first. Of its jobs, the one submitted first goes first, where each slice that a job has had counts as a later
submission by the length of a slice. A tenant that was idle returns with the least virtual time of the active ones, so
it neither owes nor saves time (start-time fair queueing, Goyal, Vin and Cheng 1996, section 2, with slices for packets,
whose length is known only afterwards).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyarrow import fs

from c2b_ray.endpoint.ledger.job import Claim, Progress
from c2b_ray.endpoint.work.protocol import StepReport, WorkEnded
from c2b_ray.storage import resolve

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
        waiting: Sequence[WaitingJob],
        running: Sequence[Running],
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

    def _yields(self, candidates: Sequence[WaitingJob], running: Sequence[Running]) -> tuple[str, ...]:
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

    def _before(self, waits: WaitingJob, runs: Running) -> bool:
        if waits.tenant_id != runs.tenant_id:
            return self.served[waits.tenant_id] < self.served[runs.tenant_id]
        next_slice = WaitingJob(runs.job_id, runs.tenant_id, runs.created, runs.slices + 1)
        return self._turn_of(waits) < self._turn_of(next_slice)

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
        previous, self._began = self._began, {}
        for job in running:
            key = job.job_id, job.slices
            images_at_start = previous.get(key, job.images)
            if images_at_start is not None and job.images > images_at_start:
                self._loading, images_at_start = max(job.seconds, FORGETS * self._loading), None
            self._began[key] = images_at_start
        self._loading = min(self._loading, MOST_LOADING * self.slice_seconds)

    def _forget(self, waiting: Sequence[WaitingJob], running: Sequence[Running]) -> None:
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


# Adds up the use and progress of a slice, so that the ledger books each image and each second once. It knows no
# database.


LEAST_BOOKED_SECONDS = 1.0
"""The least seconds of use that are worth a booking while nothing else changes."""


@dataclass(frozen=True)
class StoredBytes:
    """Bytes in a run's directory: of all files, and of the files of rows, which are never removed."""

    total: int
    rows: int


def measured(run_path: str) -> StoredBytes:
    filesystem, path = resolve(run_path)
    infos = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    sizes = [(info.extension, info.size or 0) for info in infos if info.type == fs.FileType.File]
    return StoredBytes(sum(size for _, size in sizes), sum(size for kind, size in sizes if kind == "parquet"))


@dataclass
class SliceUse:
    """The use and progress of one slice.

    `models`: the models that the use is booked on, in equal parts. `held`: the last measured size of the run's
    directory; None before. `advanced`: whether the run gained rows in this slice. `before`: the result of
    `booked_before`.
    """

    models: Sequence[str]
    images: int = 0
    seconds: float = 0.0
    held: StoredBytes | None = None
    advanced: bool = False
    before: int | None = None
    _latest: StepReport = field(
        default=StepReport(step="start", kind="begin")
    )  # loading libraries and models is use, too
    _changed: bool = True
    _booked_images: int = 0
    _booked_seconds: float = 0.0
    _pending: tuple[int, float] = field(default=(0, 0.0))
    _images_stage: str | None = None

    def tell(self, message: StepReport) -> None:
        """Takes a report of the process about the progress of its work."""
        self._count(message)
        if message.kind == "warning":
            return
        if message.kind == "end" and message.done is None and self._latest.step == message.step:
            self._latest = self._latest.model_copy(update={"rate": None})
        elif message.kind != "progress" or message.done is not None or self._latest.step != message.step:
            self._latest = message  # otherwise the report only counts images
        self._changed = True

    def end(self, ended: WorkEnded) -> None:
        self._count(ended)

    def _count(self, message: StepReport | WorkEnded) -> None:
        unbooked = 0 if self.before is None else message.present - self.before
        images = max(self.images, message.images, unbooked)
        if images > self.images and isinstance(message, StepReport):
            self._images_stage = message.step
        self.images = images

    def measure(self, run_path: str) -> None:
        """Measures the run's directory."""
        previous = self.held
        with suppress(OSError):  # the process itself will report the error
            self.held = measured(run_path)
        if previous is not None and self.held is not None and self.held.rows > previous.rows:
            self.advanced = self._changed = True

    @property
    def worth_writing(self) -> bool:
        """Whether there is news for watchers, or enough new use to book."""
        has_new_use = self.seconds - self._booked_seconds >= LEAST_BOOKED_SECONDS or self.images > self._booked_images
        return self._changed or has_new_use

    @property
    def complete(self) -> bool:
        """Whether the ledger has booked everything."""
        all_booked = self.images <= self._booked_images and self.seconds <= self._booked_seconds
        return all_booked and not self._changed

    def progress(self) -> Progress:
        """Returns the progress and the use since the last booking. Call `booked` once the ledger has it."""
        self._pending = (self.images, self.seconds)
        images = self.images - self._booked_images
        seconds = max(0.0, self.seconds - self._booked_seconds)
        message = self._latest
        size = None if self.held is None else self.held.total
        return Progress(
            stage=message.step,
            done=message.done,
            total=message.total,
            rate=None if message.rate is None else round(message.rate, 3),
            seconds_left=_seconds_left(message),
            images=self._images(images),
            model_seconds=self._seconds(seconds),
            bytes=size,
            advanced=self.advanced,
            images_stage=self._images_stage,
        )

    def booked(self) -> None:
        self._booked_images, self._booked_seconds = self._pending
        self._changed = False

    def set_booked(self, images: int, seconds: float) -> None:
        """Sets what the ledger has booked of this slice, when its answer to the last booking was lost."""
        self._booked_images, self._booked_seconds = images, seconds

    def _images(self, count: int) -> dict[str, int]:
        share, remainder = divmod(count, len(self.models))
        parts = {model: share + (number < remainder) for number, model in enumerate(self.models)}
        return {model: part for model, part in parts.items() if part}

    def _seconds(self, seconds: float) -> dict[str, float]:
        return {model: seconds / len(self.models) for model in self.models} if seconds > 0 else {}


def _seconds_left(message: StepReport) -> float | None:
    """Returns the seconds left in the stage at its rate so far; None if that is unknown."""
    if message.total is None or message.done is None or not message.rate:
        return None
    return round(max(0, message.total - message.done) / message.rate, 1)


def booked_before(claim: Claim) -> int | None:
    """Returns the images that the ledger has booked of the run that a claim continues.

    Images that the run holds beyond them were written by a runner that was lost before it booked them. Returns None if
    there was no such runner, and for a question, whose answers may be those of the run that it asks.
    """
    job = claim.job
    begins = claim.fence == 1 and job.run_path is None
    return None if begins or job.kind == "question" else job.images
