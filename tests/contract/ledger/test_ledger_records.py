"""The contract of a ledger's audit log and of the webhooks that tell of ended jobs."""

from __future__ import annotations

from typing import Any

import pytest
from ledgers import HOUR, SetDatabase, at_once, claimed, member, submit
from sqlalchemy import delete, select, update

from c2b_ray.endpoint.ledger import audit_log, jobs, running, tables, webhooks
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.errors import RunError


class TestAuditLog:
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
        assert audit_log.verify(db) is None  # the head was changed too: the chain alone cannot show it
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
    """Deletes entries as an attacker does who can write to the database and knows the log's format."""
    with db.transaction() as tx:
        tx.execute(delete(tables.audit_log).where(tables.audit_log.c.seq >= from_seq))
        last = tables.audit_log.c.seq == from_seq - 1
        hash_ = tx.scalar(select(tables.audit_log.c.hash).where(last))
        tx.execute(update(tables.audit_head).values(seq=from_seq - 1, hash=hash_))


class TestWebhooks:
    def test_each_end_of_a_job_is_due_once_to_each_webhook_of_its_tenant(self, db: SetDatabase) -> None:
        who, other = member(db), member(db, "other")
        hooks = [webhooks.create(db, who.tenant_id, f"https://example.org/{number}", "s") for number in range(2)]
        webhooks.create(db, other.tenant_id, "https://example.org/other", "s")
        claim = claimed(db, who)
        assert webhooks.due(db) == []
        running.finish(db, claim.job.id, claim.fence)
        due = webhooks.due(db)
        assert {hook.id for _, hook in due} == {hook.id for hook in hooks}
        assert {one.job_id for one, _ in due} == {claim.job.id}
        assert webhooks.due(db) == []  # the first call gave them to another sender
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
        running.finish(db, claim.job.id, claim.fence)
        db.skew = 5
        webhooks.create(db, other.tenant_id, "https://example.org", "s")
        claim = claimed(db, other)
        running.finish(db, claim.job.id, claim.fence)
        first = webhooks.due(db, 4)
        assert [hook.tenant_id for _, hook in first].count(other.tenant_id) == 1
        assert len(first) + len(webhooks.due(db, 100)) == len(hooks) + 1

    def test_what_is_due_is_so_also_after_the_clock_was_set_back(self, db: SetDatabase) -> None:
        who = member(db)
        webhooks.create(db, who.tenant_id, "https://example.org", "s")
        claim = claimed(db, who)
        running.finish(db, claim.job.id, claim.fence)
        db.skew = -HOUR
        [(delivery, _)] = webhooks.due(db)
        assert webhooks.due(db) == []  # a sender has it now
        webhooks.failed(db, delivery.id, "500", retry_in=10)
        assert webhooks.due(db) == []
        db.skew = -2 * HOUR
        assert [one.id for one, _ in webhooks.due(db)] == [delivery.id]

    def test_a_webhook_is_removed_while_jobs_end_and_no_end_is_lost(self, db: Database) -> None:
        who = member(db)
        claims = [claimed(db, who) for _ in range(6)]
        hooks = [webhooks.create(db, who.tenant_id, "https://example.org", "s") for _ in range(6)]

        def work(number: int) -> None:
            if number % 2:
                assert webhooks.remove(db, who.tenant_id, hooks[number // 2].id)
            else:
                claim = claims[number // 2]
                running.finish(db, claim.job.id, claim.fence)

        at_once(12, work)
        assert {job.state for job in jobs.page(db, who.tenant_id).items} == {"finished"}
