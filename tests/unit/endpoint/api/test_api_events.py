"""Streams of events: replayed, followed, ended; however many, one query a moment."""

import asyncio
import time

import pytest
from ledgers import add_event

from c2b_ray.endpoint.api import jobs as streaming
from c2b_ray.endpoint.api import watch as watching
from c2b_ray.endpoint.api.watch import EventFollower, JobWatcher, Reader
from c2b_ray.endpoint.ledger import jobs, running, tenants, webhooks


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


def test_an_id_of_another_job_or_of_none_leaves_nothing_out(endpoint):
    job, other = endpoint.finish(), endpoint.finish()
    client, path = endpoint.as_("a"), f"/v1/audits/{job.id}/events"
    whole, last_of_other = parsed(client.get(path).text), webhooks.find_event(endpoint.db, other.id, 0)[1]
    assert last_of_other > whole[-1][0]
    for strange in (last_of_other, last_of_other + 1000, 10**18 - 1):
        assert parsed(client.get(path, headers={"Last-Event-ID": str(strange)}).text) == whole
    first_of_other = min(event.id for event in webhooks.events_after(endpoint.db, other.id))
    behind = f"/v1/audits/{other.id}/events"
    assert parsed(client.get(behind, headers={"Last-Event-ID": str(whole[0][0])}).text)[0][0] == first_of_other


def test_an_ended_job_whose_events_were_forgotten_is_not_asked_about_for_ever(endpoint):
    job = endpoint.finish()
    client, path = endpoint.as_("a"), f"/v1/audits/{job.id}/events"
    last = parsed(client.get(path).text)[-1][0]
    webhooks.forget_events(endpoint.db, job.ended + 1)
    assert client.get(path).status_code == 204
    assert client.get(path, headers={"Last-Event-ID": str(last)}).status_code == 204


def test_no_tenant_holds_all_streams(endpoint, monkeypatch):
    monkeypatch.setattr(streaming, "MOST_OF_A_TENANT", 2)
    job_id, theirs = endpoint.submit()["id"], endpoint.submit("b")["id"]
    watch = endpoint.context.watch
    held = [follower(job_id, endpoint.tenants["a"]) for _ in range(2)]
    watch._followers.update(held)
    try:
        answer = endpoint.as_("a").get(f"/v1/audits/{job_id}/events")
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_streams")
        assert answer.headers["retry-after"] == "5"
        endpoint.as_("b").delete(f"/v1/audits/{theirs}")
        assert endpoint.as_("b").get(f"/v1/audits/{theirs}/events").status_code == 200
    finally:
        watch._followers.difference_update(held)


def follower(job_id, tenant_id="", key_id=""):
    return EventFollower(job_id, 0, False, Reader(tenant_id, key_id))


@pytest.fixture
def anybody(endpoint):
    """The key of somebody who reads."""
    return tenants.create_key(endpoint.db, endpoint.tenants["a"], "reads").key.id


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)


def test_streams_get_new_events_once_each_and_end_with_the_job(endpoint, quick, anybody):
    job_ids = [endpoint.submit()["id"] for _ in range(3)]
    claims = [endpoint.claim(job_id) for job_id in job_ids]
    watch = JobWatcher(endpoint.db)

    async def follow(job_id):
        return [event async for event in watch.follow(follower(job_id, key_id=anybody), 30.0)]

    async def all_of_them():
        following = [asyncio.create_task(follow(job_id)) for job_id in job_ids for _ in range(20)]
        await asyncio.sleep(0.2)
        assert len(watch) == 60
        before = watch.queries
        await asyncio.sleep(0.3)
        assert watch.queries - before <= 20  # of 60 streams, a query a moment
        for job_id in job_ids:
            for number in range(5):
                await asyncio.to_thread(add_event, endpoint.db, job_id, "progress", {"done": number})
        for job_id, claim in zip(job_ids, claims, strict=True):
            await asyncio.to_thread(running.finish, endpoint.db, job_id, claim.fence)
        return await asyncio.gather(*following)

    for number, seen in enumerate(asyncio.run(all_of_them())):
        assert {event.job_id for event in seen} == {job_ids[number // 20]}
        assert [event.data["done"] for event in seen if event.kind == "progress"] == [0, 1, 2, 3, 4]
        assert [event.id for event in seen] == sorted({event.id for event in seen})
        assert seen[-1].data["state"] == "finished"
    assert len(watch) == 0


def test_a_stream_that_its_client_left_is_forgotten_and_one_ends_in_time(endpoint, quick, anybody):
    job_id = endpoint.submit()["id"]
    watch = JobWatcher(endpoint.db)

    async def scenario():
        stream = watch.follow(follower(job_id, key_id=anybody), 30.0)
        await anext(stream)
        assert len(watch) == 1
        await stream.aclose()
        assert len(watch) == 0
        began = time.monotonic()
        assert [event async for event in watch.follow(follower(job_id, key_id=anybody), 0.2)]
        assert time.monotonic() - began < 5

    asyncio.run(scenario())


def test_the_streams_of_a_key_end_soon_after_it_was_revoked_and_no_others(endpoint, quick, monkeypatch):
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.05)
    tenant_id, job_id = endpoint.tenants["a"], endpoint.submit()["id"]
    ends = [tenants.create_key(endpoint.db, tenant_id, name).key.id for name in ("revoked", "rotated")]
    stays = tenants.create_key(endpoint.db, tenant_id, "stays").key.id
    watch = JobWatcher(endpoint.db)

    async def read(key_id):
        return [event async for event in watch.follow(follower(job_id, tenant_id, key_id), 30.0)]

    async def scenario():
        leaving = [asyncio.create_task(read(key_id)) for key_id in ends]
        staying = asyncio.create_task(read(stays))
        while len(watch) < 3:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(tenants.revoke_key, endpoint.db, tenant_id, ends[0])
        await asyncio.to_thread(tenants.rotate_key, endpoint.db, tenant_id, ends[1], 0.0)
        await asyncio.wait_for(asyncio.gather(*leaving), 20)
        assert len(watch) == 1
        await asyncio.to_thread(jobs.request_cancel, endpoint.db, tenant_id, job_id)
        return await asyncio.wait_for(staying, 20)

    assert asyncio.run(scenario())[-1].data["state"] == "cancelled"


def test_streams_wait_while_the_ledger_is_down(endpoint, quick, anybody, monkeypatch):
    from c2b_ray.endpoint.ledger.database import DatabaseDownError

    job_id = endpoint.submit()["id"]
    claim = endpoint.claim(job_id)
    watch, whole, down = JobWatcher(endpoint.db), JobWatcher._query, [True]

    def query(self, *arguments):
        if down:
            raise DatabaseDownError("gone", 1.0)
        return whole(self, *arguments)

    monkeypatch.setattr(JobWatcher, "_query", query)

    async def scenario():
        async def follow():
            return [event async for event in watch.follow(follower(job_id, key_id=anybody), 30.0)]

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.1)
        down.clear()
        await asyncio.to_thread(running.finish, endpoint.db, job_id, claim.fence)
        return await following

    assert asyncio.run(scenario())[-1].data["state"] == "finished"


def test_a_stream_lasts_as_long_as_its_key_by_the_clock_of_the_database(endpoint, monkeypatch):
    job = endpoint.finish()
    key = tenants.create_key(endpoint.db, job.tenant_id, "short", ["read"], expires_in=60.0)
    context = endpoint.app.state.context
    monkeypatch.setattr(time, "time", lambda: key.key.expires + 3600)  # this host's clock is an hour ahead
    endpoint.db.engine.dispose()
    with endpoint.db.reading() as tx:
        behind = tx.now - key.key.expires
    monkeypatch.setattr(type(endpoint.db), "now", lambda self, connection: key.key.expires - 60.0)
    assert streaming._longest(context, key.key) == 60.0
    assert behind != -60.0


def test_no_more_events_are_read_for_a_client_that_does_not_take_them(endpoint, quick, anybody, monkeypatch):
    monkeypatch.setattr(watching, "MOST_WAITING", 5)
    monkeypatch.setattr(watching, "_AT_ONCE", 5)
    job_id = endpoint.submit()["id"]
    for number in range(40):
        add_event(endpoint.db, job_id, "progress", {"done": number})
    watch, slow = JobWatcher(endpoint.db), follower(job_id, key_id=anybody)

    async def scenario():
        stream = watch.follow(slow, 30.0)
        seen = [await anext(stream)]
        before = watch.queries
        while watch.queries == before and slow.waiting.qsize() < 5:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert slow.waiting.qsize() <= 10
        while len(seen) < 41:
            seen.append(await anext(stream))
        await stream.aclose()
        return seen

    assert [event.data["done"] for event in asyncio.run(scenario())[1:]] == list(range(40))
