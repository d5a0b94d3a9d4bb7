"""Reads new events of the jobs that streams of this process follow, with one query a moment for all streams.

It knows events and subscribers, not how events are sent. While the ledger does not answer, it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sqlalchemy import and_, or_, select

from c2b_ray.endpoint.ledger import tables, tenants
from c2b_ray.endpoint.ledger.database import Database, record
from c2b_ray.endpoint.ledger.tables import ENDED
from c2b_ray.endpoint.ledger.webhooks import Event
from c2b_ray.errors import C2BError

POLL_SECONDS = 0.5
CHECK_SECONDS = 10.0
"""Seconds between checks of the keys, and of the jobs' states, since the events of their ends may have been deleted."""
_AT_ONCE, _JOBS = 1000, 100
MOST_WAITING = 2000
"""Events that wait for a client that reads slowly, before no more are read for it."""
_STOP = None


@dataclass(frozen=True)
class Reader:
    """The tenant and the key that read a stream."""

    tenant_id: str
    key_id: str


class EventFollower:
    """One stream and its position in the events of its job. `ended`: whether the job has ended already."""

    def __init__(self, job_id: str, last_id: int, ended: bool, reader: Reader) -> None:
        self.job_id, self.last_id, self.ended, self.reader = job_id, last_id, ended, reader
        self.waiting: asyncio.Queue[Event | None] = asyncio.Queue()


class JobWatcher:
    """Belongs to the event loop that first follows a job. Its query runs in its own thread."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._followers: set[EventFollower] = set()
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "watch")
        self.queries = 0

    def __len__(self) -> int:
        return len(self._followers)

    def of_tenant(self, tenant_id: str) -> int:
        """Returns the number of a tenant's streams."""
        return sum(follower.reader.tenant_id == tenant_id for follower in tuple(self._followers))

    async def follow(self, follower: EventFollower, seconds: float) -> AsyncIterator[Event]:
        """Yields the events after the follower's `last_id`, and new ones until the job ends or the reader's key stops
        working, for at most `seconds`."""
        self._followers.add(follower)
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    event = await follower.waiting.get()
                if event is _STOP:
                    return
                yield event
        except TimeoutError:
            return
        finally:
            self._followers.discard(follower)

    async def close(self) -> None:
        for follower in self._followers:
            follower.waiting.put_nowait(_STOP)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=False)

    async def _poll(self) -> None:
        """Queries in turn until there are no followers."""
        loop, checked_at = asyncio.get_running_loop(), 0.0
        while self._followers:
            self._news.clear()
            check = loop.time() - checked_at >= CHECK_SECONDS
            with contextlib.suppress(C2BError):
                if check:
                    await self._dismiss(loop)
                followers = [follower for follower in self._followers if follower.waiting.qsize() < MOST_WAITING]
                positions = {(follower.job_id, follower.last_id) for follower in followers}
                full = False
                for part in _parts(sorted(positions)):
                    events, ended_jobs = await loop.run_in_executor(self._thread, self._query, part, check)
                    followers_of_part = [
                        follower for follower in followers if (follower.job_id, follower.last_id) in part
                    ]
                    full |= self._hand_out(followers_of_part, events, ended_jobs)
                checked_at = loop.time() if check else checked_at
                if full:
                    continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), POLL_SECONDS)

    async def _dismiss(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the streams of keys that were revoked or have expired since they began."""
        followers = list(self._followers)
        key_ids = {item.reader.key_id for item in followers}
        spent_keys = await loop.run_in_executor(self._thread, tenants.spent_keys, self._db, key_ids)
        for follower in followers:
            if follower.reader.key_id in spent_keys:
                self._end(follower)

    def _end(self, follower: EventFollower) -> None:
        follower.waiting.put_nowait(_STOP)
        self._followers.discard(follower)

    def _query(self, positions: frozenset[tuple[str, int]], check: bool) -> tuple[list[Event], set[str]]:
        """Returns new events of several jobs, and, with `check`, which of these jobs have ended."""
        self.queries += 1
        columns, jobs = tables.events.c, tables.jobs.c
        condition = or_(*(and_(columns.job_id == job_id, columns.id > last_id) for job_id, last_id in positions))
        statement = select(columns.id, columns.job_id, columns.kind, columns.data, columns.at).where(condition)
        with self._db.reading() as tx:
            ended_jobs: set[str] = set()
            if check:  # before the events, so that the event of an end is among them
                of_marks = select(jobs.id).where(
                    jobs.id.in_({job_id for job_id, _ in positions}), jobs.state.in_(ENDED)
                )
                ended_jobs = set(tx.execute(of_marks).scalars())
            rows = tx.execute(statement.order_by(columns.id).limit(_AT_ONCE)).all()
        return [record(Event, row) for row in rows], ended_jobs

    def _hand_out(self, followers: Sequence[EventFollower], events: Sequence[Event], ended_jobs: set[str]) -> bool:
        """Hands events to their followers. Returns whether there may be more already."""
        for follower in followers:
            new = [item for item in events if item.job_id == follower.job_id and item.id > follower.last_id]
            for event in new:
                follower.waiting.put_nowait(event)
                follower.last_id = event.id
            last = new and new[-1].kind == "state" and new[-1].data.get("state") in ENDED
            done = not new and (follower.ended or follower.job_id in ended_jobs)
            if last or (done and len(events) < _AT_ONCE):
                self._end(follower)
        return len(events) == _AT_ONCE


def _parts(positions: Sequence[tuple[str, int]]) -> Iterator[frozenset[tuple[str, int]]]:
    """Yields groups of positions, (job id, last event id), that fit in one statement."""
    for start in range(0, len(positions), _JOBS):
        yield frozenset(positions[start : start + _JOBS])
