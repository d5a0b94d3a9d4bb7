"""The contract of a ledger's jobs, as runners and the dispatcher see them, and of the leases that they hold."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ledgers import HOUR, SetDatabase, at_once, claimed, leader, many_granted, member, set_row, submit, until
from sqlalchemy import update

from c2b_ray.endpoint.ledger import jobs, quotas, running, tables, webhooks
from c2b_ray.endpoint.ledger.database import Database


class TestRunning:
    """Jobs as runners and the dispatcher see them."""

    def test_only_a_granted_job_is_claimed(self, db: Database) -> None:
        who = member(db)
        job = submit(db, who)
        assert running.claim(db, "runner", 30) is None
        assert [waits.id for waits in running.waiting(db)] == [job.id]
        assert running.grant(db, job.id, leader(db))
        assert running.waiting(db) == []
        claim = running.claim(db, "runner", 30)
        assert claim is not None
        assert (claim.job.id, claim.job.state, claim.job.owner, claim.job.attempt) == (job.id, "running", "runner", 0)
        assert running.claim(db, "another", 30) is None
        assert not running.grant(db, job.id, leader(db))

    def test_who_leads_no_more_grants_nothing(self, db: Database) -> None:
        who = member(db)
        job, before = submit(db, who), leader(db)
        running.give_back_lease(db, before)
        assert running.take_lease(db, "dispatcher", "another", 60) is not None
        assert not running.grant(db, job.id, before)
        assert not running.ask_to_yield(db, job.id, before)

    def test_the_oldest_of_each_tenant_wait_however_many_one_has(self, db: Database) -> None:
        many, one = member(db, "many"), member(db, "one")
        many_granted(db, many, 30)
        with db.transaction() as tx:
            tx.execute(update(tables.jobs).values(granted=None))
        later = submit(db, one)
        waiting = running.waiting(db, per_tenant=5)
        assert [job.id for job in waiting] == [f"job_{number:024x}" for number in range(5)] + [later.id]

    def test_progress_is_kept_counted_and_told(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        report = tables.Progress("classify", 32, 100, 8.0, 8.5, {"m": 32}, {"m": 2.0, "g": 1.0}, 4096)
        for _ in range(2):
            assert running.progress(db, claim.job.id, claim.fence, report) == tables.LeaseReply(
                cancel=False, yield_=False
            )
        job = jobs.get(db, who.tenant_id, claim.job.id)
        assert job is not None
        assert (job.stage, job.done, job.total, job.rate, job.seconds_left) == ("classify", 32, 100, 8.0, 8.5)
        assert (job.images, job.model_seconds, job.bytes) == (64, 6.0, 4096)
        spent = sorted(quotas.spend(db, who.tenant_id, "0000-00-00", "9999-99-99"), key=lambda one: one.model)
        assert [(row.key_id, row.model, row.images, row.model_seconds) for row in spent] == [
            (who.key_id, "g", 0, 2.0), (who.key_id, "m", 64, 4.0)
        ]  # fmt: skip
        last = webhooks.events_after(db, job.id)[-1]
        assert (last.kind, last.data["done"]) == ("progress", 32)
        assert webhooks.events_after(db, job.id, last.id) == []

    def test_a_slice_ends_and_the_job_waits_for_its_next_turn(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        assert running.ask_to_yield(db, claim.job.id, leader(db))
        assert running.renew(db, claim.job.id, claim.fence, 30).yield_
        job = running.release(db, claim.job.id, claim.fence)
        assert (job.state, job.slices, job.owner, job.granted, job.yield_requested) == ("queued", 1, None, None, False)
        assert running.claim(db, "runner", 30) is None
        assert running.grant(db, job.id, leader(db))
        again = running.claim(db, "runner", 30)
        assert again is not None
        assert (again.fence, again.job.started) == (claim.fence + 1, claim.job.started)

    def test_a_released_job_may_have_to_wait_until_a_time(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        released = running.release(db, claim.job.id, claim.fence, not_before=claim.job.created + HOUR)
        assert running.waiting(db) == []
        assert released.not_before is not None

    def test_a_job_that_is_released_after_its_cancellation_was_requested_is_cancelled(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert running.release(db, claim.job.id, claim.fence).state == "cancelled"

    def test_a_fenced_off_runner_changes_nothing(self, db: Database) -> None:
        who = member(db)
        old = claimed(db, who)
        set_row(db, old.job.id, lease_until=1.0)
        new = running.claim(db, "another", 30)
        assert new is not None
        assert (new.job.id, new.job.attempt) == (old.job.id, 1)
        before = jobs.get(db, who.tenant_id, old.job.id)
        job_id, fence = old.job.id, old.fence
        for refused in (
            lambda: running.renew(db, job_id, fence, 30),
            lambda: running.check_fence(db, job_id, fence),
            lambda: running.progress(db, job_id, fence, tables.Progress("x", 1, images={"m": 5})),
            lambda: running.report(db, job_id, fence, "step", {}),
            lambda: running.release(db, job_id, fence),
            lambda: running.finish(db, job_id, fence, "runs/x"),
            lambda: running.fail(db, job_id, fence, tables.Failure("no")),
            lambda: running.cancelled(db, job_id, fence),
        ):
            with pytest.raises(tables.FencedError):
                refused()
        assert jobs.get(db, who.tenant_id, job_id) == before
        assert quotas.spend(db, who.tenant_id, "0000-00-00", "9999-99-99") == []
        assert running.finish(db, job_id, new.fence, "runs/x").state == "finished"
        with pytest.raises(tables.FencedError):  # a job finishes once
            running.finish(db, job_id, new.fence, "runs/x")

    def test_a_failure_is_told_to_its_owner(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        failure = tables.Failure("Weights are gone", "upload:abc was deleted", "classifier", "upload:abc")
        failed = running.fail(db, claim.job.id, claim.fence, failure)
        assert failed.failure == vars(failure)
        assert webhooks.events_after(db, failed.id)[-1].data == {"state": "failed", "failure": vars(failure)}

    def test_a_job_that_its_runners_die_of_is_failed_after_so_many(self, db: Database) -> None:
        who = member(db)
        claimed(db, who)
        for attempt in (1, 2):
            with db.transaction() as tx:
                tx.execute(update(tables.jobs).values(lease_until=1.0))
            assert running.sweep(db, attempts=3) == []
            claim = running.claim(db, "runner", 30, attempts=3)
            assert claim is not None
            assert claim.job.attempt == attempt
        set_row(db, claim.job.id, lease_until=1.0)
        assert running.claim(db, "runner", 30, attempts=3) is None
        [failed] = running.sweep(db, attempts=3)
        assert failed.state == "failed"
        assert failed.failure is not None
        assert "ended its runner" in failed.failure["title"]
        with pytest.raises(tables.FencedError):
            running.renew(db, claim.job.id, claim.fence, 30)

    def test_a_lost_job_whose_cancellation_was_requested_is_swept_up(self, db: Database) -> None:
        who = member(db)
        claim = claimed(db, who)
        jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert running.sweep(db) == []
        set_row(db, claim.job.id, lease_until=1.0)
        assert [job.state for job in running.sweep(db)] == ["cancelled"]

    @pytest.mark.parametrize("skew", [HOUR, -HOUR])
    def test_a_clock_that_jumps_takes_no_job_from_a_runner_that_renews(self, db: SetDatabase, skew: float) -> None:
        who = member(db)
        claim = claimed(db, who, seconds=30)
        for _ in range(3):
            db.skew += skew
            assert running.claim(db, "another", 30, attempts=2) is None
            assert running.sweep(db, attempts=1) == []
            running.renew(db, claim.job.id, claim.fence, 30)
        db.skew += skew
        asked = jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert asked is not None
        assert asked.state == "running"
        assert running.renew(db, claim.job.id, claim.fence, 30).cancel

    @pytest.mark.parametrize("skew", [HOUR, -HOUR])
    def test_a_lost_runners_job_is_taken_over_also_after_the_clock_jumped(self, db: SetDatabase, skew: float) -> None:
        claim = claimed(db, member(db), seconds=0.5)
        db.skew = skew
        taken = until(lambda: running.claim(db, "another", 0.5))
        assert taken.job.id == claim.job.id
        with pytest.raises(tables.FencedError):
            running.renew(db, claim.job.id, claim.fence, 30)
        assert running.finish(db, taken.job.id, taken.fence).state == "finished"

    def test_a_job_to_be_tried_again_does_not_wait_until_a_clock_has_caught_up(self, db: SetDatabase) -> None:
        claim = claimed(db, member(db), seconds=30)
        running.retry(db, claim.job.id, claim.fence, 60.0, "a service is down")
        assert running.waiting(db) == []
        db.skew = -HOUR
        assert [job.id for job in running.waiting(db)] == [claim.job.id]
        assert running.grant(db, claim.job.id, leader(db))
        again = running.claim(db, "another", 30)
        assert again is not None
        assert again.job.id == claim.job.id

    def test_a_clock_that_is_set_a_little_takes_no_job_from_its_runner(self, db: SetDatabase) -> None:
        claim = claimed(db, member(db), seconds=30)
        for skew in (-10.0, 10.0):
            db.skew = skew
            assert running.claim(db, "another", 30) is None
            running.renew(db, claim.job.id, claim.fence, 30)

    def test_runners_in_threads_share_200_jobs_and_none_is_claimed_twice(self, db: Database) -> None:
        ids = many_granted(db, member(db), 200)

        def run(number: int) -> list[str]:
            mine = []
            while (claim := running.claim(db, f"runner {number}", 60)) is not None:
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
from c2b_ray.endpoint.ledger import running
from c2b_ray.endpoint.ledger.database import Database
db = Database(sys.argv[1])
while (claim := running.claim(db, str(os.getpid()), 60)) is not None:
    print(claim.job.id)
db.close()
"""


class TestLeases:
    def test_one_holder_at_a_time_and_a_fence_that_grows(self, db: Database) -> None:
        first = running.take_lease(db, "dispatcher", "a", 30)
        assert first is not None
        assert running.take_lease(db, "dispatcher", "b", 30) is None
        same = running.take_lease(db, "dispatcher", "a", 30)
        assert same is not None
        assert same.fence == first.fence
        assert running.renew_lease(db, first).until >= same.until
        running.give_back_lease(db, first)
        assert running.lease_holder(db, "dispatcher") is None
        second = running.take_lease(db, "dispatcher", "b", 30)
        assert second is not None
        assert second.fence > first.fence
        with pytest.raises(tables.FencedError):
            running.renew_lease(db, first)
        running.give_back_lease(db, first)
        assert running.lease_holder(db, "dispatcher") == second

    def test_of_many_that_take_one_at_once_one_has_it(self, db: Database) -> None:
        taken = at_once(6, lambda number: running.take_lease(db, "dispatcher", f"runner {number}", 30))
        assert sum(lease is not None for lease in taken) == 1

    @pytest.mark.parametrize("skew", [HOUR, -HOUR])
    def test_a_clock_that_jumps_leaves_no_lease_for_ever(self, db: SetDatabase, skew: float) -> None:
        dead = running.take_lease(db, "dispatcher", "dead", 0.5)
        assert dead is not None
        db.skew = skew
        assert running.take_lease(db, "dispatcher", "heir", 30) is None
        heir = until(lambda: running.take_lease(db, "dispatcher", "heir", 30))
        assert heir.fence == dead.fence + 1
