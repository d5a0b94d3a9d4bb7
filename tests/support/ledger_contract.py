"""The contract of a ledger in every database: tests that take `db`, an empty ledger, and `open_db`, which opens it
again.

Modules inherit these classes, for SQLite and for PostgreSQL.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from ledgers import (
    PLENTY,
    SetDatabase,
    claimed,
    leader,
    many_granted,
    member,
    set_row,
    submit,
)
from sqlalchemy import delete, select, text, update

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import (
    audit_log,
    buckets,
    events,
    jobs,
    keys,
    leases,
    migrations,
    quotas,
    tables,
    tenants,
    uploads,
    usage,
    webhooks,
)
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.outage import SchemaError
from c2b_ray.errors import ConfigError, InputError, RunError

HOUR = 3600.0
OpenDb = Callable[[], Database]


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs `work` in threads that start together and returns the results; raises the first error."""
    together = threading.Barrier(count)

    def begin(number: int) -> Any:
        together.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def states(db: Database, job_id: str) -> list[str]:
    return [str(event.data["state"]) for event in events.after(db, job_id) if event.kind == "state"]


class JobsContract:
    """Jobs as their owners see them."""

    def test_a_job_is_kept_as_submitted_and_listed_latest_first_page_by_page(self, db: Database) -> None:
        who = member(db)
        submitted = [submit(db, who, name=f"audit {number}") for number in range(5)]
        assert jobs.get(db, who.tenant_id, submitted[0].id) == submitted[0]
        assert (submitted[0].state, submitted[0].config) == ("queued", {"task": "birds"})
        first = jobs.page(db, who.tenant_id, limit=3)
        second = jobs.page(db, who.tenant_id, cursor=first.next, limit=3)
        assert [job.name for job in first.items + second.items] == [f"audit {number}" for number in (4, 3, 2, 1, 0)]
        assert second.next is None
        assert jobs.page(db, who.tenant_id, jobs.Filters(name="audit 3")).items == [submitted[3]]

    def test_jobs_of_one_moment_are_each_on_one_page(self, db: Database) -> None:
        who = member(db)
        ids = set(many_granted(db, who, 7))
        with db.transaction() as tx:
            tx.execute(update(tables.jobs).values(created=1.0))
        cursor, seen = None, []
        while True:
            page = jobs.page(db, who.tenant_id, cursor=cursor, limit=2)
            seen += [job.id for job in page.items]
            if (cursor := page.next) is None:
                break
        assert len(seen) == 7
        assert set(seen) == ids

    def test_an_idempotency_key_gives_the_first_job_again_and_refuses_another_body(self, db: Database) -> None:
        who, other = member(db), member(db, "other")
        new = jobs.NewJob("c2b", {}, {}, idempotency_key="k", body_hash="a")
        first, created = jobs.submit(db, who.tenant_id, None, new, Quotas(concurrent_jobs=1))
        assert created
        before = jobs.submitted_before(db, who.tenant_id, "k", "a")
        assert before is not None
        assert before.id == first.id
        assert jobs.submitted_before(db, who.tenant_id, "l", "a") is None
        # Also where one more job would be too many.
        assert jobs.submit(db, who.tenant_id, None, new, Quotas(concurrent_jobs=1)) == (first, False)
        with pytest.raises(jobs.IdempotencyConflictError) as refused:
            jobs.submit(db, who.tenant_id, None, replace(new, body_hash="b"), PLENTY)
        assert refused.value.job_id == first.id
        of_other, created = jobs.submit(db, other.tenant_id, None, replace(new, body_hash="b"), PLENTY)
        assert created
        assert of_other.id != first.id
        jobs.forget_idempotency(db, before=first.created + HOUR)
        assert jobs.submit(db, who.tenant_id, None, new, PLENTY)[1]

    def test_a_refused_submission_leaves_its_idempotency_key_unused(self, db: Database) -> None:
        who = member(db)
        new = jobs.NewJob("c2b", {}, {}, idempotency_key="k", body_hash="a")
        with pytest.raises(quotas.Denied):
            jobs.submit(db, who.tenant_id, None, new, Quotas(concurrent_jobs=0))
        assert jobs.submit(db, who.tenant_id, None, new, PLENTY)[1]

    def test_many_submissions_with_one_key_at_once_are_one_job(self, db: Database) -> None:
        who = member(db)
        new = jobs.NewJob("c2b", {}, {}, idempotency_key="k", body_hash="a")
        answers = at_once(8, lambda _: jobs.submit(db, who.tenant_id, None, new, PLENTY))
        assert len({job.id for job, _ in answers}) == 1
        assert sum(created for _, created in answers) == 1
        assert len(jobs.page(db, who.tenant_id).items) == 1

    def test_submissions_at_once_never_exceed_the_quota(self, db: Database) -> None:
        who = member(db, concurrent_jobs=3)

        def one(_: int) -> bool:
            try:
                return jobs.submit(db, who.tenant_id, None, jobs.NewJob("c2b", {}, {}), PLENTY)[1]
            except quotas.Denied:
                return False

        assert sum(at_once(8, one)) == 3

    def test_a_job_that_waits_is_cancelled_at_once_and_one_that_runs_is_asked_to_end(self, db: Database) -> None:
        who = member(db)
        waits = submit(db, who)
        cancelled = jobs.request_cancel(db, who.tenant_id, waits.id)
        assert cancelled is not None
        assert cancelled.state == "cancelled"
        assert cancelled.ended is not None
        claim = claimed(db, who)
        running = jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert running is not None
        assert running.state == "running"
        assert jobs.renew(db, claim.job.id, claim.fence, 30).cancel
        ended = jobs.cancelled(db, claim.job.id, claim.fence)
        assert ended.state == "cancelled"
        assert jobs.request_cancel(db, who.tenant_id, claim.job.id) == ended
        assert states(db, claim.job.id) == ["queued", "queued", "running", "running", "cancelled"]

    def test_a_job_whose_runner_is_gone_is_cancelled_at_once(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        set_row(db, claim.job.id, lease_until=1.0)
        cancelled = jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert cancelled is not None
        assert cancelled.state == "cancelled"
        with pytest.raises(jobs.FencedError):
            jobs.finish(db, claim.job.id, claim.fence)

    def test_only_an_ended_job_is_deleted_and_it_is_in_no_list_then(self, db: Database) -> None:
        who = member(db)
        job = submit(db, who, name="secret birds")
        with pytest.raises(RunError, match="has not ended"):
            jobs.set_deleted(db, who.tenant_id, job.id)
        jobs.request_cancel(db, who.tenant_id, job.id)
        assert jobs.set_deleted(db, who.tenant_id, job.id) is not None
        assert jobs.get(db, who.tenant_id, job.id) is None
        assert jobs.page(db, who.tenant_id).items == []
        assert jobs.set_deleted(db, who.tenant_id, job.id) is None
        with db.reading() as tx:
            [row] = tx.execute(select(tables.jobs)).mappings()
            assert "birds" not in str(dict(row))

    def test_the_idempotency_key_of_a_deleted_job_is_a_new_one(self, db: Database) -> None:
        who = member(db)
        first = submit(db, who, idempotency_key="k", body_hash="a")
        jobs.request_cancel(db, who.tenant_id, first.id)
        assert submit(db, who, idempotency_key="k", body_hash="a").state == "cancelled"
        jobs.set_deleted(db, who.tenant_id, first.id)
        assert submit(db, who, idempotency_key="k", body_hash="b").id != first.id

    @pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines", "nul\0", "\ud800"])
    def test_a_name_that_a_database_or_a_page_would_not_take_is_refused(self, db: Database, name: str) -> None:
        with pytest.raises(ConfigError, match="name"):
            submit(db, member(db), name=name)

    @pytest.mark.parametrize("job_id", ["", "job_\0", "job_'; --", "../x", "x" * 10_000, "job_" + "0" * 24, "\ud800"])
    def test_an_id_that_is_none_names_no_job(self, db: Database, job_id: str) -> None:
        who = member(db)
        assert jobs.get(db, who.tenant_id, job_id) is None
        assert jobs.request_cancel(db, who.tenant_id, job_id) is None
        assert jobs.set_deleted(db, who.tenant_id, job_id) is None


class RunningContract:
    """Jobs as runners and the dispatcher see them."""

    def test_only_a_granted_job_is_claimed(self, db: Database) -> None:
        who = member(db)
        job = submit(db, who)
        assert jobs.claim(db, "runner", 30) is None
        assert [waits.id for waits in jobs.waiting(db)] == [job.id]
        assert jobs.grant(db, job.id, leader(db))
        assert jobs.waiting(db) == []
        claim = jobs.claim(db, "runner", 30)
        assert claim is not None
        assert (claim.job.id, claim.job.state, claim.job.owner, claim.job.attempt) == (job.id, "running", "runner", 0)
        assert jobs.claim(db, "another", 30) is None
        assert not jobs.grant(db, job.id, leader(db))

    def test_who_leads_no_more_grants_nothing(self, db: Database) -> None:
        who = member(db)
        job, before = submit(db, who), leader(db)
        leases.give_back(db, before)
        assert leases.take(db, "dispatcher", "another", 60) is not None
        assert not jobs.grant(db, job.id, before)
        assert not jobs.ask_to_yield(db, job.id, before)

    def test_the_oldest_of_each_tenant_wait_however_many_one_has(self, db: Database) -> None:
        many, one = member(db, "many"), member(db, "one")
        many_granted(db, many, 30)
        with db.transaction() as tx:
            tx.execute(update(tables.jobs).values(granted=None))
        later = submit(db, one)
        waiting = jobs.waiting(db, per_tenant=5)
        assert [job.id for job in waiting] == [f"job_{number:024x}" for number in range(5)] + [later.id]

    def test_progress_is_kept_counted_and_told(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        report = jobs.Progress("classify", 32, 100, 8.0, 8.5, {"m": 32}, {"m": 2.0, "g": 1.0}, 4096)
        for _ in range(2):
            assert jobs.progress(db, claim.job.id, claim.fence, report) == jobs.Orders(cancel=False, yield_=False)
        job = jobs.get(db, who.tenant_id, claim.job.id)
        assert job is not None
        assert (job.stage, job.done, job.total, job.rate, job.seconds_left) == ("classify", 32, 100, 8.0, 8.5)
        assert (job.images, job.model_seconds, job.bytes) == (64, 6.0, 4096)
        spent = usage.spend(db, who.tenant_id, "0000-00-00", "9999-99-99")
        assert [(row.key_id, row.model, row.images, row.model_seconds) for row in spent] == [
            (who.key_id, "g", 0, 2.0), (who.key_id, "m", 64, 4.0)
        ]  # fmt: skip
        last = events.after(db, job.id)[-1]
        assert (last.kind, last.data["done"]) == ("progress", 32)
        assert events.after(db, job.id, last.id) == []

    def test_a_slice_ends_and_the_job_waits_for_its_next_turn(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        assert jobs.ask_to_yield(db, claim.job.id, leader(db))
        assert jobs.renew(db, claim.job.id, claim.fence, 30).yield_
        job = jobs.release(db, claim.job.id, claim.fence)
        assert (job.state, job.slices, job.owner, job.granted, job.yield_requested) == ("queued", 1, None, None, False)
        assert jobs.claim(db, "runner", 30) is None
        assert jobs.grant(db, job.id, leader(db))
        again = jobs.claim(db, "runner", 30)
        assert again is not None
        assert (again.fence, again.job.started) == (claim.fence + 1, claim.job.started)

    def test_a_released_job_may_have_to_wait_until_a_time(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        released = jobs.release(db, claim.job.id, claim.fence, not_before=claim.job.created + HOUR)
        assert jobs.waiting(db) == []
        assert released.not_before is not None

    def test_a_job_that_is_released_after_its_cancellation_was_requested_is_cancelled(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert jobs.release(db, claim.job.id, claim.fence).state == "cancelled"

    def test_a_fenced_off_runner_changes_nothing(self, db: Database) -> None:
        who = member(db)
        old = claimed(db, who)
        set_row(db, old.job.id, lease_until=1.0)
        new = jobs.claim(db, "another", 30)
        assert new is not None
        assert (new.job.id, new.job.attempt) == (old.job.id, 1)
        before = jobs.get(db, who.tenant_id, old.job.id)
        job_id, fence = old.job.id, old.fence
        for refused in (
            lambda: jobs.renew(db, job_id, fence, 30),
            lambda: jobs.check_fence(db, job_id, fence),
            lambda: jobs.progress(db, job_id, fence, jobs.Progress("x", 1, images={"m": 5})),
            lambda: jobs.report(db, job_id, fence, "step", {}),
            lambda: jobs.release(db, job_id, fence),
            lambda: jobs.finish(db, job_id, fence, "runs/x"),
            lambda: jobs.fail(db, job_id, fence, jobs.Failure("no")),
            lambda: jobs.cancelled(db, job_id, fence),
        ):
            with pytest.raises(jobs.FencedError):
                refused()
        assert jobs.get(db, who.tenant_id, job_id) == before
        assert usage.spend(db, who.tenant_id, "0000-00-00", "9999-99-99") == []
        assert jobs.finish(db, job_id, new.fence, "runs/x").state == "finished"
        with pytest.raises(jobs.FencedError):  # twice
            jobs.finish(db, job_id, new.fence, "runs/x")

    def test_a_failure_is_told_to_its_owner(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        failure = jobs.Failure("Weights are gone", "upload:abc was deleted", "classifier", "upload:abc")
        failed = jobs.fail(db, claim.job.id, claim.fence, failure)
        assert failed.failure == vars(failure)
        assert events.after(db, failed.id)[-1].data == {"state": "failed", "failure": vars(failure)}

    def test_a_job_that_its_runners_die_of_is_failed_after_so_many(self, db: Database) -> None:
        who = member(db)
        claimed(db, who)
        for attempt in (1, 2):
            with db.transaction() as tx:
                tx.execute(update(tables.jobs).values(lease_until=1.0))
            assert jobs.sweep(db, attempts=3) == []
            claim = jobs.claim(db, "runner", 30, attempts=3)
            assert claim is not None
            assert claim.job.attempt == attempt
        set_row(db, claim.job.id, lease_until=1.0)
        assert jobs.claim(db, "runner", 30, attempts=3) is None
        [failed] = jobs.sweep(db, attempts=3)
        assert failed.state == "failed"
        assert failed.failure is not None
        assert "ended its runner" in failed.failure["title"]
        with pytest.raises(jobs.FencedError):
            jobs.renew(db, claim.job.id, claim.fence, 30)

    def test_a_lost_job_whose_cancellation_was_requested_is_swept_up(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert jobs.sweep(db) == []
        set_row(db, claim.job.id, lease_until=1.0)
        assert [job.state for job in jobs.sweep(db)] == ["cancelled"]

    def test_the_clock_jumps_and_a_job_has_one_runner_all_the_same(self, db: SetDatabase) -> None:
        who = member(db)
        claim = claimed(db, who, seconds=30)
        db.skew = -HOUR  # back: the lease seems to end an hour ahead
        taken = jobs.claim(db, "another", 30)
        assert taken is not None
        assert taken.job.id == claim.job.id
        with pytest.raises(jobs.FencedError):
            jobs.renew(db, claim.job.id, claim.fence, 30)
        db.skew = 0.0  # forward again: everything has lapsed
        again = jobs.claim(db, "a third", 30)
        assert again is not None
        assert again.fence == taken.fence + 1
        with pytest.raises(jobs.FencedError):
            jobs.finish(db, taken.job.id, taken.fence)
        assert jobs.finish(db, again.job.id, again.fence).state == "finished"

    def test_a_clock_that_is_set_a_little_takes_no_job_from_its_runner(self, db: SetDatabase) -> None:
        claim = claimed(db, member(db), seconds=30)
        for skew in (-10.0, 10.0):
            db.skew = skew
            assert jobs.claim(db, "another", 30) is None
            jobs.renew(db, claim.job.id, claim.fence, 30)

    def test_runners_in_threads_share_200_jobs_and_none_is_claimed_twice(self, db: Database) -> None:
        ids = many_granted(db, member(db), 200)

        def run(number: int) -> list[str]:
            mine = []
            while (claim := jobs.claim(db, f"runner {number}", 60)) is not None:
                mine.append(claim.job.id)
            return mine

        claims = [job_id for mine in at_once(6, run) for job_id in mine]
        assert sorted(claims) == ids

    def test_runners_in_processes_share_jobs_and_none_is_claimed_twice(self, db: Database) -> None:
        ids = many_granted(db, member(db), 60)
        url = db.engine.url.render_as_string(hide_password=False)
        command = [sys.executable, "-c", _CLAIM_ALL, url]
        runners = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        claims = [line for runner in runners for line in runner.communicate(timeout=120)[0].split()]
        assert [runner.returncode for runner in runners] == [0, 0, 0]
        assert sorted(claims) == ids


_CLAIM_ALL = """
import os, sys
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.database import Database
db = Database(sys.argv[1])
while (claim := jobs.claim(db, str(os.getpid()), 60)) is not None:
    print(claim.job.id)
db.close()
"""


class LeasesContract:
    def test_one_holder_at_a_time_and_a_fence_that_grows(self, db: Database) -> None:
        first = leases.take(db, "dispatcher", "a", 30)
        assert first is not None
        assert leases.take(db, "dispatcher", "b", 30) is None
        same = leases.take(db, "dispatcher", "a", 30)
        assert same is not None
        assert same.fence == first.fence
        assert leases.renew(db, first).until >= same.until
        leases.give_back(db, first)
        assert leases.holder(db, "dispatcher") is None
        second = leases.take(db, "dispatcher", "b", 30)
        assert second is not None
        assert second.fence > first.fence
        with pytest.raises(jobs.FencedError):
            leases.renew(db, first)
        leases.give_back(db, first)
        assert leases.holder(db, "dispatcher") == second

    def test_of_many_that_take_one_at_once_one_has_it(self, db: Database) -> None:
        taken = at_once(6, lambda number: leases.take(db, "dispatcher", f"runner {number}", 30))
        assert sum(lease is not None for lease in taken) == 1

    @pytest.mark.parametrize("skew", [HOUR, -HOUR])
    def test_a_clock_that_jumps_leaves_no_lease_for_ever(self, db: SetDatabase, skew: float) -> None:
        dead = leases.take(db, "dispatcher", "dead", 30)
        assert dead is not None
        db.skew = skew
        heir = leases.take(db, "dispatcher", "heir", 30)
        assert heir is not None
        assert heir.fence == dead.fence + 1


class KeysContract:
    def test_a_key_is_known_by_its_text_alone_and_only_its_hash_is_kept(self, db: Database) -> None:
        tenant = tenants.create(db, "acme")
        new = keys.create(db, tenant.id, "ci", ["read"])
        assert keys.verify(db, new.text) == new.key
        assert new.key.allows("read")
        assert not new.key.allows("submit")
        assert not new.key.allows("admin")
        secret = new.text.rpartition("_")[2]
        with db.reading() as tx:
            everything = [str(row) for table in (tables.keys, tables.audit_log) for row in tx.execute(select(table))]
        assert not any(secret in row for row in everything)
        assert secret not in repr(new)

    def test_a_wrong_secret_an_unknown_prefix_and_what_is_no_key_are_none(self, db: Database) -> None:
        new = keys.create(db, tenants.create(db, "acme").id, "ci")
        wrong = new.text[:-1] + ("a" if new.text[-1] != "a" else "b")
        unknown = f"c2b_{'0' * 8}_{new.text[-32:]}"
        for text_ in (
            wrong,
            unknown,
            "",
            "c2b_",
            new.text + "\n",
            new.text.upper(),
            f"Bearer {new.text}",
            "\0",
            "\ud800",
        ):
            assert keys.verify(db, text_) is None
            assert keys.KeyRing(db).verify(text_) is None

    def test_a_key_expires_to_the_moment_also_where_it_is_remembered(self, db: SetDatabase) -> None:
        new = keys.create(db, tenants.create(db, "acme").id, "ci", expires_in=100)
        assert keys.verify(db, new.text) == new.key
        db.skew = 98.5
        ring = keys.KeyRing(db, seconds=60)
        assert ring.verify(new.text) is not None
        db.skew = 100.1
        threading.Event().wait(1.6)  # the ring counts by this process's own clock
        assert ring.verify(new.text) is None
        assert keys.verify(db, new.text) is None

    def test_a_revoked_key_works_no_longer_than_it_is_remembered(self, db: Database) -> None:
        tenant = tenants.create(db, "acme")
        new = keys.create(db, tenant.id, "ci")
        ring, forgetful = keys.KeyRing(db, seconds=0.2), keys.KeyRing(db, seconds=0)
        assert ring.verify(new.text) is not None
        assert forgetful.verify(new.text) is not None
        revoked = keys.revoke(db, tenant.id, new.key.id)
        assert revoked is not None
        assert revoked.revoked is not None
        assert keys.verify(db, new.text) is None
        assert forgetful.verify(new.text) is None
        threading.Event().wait(0.25)
        assert ring.verify(new.text) is None
        assert keys.revoke(db, tenant.id, new.key.id) == revoked

    def test_a_rotated_key_works_for_its_grace(self, db: SetDatabase) -> None:
        tenant = tenants.create(db, "acme")
        old = keys.create(db, tenant.id, "ci", ["submit"], expires_in=1000)
        new = keys.rotate(db, tenant.id, old.key.id, grace_seconds=60)
        assert new is not None
        assert (new.key.name, new.key.scopes, new.key.expires) == ("ci", ("submit",), old.key.expires)
        assert keys.verify(db, old.text) is not None
        db.skew = 61
        assert keys.verify(db, old.text) is None
        assert keys.verify(db, new.text) == new.key
        with pytest.raises(InputError, match="no longer works"):
            keys.rotate(db, tenant.id, old.key.id)
        db.skew = 0
        keys.rotate(db, tenant.id, new.key.id, grace_seconds=HOUR)
        db.skew = 1001  # no rotation makes a key outlive itself
        assert keys.verify(db, new.text) is None

    def test_that_a_key_is_used_is_written_down_now_and_then(self, db: Database) -> None:
        tenant = tenants.create(db, "acme")
        new, ring = keys.create(db, tenant.id, "ci"), keys.KeyRing(db, seconds=0)
        ring.verify(new.text)
        [first] = keys.listed(db, tenant.id)
        assert first.last_used is not None
        ring.verify(new.text)
        assert keys.listed(db, tenant.id) == [first]

    @pytest.mark.parametrize(
        ("field", "values"),
        [("name", {"name": ""}), ("scopes", {"scopes": ["root"]}), ("scopes", {"scopes": []}),
         ("expires_in", {"expires_in": 0}), ("expires_in", {"expires_in": float("nan")})],
    )  # fmt: skip
    def test_a_key_that_cannot_be_is_refused_by_its_field(
        self, db: Database, field: str, values: dict[str, Any]
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            keys.create(db, tenants.create(db, "acme").id, **({"name": "ci"} | values))
        assert refused.value.field == field


class QuotasContract:
    def test_too_many_jobs_are_refused_until_one_ends(self, db: Database) -> None:
        who, limits = member(db), Quotas(concurrent_jobs=2)
        new = jobs.NewJob("c2b", {}, {})
        first, _ = jobs.submit(db, who.tenant_id, None, new, limits)
        jobs.submit(db, who.tenant_id, None, new, limits)
        with pytest.raises(quotas.Denied) as denied:
            jobs.submit(db, who.tenant_id, None, new, limits)
        assert (denied.value.quota, denied.value.limit, denied.value.remaining) == ("concurrent_jobs", 2, 0)
        assert denied.value.retry_after > 0
        jobs.request_cancel(db, who.tenant_id, first.id)
        assert jobs.submit(db, who.tenant_id, None, new, limits)[1]

    def test_a_tenants_own_quotas_replace_the_defaults_field_by_field(self, db: Database) -> None:
        who = member(db, concurrent_jobs=1)
        limits = Quotas(concurrent_jobs=5, images_per_day=0)
        with pytest.raises(quotas.Denied) as denied:
            jobs.submit(db, who.tenant_id, None, jobs.NewJob("c2b", {}, {}), limits)
        assert denied.value.quota == "images_per_day"
        tenants.change(db, who.tenant_id, quotas={"images_per_day": None})
        assert jobs.submit(db, who.tenant_id, None, jobs.NewJob("c2b", {}, {}), limits)[1]

    def test_images_and_seconds_of_today_count_and_tomorrow_begins_anew(self, db: SetDatabase) -> None:
        who = member(db)
        claim = claimed(db, who)
        jobs.progress(db, claim.job.id, claim.fence, jobs.Progress(images={"m": 90}, model_seconds={"m": 50.0}))
        limits = Quotas(images_per_day=100, model_seconds_per_day={"*": 50.0, "g": 1000.0})

        def quota_of(images: int, *models: str) -> str | None:
            try:
                jobs.submit(db, who.tenant_id, None, jobs.NewJob("c2b", {}, {}, images=images, models=models), limits)
            except quotas.Denied as denied:
                return denied.quota if 0 < denied.retry_after <= 24 * HOUR else "a wrong time to wait"
            return None

        assert quota_of(10, "g") is None
        assert quota_of(11, "g") == "images_per_day"
        assert quota_of(1, "g", "m") == "model_seconds_per_day"
        assert quota_of(1) == "model_seconds_per_day"
        db.skew = 24 * HOUR
        assert quota_of(100, "m") is None

    def test_a_running_job_may_use_up_a_quota_and_not_exceed_it(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        used = jobs.Progress(images={"m": 90}, model_seconds={"m": 50.0}, bytes=600)
        jobs.progress(db, claim.job.id, claim.fence, used)

        def exceeded(**limits: Any) -> str | None:
            try:
                quotas.check_running(db, who.tenant_id, ["m"], Quotas(**limits))
            except quotas.Denied as denied:
                return denied.quota
            return None

        assert exceeded() is None
        assert exceeded(images_per_day=90, model_seconds_per_day={"m": 50.0}, storage_bytes=600) is None
        assert exceeded(images_per_day=89) == "images_per_day"
        assert exceeded(model_seconds_per_day={"*": 49.0}) == "model_seconds_per_day"
        assert exceeded(model_seconds_per_day={"n": 1.0}) is None
        assert exceeded(storage_bytes=599) == "storage_bytes"
        assert exceeded(concurrent_jobs=0) is None
        tenants.change(db, who.tenant_id, quotas={"images_per_day": 10})
        assert exceeded() == "images_per_day"

    def test_uploads_and_runs_share_the_bytes(self, db: Database) -> None:
        who, limits = member(db), Quotas(storage_bytes=1000)
        claim = claimed(db, who)
        jobs.progress(db, claim.job.id, claim.fence, jobs.Progress(bytes=600))
        new = uploads.NewUpload("a" * 64, "onnx", 400, "net.onnx", {})
        uploads.check_room(db, who.tenant_id, 400, limits)
        upload, created = uploads.add(db, who.tenant_id, None, new, limits)
        assert created
        assert uploads.add(db, who.tenant_id, None, new, limits) == (upload, False)  # the same content, once
        with pytest.raises(quotas.Denied) as denied:
            uploads.add(db, who.tenant_id, None, replace(new, sha256="b" * 64, bytes=1), limits)
        assert (denied.value.quota, denied.value.remaining) == ("storage_bytes", 0)
        with pytest.raises(quotas.Denied):
            jobs.submit(db, who.tenant_id, None, jobs.NewJob("c2b", {}, {}), limits)
        standing = quotas.limits_and_use(db, who.tenant_id, limits)
        assert standing["storage_bytes"] == {"limit": 1000, "used": 1000}
        jobs.finish(db, claim.job.id, claim.fence)
        jobs.set_deleted(db, who.tenant_id, claim.job.id)
        assert uploads.add(db, who.tenant_id, None, replace(new, sha256="b" * 64), limits)[1]

    def test_a_bucket_empties_and_fills_at_its_rate_and_no_further_than_its_burst(self, db: SetDatabase) -> None:
        for _ in range(3):
            buckets.take(db, "acme", rate=2.0, burst=3)
        with pytest.raises(quotas.Denied) as denied:
            buckets.take(db, "acme", rate=2.0, burst=3)
        assert 0.3 < denied.value.retry_after <= 0.5
        assert denied.value.limit == 3
        buckets.take(db, "another", rate=2.0, burst=3)
        db.skew = 0.6
        assert buckets.take(db, "acme", rate=2.0, burst=3).remaining == 0
        db.skew = HOUR
        assert buckets.take(db, "acme", rate=2.0, burst=3).remaining == 2
        db.skew = -HOUR  # the clock is set back: it fills from now on
        assert buckets.take(db, "acme", rate=2.0, burst=3).remaining == 1

    def test_threads_and_replicas_together_spend_no_more_than_flowed_in(self, db: Database, open_db: OpenDb) -> None:
        replicas = [buckets.Throttle(db), buckets.Throttle(open_db())]

        def spend(number: int) -> int:
            spent = 0
            for _ in range(60):
                try:
                    replicas[number % 2].take("acme", rate=1e-6, burst=100)
                    spent += 1
                except quotas.Denied:
                    threading.Event().wait(0.001)
            return spent

        # All of it; what one replica took by the handful and did not spend is at most a handful.
        assert 90 <= sum(at_once(4, spend)) <= 100


class AuditLogContract:
    def entries(self, db: Database, count: int) -> None:
        with db.transaction() as tx:
            for number in range(count):
                audit_log.append(tx, audit_log.Entry("key_x", "test", data={"n": number, "text": "ä\0\ud800"}))

    def test_what_was_done_and_its_entry_are_kept_together_or_not_at_all(self, db: Database) -> None:
        def half_done() -> None:
            with db.transaction() as tx:
                audit_log.append(tx, audit_log.Entry("key_x", "test"))
                raise RunError("the other half")

        with pytest.raises(RunError):
            half_done()
        assert audit_log.head(db) == audit_log.Head(0, audit_log.BEGINNING)
        who = member(db)
        job = submit(db, who)
        jobs.request_cancel(db, who.tenant_id, job.id, actor=who.key_id)
        actions = [(entry.action, entry.actor) for entry in audit_log.page(db, tenant_id=who.tenant_id)]
        assert actions == [
            ("job.cancel", who.key_id), ("job.submit", who.key_id), ("key.create", "operator"),
            ("tenant.create", "operator"),
        ]  # fmt: skip
        assert audit_log.verify(db) is None

    def test_those_who_append_at_once_make_one_chain(self, db: Database) -> None:
        at_once(6, lambda _: [self.entries(db, 1) for _ in range(5)])
        assert audit_log.head(db).seq == 30
        assert audit_log.verify(db) is None

    @pytest.mark.parametrize(
        ("column", "value"),
        [("actor", "someone else"), ("at", 1.0), ("tenant_id", "tenant_x"), ("action", "nothing"), ("subject", "s"),
         ("data", "{}"), ("previous", "0" * 64), ("hash", "0" * 64), ("seq", 100)],
    )  # fmt: skip
    def test_a_changed_entry_is_found(self, db: Database, column: str, value: Any) -> None:
        self.entries(db, 6)
        with db.transaction() as tx:
            tx.execute(update(tables.audit_log).where(tables.audit_log.c.seq == 4).values({column: value}))
        broken = audit_log.verify(db)
        assert broken is not None
        assert broken.seq == 4

    def test_entries_that_are_gone_or_added_are_found_wherever_they_are(self, db: Database) -> None:
        self.entries(db, 6)
        log = tables.audit_log
        with db.reading() as tx:
            rows = [dict(row) for row in tx.execute(select(log).order_by(log.c.seq)).mappings()]
        for damage, first in (
            (delete(log).where(log.c.seq == 1), 1),
            (delete(log).where(log.c.seq.in_([3, 4])), 3),
            (delete(log).where(log.c.seq > 4), 5),
            (delete(log), 1),
            (log.insert().values(rows[5] | {"seq": 7}), 7),
            (log.insert().values(rows[5] | {"seq": 0}), 0),
        ):
            with db.transaction() as tx:
                tx.execute(damage)
            broken = audit_log.verify(db)
            assert broken is not None, str(damage)
            assert broken.seq in (first, 1), str(damage)
            with db.transaction() as tx:
                tx.execute(delete(log))
                tx.execute(log.insert(), rows)
            assert audit_log.verify(db) is None

    def test_a_log_that_was_written_anew_or_cut_off_is_found_by_a_head_that_was_kept(self, db: Database) -> None:
        self.entries(db, 5)
        kept = audit_log.head(db)
        self.entries(db, 1)
        assert audit_log.verify(db, kept) is None
        _forget_entries(db, from_seq=4)
        assert audit_log.verify(db) is None  # the head was set too: the chain alone cannot tell
        broken = audit_log.verify(db, kept)
        assert broken is not None
        assert broken.seq == 4
        self.entries(db, 4)
        broken = audit_log.verify(db, kept)
        assert broken is not None
        assert "rewritten" in broken.reason

    def test_a_log_larger_than_a_batch_is_verified(self, db: Database) -> None:
        self.entries(db, 1100)
        assert audit_log.verify(db) is None
        with db.transaction() as tx:
            tx.execute(update(tables.audit_log).where(tables.audit_log.c.seq == 1050).values(actor="x"))
        broken = audit_log.verify(db)
        assert broken is not None
        assert broken.seq == 1050


def _forget_entries(db: Database, from_seq: int) -> None:
    """Deletes entries as an attacker would who may write to the database and knows the log's format."""
    with db.transaction() as tx:
        tx.execute(delete(tables.audit_log).where(tables.audit_log.c.seq >= from_seq))
        last = tables.audit_log.c.seq == from_seq - 1
        hash_ = tx.scalar(select(tables.audit_log.c.hash).where(last))
        tx.execute(update(tables.audit_head).values(seq=from_seq - 1, hash=hash_))


class WebhooksContract:
    def test_each_end_of_a_job_is_due_once_to_each_webhook_of_its_tenant(self, db: SetDatabase) -> None:
        who, other = member(db), member(db, "other")
        hooks = [webhooks.create(db, who.tenant_id, f"https://example.org/{number}", "s") for number in range(2)]
        webhooks.create(db, other.tenant_id, "https://example.org/other", "s")
        claim = claimed(db, who)
        assert webhooks.due(db) == []
        jobs.finish(db, claim.job.id, claim.fence)
        due = webhooks.due(db)
        assert {hook.id for _, hook in due} == {hook.id for hook in hooks}
        assert {one.job_id for one, _ in due} == {claim.job.id}
        assert webhooks.due(db) == []  # another sender has them
        webhooks.delivered(db, due[0][0].id)
        webhooks.failed(db, due[1][0].id, "500", retry_in=10)
        db.skew = 11
        [(again, hook)] = webhooks.due(db)
        assert (again.id, again.attempts, again.last_error) == (due[1][0].id, 1, "500")
        db.skew = 11 + webhooks.SENDING_SECONDS + 1  # the sender died
        assert [one.id for one, _ in webhooks.due(db)] == [again.id]
        webhooks.failed(db, again.id, "500", retry_in=None)
        [given_up] = webhooks.deliveries(db, who.tenant_id, hook.id)
        assert given_up.state == "given_up"

    def test_a_tenant_with_many_deliveries_holds_up_no_other(self, db: SetDatabase) -> None:
        many, other = member(db), member(db, "other")
        hooks = [webhooks.create(db, many.tenant_id, "https://slow.example.org", "s") for _ in range(12)]
        claim = claimed(db, many)
        jobs.finish(db, claim.job.id, claim.fence)
        db.skew = 5
        webhooks.create(db, other.tenant_id, "https://example.org", "s")
        claim = claimed(db, other)
        jobs.finish(db, claim.job.id, claim.fence)
        first = webhooks.due(db, 4)
        assert [hook.tenant_id for _, hook in first].count(other.tenant_id) == 1
        assert len(first) + len(webhooks.due(db, 100)) == len(hooks) + 1

    def test_what_is_due_is_so_also_after_the_clock_was_set_back(self, db: SetDatabase) -> None:
        who = member(db)
        webhooks.create(db, who.tenant_id, "https://example.org", "s")
        claim = claimed(db, who)
        jobs.finish(db, claim.job.id, claim.fence)
        db.skew = -48 * HOUR
        assert len(webhooks.due(db)) == 1

    def test_a_webhook_is_removed_while_jobs_end_and_no_end_is_lost(self, db: Database) -> None:
        who = member(db)
        claims = [claimed(db, who) for _ in range(6)]
        hooks = [webhooks.create(db, who.tenant_id, "https://example.org", "s") for _ in range(6)]

        def work(number: int) -> None:
            if number % 2:
                assert webhooks.remove(db, who.tenant_id, hooks[number // 2].id)
            else:
                claim = claims[number // 2]
                jobs.finish(db, claim.job.id, claim.fence)

        at_once(12, work)
        assert {job.state for job in jobs.page(db, who.tenant_id).items} == {"finished"}


class IsolationContract:
    def test_a_tenant_sees_and_changes_nothing_of_another(self, db: Database) -> None:
        """Calls every function that takes a tenant's id, by one tenant for another's data."""
        who, other = member(db, "who"), member(db, "other")
        claim = claimed(db, who)
        jobs.progress(db, claim.job.id, claim.fence, jobs.Progress(images={"m": 5}, model_seconds={"m": 1.0}, bytes=9))
        upload, _ = uploads.add(db, who.tenant_id, None, uploads.NewUpload("a" * 64, "onnx", 9, "n", {}), PLENTY)
        hook = webhooks.create(db, who.tenant_id, "https://example.org", "s")
        jobs.finish(db, claim.job.id, claim.fence, "runs/x", "hash")
        submit(db, who, idempotency_key="k", body_hash="a")
        job_id, them = claim.job.id, other.tenant_id
        before = _everything(db)
        answers: dict[str, Any] = {
            "jobs.get": jobs.get(db, them, job_id),
            "jobs.page": jobs.page(db, them).items,
            "jobs.page by classifier": jobs.page(db, them, jobs.Filters(classifier_hash="hash")).items,
            "jobs.page after a cursor": jobs.page(db, them, cursor=(9e12, "z")).items,
            "jobs.request_cancel": jobs.request_cancel(db, them, job_id),
            "jobs.set_deleted": jobs.set_deleted(db, them, job_id),
            "jobs.submitted_before": jobs.submitted_before(db, them, "k", "a"),
            "usage.spend": usage.spend(db, them, "0000-00-00", "9999-99-99"),
            "uploads.get": uploads.get(db, them, upload.sha256),
            "uploads.page": uploads.page(db, them)[0],
            "uploads.remove": uploads.remove(db, them, upload.sha256),
            "webhooks.listed": webhooks.listed(db, them),
            "webhooks.get": webhooks.get(db, them, hook.id),
            "webhooks.remove": webhooks.remove(db, them, hook.id),
            "webhooks.deliveries": webhooks.deliveries(db, them, hook.id),
            "keys.get": keys.get(db, them, who.key_id),
            "keys.revoke": keys.revoke(db, them, who.key_id),
            "keys.rotate": keys.rotate(db, them, who.key_id),
            "keys.listed": [key for key in keys.listed(db, them) if key.tenant_id != them],
            "audit_log.page": [entry for entry in audit_log.page(db, tenant_id=them) if entry.tenant_id != them],
        }
        assert {name: answer for name, answer in answers.items() if answer} == {}
        # A function that is written later is asked here, too, unless it only makes what is the caller's own.
        covered = {name.split()[0] for name in answers} | {"quotas.limits_and_use"}
        makes = {"jobs.submit", "keys.create", "uploads.add", "uploads.check_room", "webhooks.create"}
        parts = {"usage.add", "usage.by_model", "quotas.locked_limits", "quotas.check_submission", "quotas.check_use",
                 "quotas.check_running", "quotas.held", "webhooks.announce"}  # fmt: skip
        operators = {"tenants.change", "tenants.get", "tenants.remove"}
        assert _of_tenants() - covered - makes - parts - operators == set()
        standing = quotas.limits_and_use(db, them, PLENTY)
        assert [standing[name]["used"] for name in ("concurrent_jobs", "images_per_day", "storage_bytes")] == [0, 0, 0]
        assert _everything(db) == before

    def test_the_same_content_is_an_upload_of_each_and_removed_by_each(self, db: Database) -> None:
        who, other = member(db, "who"), member(db, "other")
        new = uploads.NewUpload("a" * 64, "onnx", 9, "n", {})
        for tenant in (who, other):
            assert uploads.add(db, tenant.tenant_id, None, new, PLENTY)[1]
        assert uploads.remove(db, who.tenant_id, new.sha256)
        assert uploads.get(db, who.tenant_id, new.sha256) is None
        assert uploads.get(db, other.tenant_id, new.sha256) is not None

    def test_a_tenant_that_is_removed_leaves_nothing_but_its_entries_in_the_log(self, db: Database) -> None:
        other = member(db, "other")
        submit(db, other)
        before = _everything(db)
        who = member(db, "who")
        webhooks.create(db, who.tenant_id, "https://example.org", "s")
        claim = claimed(db, who)
        with pytest.raises(RunError, match="jobs wait or run"):
            tenants.remove(db, who.tenant_id)
        jobs.progress(db, claim.job.id, claim.fence, jobs.Progress(images={"m": 5}))
        jobs.finish(db, claim.job.id, claim.fence)
        uploads.add(db, who.tenant_id, None, uploads.NewUpload("a" * 64, "onnx", 9, "n", {}), PLENTY)
        jobs.submit(db, who.tenant_id, None, jobs.NewJob("c2b", {}, {}, idempotency_key="k"), PLENTY)
        jobs.request_cancel(db, who.tenant_id, jobs.page(db, who.tenant_id).items[0].id)
        assert tenants.remove(db, who.tenant_id)
        assert not tenants.remove(db, who.tenant_id)
        left = {name: rows for name, rows in _everything(db).items() if rows != before[name]}
        assert sorted(left) == ["audit_head", "audit_log", "leases"]
        assert audit_log.verify(db) is None


def _of_tenants() -> set[str]:
    """Returns the ledger's public functions that take a tenant's id."""
    modules = (audit_log, buckets, events, jobs, keys, leases, quotas, tenants, uploads, usage, webhooks)
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and "tenant_id" in inspect.signature(function).parameters
        if function.__module__ == module.__name__
    }


def _everything(db: Database) -> dict[str, list[str]]:
    with db.reading() as tx:
        return {
            table.name: sorted(str(tuple(row)) for row in tx.execute(select(table)))
            for table in tables.metadata.sorted_tables
        }


class MigrationsContract:
    def test_down_and_up_again_keep_every_row(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        uploads.add(db, who.tenant_id, None, uploads.NewUpload("a" * 64, "onnx", 9, "n", {}), PLENTY)
        webhooks.create(db, who.tenant_id, "https://example.org", "s")
        jobs.finish(db, claim.job.id, claim.fence)
        before = _everything(db)
        assert migrations.migrate(db, "0001") == (migrations.newest(), "0001")
        with pytest.raises(SchemaError, match="c2b endpoint migrate"):
            migrations.prepare(db)
        with pytest.raises(SchemaError, match="c2b endpoint migrate"):
            jobs.get(db, who.tenant_id, claim.job.id)
        assert migrations.migrate(db) == ("0001", migrations.newest())
        migrations.prepare(db)
        assert _everything(db) == before

    def test_the_migrated_tables_are_those_of_the_code(self, db: Database) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.runtime.migration import MigrationContext

        with db.reading() as tx:
            context = MigrationContext.configure(tx.connection, opts={"compare_type": True})
            assert compare_metadata(context, tables.metadata) == []

    def test_a_migration_that_is_interrupted_leaves_the_revision_before(self, db: Database) -> None:
        who = member(db)
        job = submit(db, who)
        migrations.migrate(db, "0001")
        with db.transaction() as tx:  # in the way of the index, which is made after the column
            tx.execute(text("CREATE INDEX ix_jobs_stored ON jobs (kind)"))
        with pytest.raises(Exception, match="ix_jobs_stored"):
            migrations.migrate(db)
        assert migrations.revision(db) == "0001"
        with db.transaction() as tx:
            tx.execute(text("DROP INDEX ix_jobs_stored"))
        migrations.migrate(db)
        assert jobs.get(db, who.tenant_id, job.id) == job

    @pytest.mark.parametrize(
        ("before", "to", "after"),
        [
            ("0001", "0002", "add_column"),
            ("0002", "0001", "drop_index"),
            ("0002", "0003", "create_table"),
            ("0003", "0002", "drop_table"),
        ],
    )
    def test_a_migration_whose_process_dies_leaves_the_revision_before(
        self, db: Database, before: str, to: str, after: str
    ) -> None:
        job = submit(db, member(db))
        migrations.migrate(db, before)
        url = db.engine.url.render_as_string(hide_password=False)
        died = subprocess.run([sys.executable, "-c", _DIE_MIGRATING, url, to, after], check=False)
        assert died.returncode == 9
        assert migrations.revision(db) == before
        migrations.migrate(db, to)
        migrations.migrate(db)
        assert jobs.get(db, job.tenant_id, job.id) == job

    def test_an_unknown_revision_and_an_unsaid_loss_are_refused(self, db: Database) -> None:
        with pytest.raises(ConfigError, match="not a revision"):
            migrations.migrate(db, "9999")
        with pytest.raises(SchemaError, match="all of the ledger would be lost"):
            migrations.migrate(db, migrations.EMPTY)
        with db.transaction() as tx:
            tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        for refused in (migrations.prepare, migrations.require_current, migrations.migrate):
            with pytest.raises(SchemaError, match="9999, which this version does not know"):
                refused(db)
        with db.transaction() as tx:
            tx.execute(text(f"UPDATE alembic_version SET version_num = '{migrations.newest()}'"))
        migrations.migrate(db, migrations.EMPTY, discard=True)
        assert migrations.revision(db) == migrations.EMPTY
        migrations.prepare(db)

    def test_replicas_that_start_at_once_migrate_once(self, db: Database, open_db: OpenDb) -> None:
        migrations.migrate(db, migrations.EMPTY, discard=True)
        at_once(3, lambda _: migrations.prepare(open_db()))
        assert audit_log.verify(db) is None
        assert member(db)


_DIE_MIGRATING = """
import os, sys
from alembic import op
from c2b_ray.endpoint.ledger import migrations
from c2b_ray.endpoint.ledger.database import Database
after = sys.argv[3]
done = getattr(op, after)
def die_after(*arguments):
    done(*arguments)
    os._exit(9)
setattr(op, after, die_after)
migrations.migrate(Database(sys.argv[1]), sys.argv[2])
"""
