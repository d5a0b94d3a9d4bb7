"""Reports the progress of a stage to a listener, from the first batch on. It does not know the rows, nor where they are
computed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from c2b_ray.steps.fetch import seconds_of_reading

# What a stage waits for while it runs: how busy its readers, its decoders, its model threads and the GPU are.


Part = Literal["reading", "decoding", "model", "gpu"]
PARTS: tuple[Part, ...] = get_args(Part)
LIMITS = 0.9
"""From this share of their time on, workers are what the others wait for."""


@dataclass(frozen=True)
class BusyShares:
    """Shares of a stage's time so far, 0 to 1, from the first prepared rows on; None where nobody measures the part.

    `reading`: of the thread that reads rows, or of the workers that read images, the larger. `decoding`: of the workers
    that decode. `model`: of the threads that answer with the model. `gpu`: in which the GPU ran a kernel, as its driver
    says. `limit`: the part that the others wait for; None where no workers are busy all the time.
    """

    reading: float | None = None
    decoding: float | None = None
    model: float | None = None
    gpu: float | None = None
    limit: Part | None = None

    @property
    def shares(self) -> dict[Part, float]:
        """The shares that are known."""
        shares: dict[Part, float | None] = {part: getattr(self, part) for part in PARTS}
        return {part: share for part, share in shares.items() if share is not None}

    def record(self) -> dict[str, Any]:
        """Returns the entry in a run's manifest."""
        entry: dict[str, Any] = {part: round(share, 3) for part, share in self.shares.items()}
        if self.limit is not None:
            entry["limit"] = self.limit
        return entry


@dataclass
class WorkerSeconds:
    """The seconds that workers of one kind, who do these parts in turn, spent on each since `began` (time.time())."""

    workers: int
    parts: dict[Part, float]
    began: float | None = None


@dataclass(frozen=True)
class Record:
    """What one process knows of a stage: what its kinds of workers spent, by a name, and how busy its GPU was."""

    spent: Mapping[str, WorkerSeconds]
    gpu: float | None = None

    def dumps(self) -> str:
        return json.dumps({"gpu": self.gpu, "spent": {name: vars(seconds) for name, seconds in self.spent.items()}})

    @staticmethod
    def loads(text: str | bytes) -> Record:
        data = json.loads(text)
        return Record({name: WorkerSeconds(**seconds) for name, seconds in data["spent"].items()}, data["gpu"])


def busy_of(
    records: Iterable[Record], most: Mapping[str, int] | None = None, now: float | None = None
) -> BusyShares | None:
    """Returns how busy a stage's workers are in all processes together; None where nobody has worked yet.

    `most`: how many workers of a kind work at once, where processes come and go.
    """
    now, records = time.time() if now is None else now, list(records)
    kinds: dict[str, list[WorkerSeconds]] = {}
    for record in records:
        for name, worker in record.spent.items():
            if worker.began is not None:
                kinds.setdefault(name, []).append(worker)
    gpus = [record.gpu for record in records if record.gpu is not None]
    shares: dict[Part, float] = {"gpu": sum(gpus) / len(gpus)} if gpus else {}
    totals = [dict(shares)] if gpus else []
    for name, workers in kinds.items():
        durations = [now - (worker.began or now) for worker in workers]
        capacity = sum(worker.workers * seconds for worker, seconds in zip(workers, durations, strict=True))
        if most and name in most:
            capacity = min(capacity, most[name] * max(durations))
        of_kind: dict[Part, float] = {}
        for worker in workers:
            for part, seconds in worker.parts.items():
                of_kind[part] = of_kind.get(part, 0.0) + seconds / max(capacity, 1e-9)
        of_kind = {part: min(1.0, share) for part, share in of_kind.items()}
        totals.append(of_kind)
        for part, share in of_kind.items():
            shares[part] = max(share, shares.get(part, 0.0))
    return BusyShares(**shares, limit=_limit(totals)) if totals else None


def _limit(totals: Iterable[Mapping[Part, float]]) -> Part | None:
    """Returns on what the busiest workers spend most of their time, where they are busy all the time."""
    busiest = max(totals, key=lambda shares: sum(shares.values()))
    if sum(busiest.values()) < LIMITS:
        return None
    return max(busiest.items(), key=lambda share: share[1])[0]


class BusyClock:
    """Adds up the time that the workers of one process spend, from any thread.

    `workers`: by a name of their kind, how many they are and which parts they do in turn. `gpu`: returns the mean busy
    share of the process's GPU, or None.
    """

    def __init__(
        self, workers: Mapping[str, tuple[int, tuple[Part, ...]]], gpu: Callable[[], float | None] = lambda: None
    ) -> None:
        self._spent = {
            name: WorkerSeconds(count, dict.fromkeys(parts, 0.0)) for name, (count, parts) in workers.items()
        }
        self._gpu = gpu
        self._lock = threading.Lock()

    @contextmanager
    def at_work(self, name: str, part: Part) -> Iterator[None]:
        """Counts the time of the body for a worker of this kind."""
        started, clock = time.time(), time.monotonic()
        self._begin(name, started)
        try:
            yield
        finally:
            self.add(name, {part: time.monotonic() - clock}, started)

    def add(self, name: str, seconds: Mapping[Part, float], began: float) -> None:
        """Counts seconds that a worker of this kind has spent since `began` (time.time())."""
        self._begin(name, began)
        with self._lock:
            for part, part_seconds in seconds.items():
                self._spent[name].parts[part] += part_seconds

    def _begin(self, name: str, began: float) -> None:
        with self._lock:
            worker = self._spent[name]
            worker.began = began if worker.began is None else min(began, worker.began)

    def record(self) -> Record:
        with self._lock:
            by_name = {
                name: WorkerSeconds(worker.workers, dict(worker.parts), worker.began)
                for name, worker in self._spent.items()
            }
        return Record(by_name, self._gpu())

    def busy(self) -> BusyShares | None:
        return busy_of([self.record()])


_KEY = b"c2b seconds"


def timed(rows: pa.Table, prepare: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Returns prepared rows that carry the seconds which that took; `times_of` takes them off."""
    started, clock, read_before = time.time(), time.monotonic(), seconds_of_reading()
    prepared = prepare(rows)
    reading = seconds_of_reading() - read_before
    took = {"began": started, "reading": reading, "decoding": max(0.0, time.monotonic() - clock - reading)}
    return prepared.replace_schema_metadata({**(prepared.schema.metadata or {}), _KEY: json.dumps(took)})


def times_of(prepared: pa.Table) -> tuple[pa.Table, dict[Part, float], float]:
    """Takes the times off rows that `timed` prepared: returns the rows, the seconds by part, and when these began."""
    metadata = dict(prepared.schema.metadata or {})
    took = json.loads(metadata.pop(_KEY))
    started = took.pop("began")
    return prepared.replace_schema_metadata(metadata or None), took, started


@dataclass(frozen=True)
class StageTotal:
    """`done` of at most `most`; a run may end before it reaches `most`."""

    done: int
    most: int


@dataclass(frozen=True)
class Progress:
    """The progress of a stage. `rows` and `errors`: written by this call so far. `resumed`: rows of the source that
    earlier calls wrote.

    `answered`: rows that the step has answered; the last of them may not be in a part yet. The rate counts these.
    `total`: rows of the source, where known; at the end it equals `resumed` + `rows`. `what`: what a row is. `whole`:
    the progress of the whole run, where the step is one of many. `busy`: how busy those are that work for the stage,
    where that is measured.
    """

    rows: int
    errors: int
    resumed: int
    total: int | None
    rows_per_second: float
    answered: int = 0
    what: str = "rows"
    whole: StageTotal | None = None
    busy: BusyShares | None = None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until `total` at the rate so far; None before anything is answered, or without a total."""
        if self.total is None or self.rows_per_second <= 0:
            return None
        return max(self.total - self.done, 0) / self.rows_per_second

    @property
    def done(self) -> int:
        """Rows of the source that this process or an earlier one has answered."""
        return self.resumed + self.answered


class ProgressCounter:
    """Counts a stage's progress and calls `listener`, one call at a time, from any of the threads that report to it."""

    def __init__(self, listener: Callable[[Progress], None] | None, resumed: int, total: int | None) -> None:
        self._listener, self._resumed, self._total = listener, resumed, total
        self._began, self._lock = time.monotonic(), threading.RLock()
        self.rows, self.errors, self._answered = 0, 0, 0
        self._failure: BaseException | None = None
        self.busy: Callable[[], BusyShares | None] | None = None

    def tell(self) -> None:
        if self._listener is not None:
            rate = self._answered / max(time.monotonic() - self._began, 1e-9)
            busy_shares = None if self.busy is None else self.busy()
            self._listener(
                Progress(self.rows, self.errors, self._resumed, self._total, rate, self._answered, busy=busy_shares)
            )

    def wrote(self, rows: int, errors: int) -> None:
        """Counts written rows. Raises what the listener raised meanwhile, even in another thread."""
        with self._lock:
            self.rows, self.errors = self.rows + rows, self.errors + errors
            self._answered = max(self._answered, self.rows)
            self.tell()
        self.check()

    def check(self) -> None:
        """Raises what the listener raised meanwhile."""
        if self._failure is not None:
            raise self._failure

    def answered(self, written: int, waiting: int) -> None:
        """Counts rows that are answered: `waiting` that are not written yet, and the `written` when these were counted.

        The count never falls: rows that a dead process had answered are answered again.
        """
        with self._lock:
            rows = written + waiting
            if self._total is not None:
                rows = min(rows, self._total - self._resumed)
            if rows > self._answered and self._failure is None:
                self._answered = rows
                try:
                    self.tell()
                except BaseException as error:
                    self._failure = error
