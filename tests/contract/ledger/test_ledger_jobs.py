"""The contract of a ledger's jobs, as their owners see them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledgers import HOUR, PLENTY, at_once, claimed, many_granted, member, set_row, submit
from sqlalchemy import select, update

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import jobs, quotas, running, tables, webhooks
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.errors import ConfigError, RunError


def states(db: Database, job_id: str) -> list[str]:
    return [str(event.data["state"]) for event in webhooks.events_after(db, job_id) if event.kind == "state"]


class TestJobs:
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
        assert jobs.page(db, who.tenant_id, tables.Filters(name="audit 3")).items == [submitted[3]]

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
        new = tables.NewJob("c2b", {}, {}, idempotency_key="k", body_hash="a")
        first, created = jobs.submit(db, who.tenant_id, None, new, Quotas(concurrent_jobs=1))
        assert created
        before = jobs.submitted_before(db, who.tenant_id, "k", "a")
        assert before is not None
        assert before.id == first.id
        assert jobs.submitted_before(db, who.tenant_id, "l", "a") is None
        # So it does where one more job would exceed the quota.
        assert jobs.submit(db, who.tenant_id, None, new, Quotas(concurrent_jobs=1)) == (first, False)
        with pytest.raises(tables.IdempotencyConflictError) as refused:
            jobs.submit(db, who.tenant_id, None, replace(new, body_hash="b"), PLENTY)
        assert refused.value.job_id == first.id
        of_other, created = jobs.submit(db, other.tenant_id, None, replace(new, body_hash="b"), PLENTY)
        assert created
        assert of_other.id != first.id
        jobs.forget_idempotency(db, before=first.created + HOUR)
        assert jobs.submit(db, who.tenant_id, None, new, PLENTY)[1]

    def test_a_refused_submission_leaves_its_idempotency_key_unused(self, db: Database) -> None:
        who = member(db)
        new = tables.NewJob("c2b", {}, {}, idempotency_key="k", body_hash="a")
        with pytest.raises(quotas.QuotaDenial):
            jobs.submit(db, who.tenant_id, None, new, Quotas(concurrent_jobs=0))
        assert jobs.submit(db, who.tenant_id, None, new, PLENTY)[1]

    def test_many_submissions_with_one_key_at_once_are_one_job(self, db: Database) -> None:
        who = member(db)
        new = tables.NewJob("c2b", {}, {}, idempotency_key="k", body_hash="a")
        answers = at_once(8, lambda _: jobs.submit(db, who.tenant_id, None, new, PLENTY))
        assert len({job.id for job, _ in answers}) == 1
        assert sum(created for _, created in answers) == 1
        assert len(jobs.page(db, who.tenant_id).items) == 1

    def test_submissions_at_once_never_exceed_the_quota(self, db: Database) -> None:
        who = member(db, concurrent_jobs=3)

        def one(_: int) -> bool:
            try:
                return jobs.submit(db, who.tenant_id, None, tables.NewJob("c2b", {}, {}), PLENTY)[1]
            except quotas.QuotaDenial:
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
        cancelling = jobs.request_cancel(db, who.tenant_id, claim.job.id)
        assert cancelling is not None
        assert cancelling.state == "running"
        assert running.renew(db, claim.job.id, claim.fence, 30).cancel
        ended = running.cancelled(db, claim.job.id, claim.fence)
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
        with pytest.raises(tables.FencedError):
            running.finish(db, claim.job.id, claim.fence)

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
