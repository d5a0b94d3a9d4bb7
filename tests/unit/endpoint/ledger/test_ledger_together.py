"""Writes that share a commit: each is kept or refused as if it were alone."""

import threading
from contextlib import contextmanager

import ledgers
from sqlalchemy import event

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import audit_log, jobs, webhooks
from c2b_ray.endpoint.ledger.database import DatabaseDownError
from c2b_ray.endpoint.ledger.quotas import QuotaDenial
from c2b_ray.endpoint.ledger.tables import IdempotencyConflictError, NewJob

PLENTY = Quotas(concurrent_jobs=1000)


def at_once(db, who, news, limits=PLENTY):
    """What came of each, submitted while a first write holds all of them up."""
    results = [None] * len(news)

    def one(number):
        try:
            results[number] = jobs.submit(db, who, None, news[number], limits)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(news))]
    with db.transaction():
        for thread in threads:
            thread.start()
        threads[0].join(0.3)
    for thread in threads:
        thread.join()
    return results


@contextmanager
def commits(db):
    count = []
    event.listen(db.engine, "commit", lambda connection: count.append(1))
    yield count


def new(key=None, body="body", name=None):
    return NewJob("c2b", {}, {}, name=name, idempotency_key=key, body_hash=body)


def test_one_that_is_refused_disturbs_no_other(db):
    who = ledgers.member(db).tenant_id
    news = [new(name=str(number)) for number in range(8)] + [new("once"), new("once"), new("once", "another body")]
    with commits(db) as count:
        results = at_once(db, who, news, Quotas(concurrent_jobs=9))
    made = [result[0].id for result in results if isinstance(result, tuple) and result[1]]
    assert len(made) == len(set(made)) == 9
    kinds = {type(result) for result in results if not isinstance(result, tuple)}
    assert kinds <= {QuotaDenial, IdempotencyConflictError}
    assert {job.id for job in jobs.page(db, who).items} == set(made)
    assert audit_log.verify(db) is None
    assert len(count) < len(news)


def test_one_key_at_once_is_one_job_also_where_it_is_not_written_yet(db):
    who = ledgers.member(db).tenant_id
    with commits(db) as count:
        results = at_once(db, who, [new("once", name="first") for _ in range(12)])
    assert len(count) < len(results), "some share a commit"
    assert sum(created for _, created in results) == 1
    [job] = jobs.page(db, who).items
    assert {result.id for result, _ in results} == {job.id}
    assert all(result == job for result, _ in results)
    assert len(webhooks.events_after(db, job.id)) == 1
    assert audit_log.verify(db) is None


def test_a_commit_that_fails_is_told_to_each_and_nothing_is_kept(db, monkeypatch):
    who = ledgers.member(db).tenant_id
    whole = audit_log.append

    def full(tx, entry):
        whole(tx, entry)
        tx.connection.exec_driver_sql("PRAGMA query_only = ON")
        tx.connection.exec_driver_sql("DELETE FROM buckets")

    monkeypatch.setattr(audit_log, "append", full)
    results = at_once(db, who, [new() for _ in range(4)])
    assert {type(result) for result in results} == {DatabaseDownError}
    monkeypatch.undo()
    db.engine.dispose()
    assert jobs.page(db, who).items == []
    assert jobs.submit(db, who, None, new(), PLENTY)[1]


def test_writes_that_share_a_commit_read_what_they_share_once(db):
    who = ledgers.member(db).tenant_id
    statements = []

    def told(connection, cursor, statement, parameters, context, many):
        statements.append(statement)

    event.listen(db.engine, "before_cursor_execute", told)
    with commits(db) as count:
        results = at_once(db, who, [new() for _ in range(16)])
    event.remove(db.engine, "before_cursor_execute", told)
    assert len({job.id for job, _ in results}) == 16
    # Of each transaction: its beginning, the limits, what is held, the head of the audit log, which is then moved; and
    # one for the rows of all its jobs, their events, and their entries of the log.
    assert len(statements) <= 8 * len(count), statements
    assert audit_log.verify(db) is None


def test_a_write_that_arrives_while_others_are_taken_is_not_lost(db):
    """The list of those that wait is read and emptied in two steps; what arrives in between waits for the next."""
    group, arrived = jobs._Group(), threading.Event()

    class Waiting(list):
        def __getitem__(self, part):
            taken = super().__getitem__(part)
            if late.ident is None:  # not started yet
                late.start()
                arrived.wait(0.3)
            return taken

    def arrive():
        jobs.commit_together(db, "acme", lambda tx: done.append("late"))
        arrived.set()

    done, late = [], threading.Thread(target=arrive)
    group.waiting = Waiting([jobs._Call(lambda tx: done.append("first"), False)])
    jobs._groups[(id(db), "acme")] = group
    group.inside += 1
    group.run(db)
    assert arrived.wait(10)
    assert done == ["first", "late"]
    del jobs._groups[(id(db), "acme")]
