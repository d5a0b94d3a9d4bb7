"""Streams of events: replayed, followed, ended; however many, one query a moment."""

import asyncio
import time

import pytest

from c2b_ray.endpoint.api import watch as watching
from c2b_ray.endpoint.api.watch import Watch
from c2b_ray.endpoint.ledger import events, jobs


def parsed(text):
    text = text.replace("\r\n", "\n")
    blocks = [dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
              for block in text.split("\n\n") if "id: " in block]  # fmt: skip
    return [(int(block["id"]), block["event"]) for block in blocks]


def test_an_ended_job_is_replayed_from_the_last_event_seen_and_then_no_more(endpoint):
    job = endpoint.finish()
    client, path = endpoint.as_("a"), f"/v1/audits/{job.id}/events"
    whole = client.get(path)
    assert whole.headers["content-type"].startswith("text/event-stream")
    assert "retry: 2000" in whole.text
    seen = parsed(whole.text)
    assert [kind for _, kind in seen] == ["state"] * len(seen)
    assert len(seen) >= 3
    assert '"state": "finished"' in whole.text
    middle = seen[1][0]
    assert parsed(client.get(path, headers={"Last-Event-ID": str(middle)}).text) == seen[2:]
    assert client.get(path, headers={"Last-Event-ID": str(seen[-1][0])}).status_code == 204
    assert client.get(path, headers={"Last-Event-ID": "1; drop"}).status_code == 422


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)


def test_streams_get_new_events_once_each_and_end_with_the_job(endpoint, quick):
    job_ids = [endpoint.submit()["id"] for _ in range(3)]
    claims = [endpoint.claim(job_id) for job_id in job_ids]
    watch = Watch(endpoint.db)

    async def follow(job_id):
        return [event async for event in watch.follow(job_id, 0, False, 30.0)]

    async def all_of_them():
        following = [asyncio.create_task(follow(job_id)) for job_id in job_ids for _ in range(20)]
        await asyncio.sleep(0.2)
        assert len(watch) == 60
        before = watch.queries
        await asyncio.sleep(0.3)
        assert watch.queries - before <= 20  # of 60 streams, a query a moment
        for job_id in job_ids:
            for number in range(5):
                await asyncio.to_thread(events.append, endpoint.db, job_id, "progress", {"done": number})
        for job_id, claim in zip(job_ids, claims, strict=True):
            await asyncio.to_thread(jobs.finish, endpoint.db, job_id, claim.fence)
        return await asyncio.gather(*following)

    for number, seen in enumerate(asyncio.run(all_of_them())):
        assert {event.job_id for event in seen} == {job_ids[number // 20]}
        assert [event.data["done"] for event in seen if event.kind == "progress"] == [0, 1, 2, 3, 4]
        assert [event.id for event in seen] == sorted({event.id for event in seen})
        assert seen[-1].data["state"] == "finished"
    assert len(watch) == 0


def test_a_stream_that_its_client_left_is_forgotten_and_one_ends_in_time(endpoint, quick):
    job_id = endpoint.submit()["id"]
    watch = Watch(endpoint.db)

    async def scenario():
        stream = watch.follow(job_id, 0, False, 30.0)
        await anext(stream)
        assert len(watch) == 1
        await stream.aclose()
        assert len(watch) == 0
        began = time.monotonic()
        assert [event async for event in watch.follow(job_id, 0, False, 0.2)]
        assert time.monotonic() - began < 5

    asyncio.run(scenario())


def test_streams_wait_while_the_ledger_is_down(endpoint, quick, monkeypatch):
    from c2b_ray.endpoint.ledger.outage import DatabaseDownError

    job_id = endpoint.submit()["id"]
    claim = endpoint.claim(job_id)
    watch, whole, down = Watch(endpoint.db), Watch._query, [True]

    def query(self, *arguments):
        if down:
            raise DatabaseDownError("gone", 1.0)
        return whole(self, *arguments)

    monkeypatch.setattr(Watch, "_query", query)

    async def scenario():
        async def follow():
            return [event async for event in watch.follow(job_id, 0, False, 30.0)]

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.1)
        down.clear()
        await asyncio.to_thread(jobs.finish, endpoint.db, job_id, claim.fence)
        return await following

    assert asyncio.run(scenario())[-1].data["state"] == "finished"
