"""The ledger in a real PostgreSQL whose server is killed, full, slow or gone, and what is left then."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ledgers
import postgres
import pytest
from sqlalchemy import exc, text

from c2b_ray.endpoint.ledger import audit_log, jobs, running, tables, tenants
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError

pytestmark = pytest.mark.long


@pytest.fixture
def open_db(in_postgresql: Callable[[], ledgers.SetDatabase]) -> Callable[[], ledgers.SetDatabase]:
    return in_postgresql


SUBMITTERS = 4


@contextmanager
def _submitting(db: ledgers.SetDatabase, who: ledgers.Member) -> Iterator[tuple[list[str], list[DatabaseDownError]]]:
    """Submits jobs in threads until the block ends; the ids of the jobs, and the outages that the threads met."""
    submitted: list[str] = []
    downs: list[DatabaseDownError] = []
    ended = threading.Event()

    def submit_on() -> None:
        while not ended.is_set():
            try:
                submitted.append(ledgers.submit(db, who).id)
            except DatabaseDownError as down:
                downs.append(down)
                time.sleep(0.05)

    threads = [threading.Thread(target=submit_on) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    try:
        yield submitted, downs
    finally:
        ended.set()
        for thread in threads:
            thread.join()


class TestOutages:
    def test_a_killed_server_is_down_and_back_with_all_that_was_committed(
        self, db: ledgers.SetDatabase, postgres_server: postgres.Postgres
    ) -> None:
        who = ledgers.member(db)
        claim = ledgers.claimed(db, who)
        with _submitting(db, who) as (submitted, downs):
            _until(lambda: len(submitted) > 20)
            postgres_server.kill()
            _until(lambda: len(downs) > 8)
            with pytest.raises(DatabaseDownError) as down:
                running.renew(db, claim.job.id, claim.fence, 30)
            with pytest.raises(DatabaseDownError):
                jobs.get(db, who.tenant_id, claim.job.id)
            postgres_server.start()
            before = len(submitted)
            _until(lambda: len(submitted) > before + 20)
        assert all(down.retry_after > 0 for down in [*downs, down.value])
        with db.reading() as tx:
            kept = set(tx.execute(tables.jobs.select().with_only_columns(tables.jobs.c.id)).scalars())
        assert set(submitted) <= kept
        # At most what each thread was committing when the server died is there without anybody having been told.
        assert len(kept) <= len(submitted) + 1 + SUBMITTERS
        assert audit_log.verify(db) is None
        running.renew(db, claim.job.id, claim.fence, 30)  # the runner goes on
        assert running.finish(db, claim.job.id, claim.fence).state == "finished"

    def test_a_connection_that_ended_while_it_was_idle_is_replaced_unnoticed(
        self, db: ledgers.SetDatabase, open_db: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from c2b_ray.endpoint.ledger import database

        monkeypatch.setattr(database, "IDLE_SECONDS", 0.0)
        who = ledgers.member(db)
        with open_db().transaction() as tx:
            tx.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"))
        assert jobs.page(db, who.tenant_id).items == []

    @pytest.mark.parametrize(
        ("code", "down"),
        [("53100", True), ("53300", True), ("57P03", True), ("40001", True), ("25006", True), ("58030", True),
         ("23514", False)],
    )  # fmt: skip
    def test_what_the_server_cannot_do_now_is_told_from_what_is_wrong(
        self, db: ledgers.SetDatabase, code: str, down: bool
    ) -> None:
        """A full disk, too many connections, a start, a conflict, a standby, a disk that fails; a constraint."""
        with pytest.raises(DatabaseDownError if down else exc.DBAPIError) as raised, db.transaction() as tx:
            tx.execute(text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$"))
        assert isinstance(raised.value, DatabaseDownError) == down
        assert getattr(raised.value, "readable", False) == (code in ("53100", "25006"))

    def test_nothing_listens_there(self) -> None:
        db = Database("postgresql://nobody:swordfish@127.0.0.1:1/ledger")
        with pytest.raises(DatabaseDownError) as down:
            db.ping()
        assert "swordfish" not in str(down.value)
        db.close()

    def test_who_waits_too_long_for_a_row_is_told_to_come_again(
        self, db: ledgers.SetDatabase, open_db: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        who = ledgers.member(db)
        with open_db().transaction() as tx:
            tx.execute(text(f"SELECT 1 FROM tenants WHERE id = '{who.tenant_id}' FOR UPDATE"))

            def submit_in_haste() -> None:
                with db.transaction() as waiting:
                    waiting.execute(text("SET LOCAL lock_timeout = 100"))
                    waiting.execute(text(f"SELECT 1 FROM tenants WHERE id = '{who.tenant_id}' FOR UPDATE"))

            with pytest.raises(DatabaseDownError, match="busy"):
                submit_in_haste()

    def test_a_holder_that_is_killed_in_a_transaction_holds_up_nobody(self, db: ledgers.SetDatabase, url: str) -> None:
        who = ledgers.member(db)
        holder = subprocess.Popen([sys.executable, "-c", _HOLD, url, who.tenant_id], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        holder.kill()
        holder.communicate()
        assert ledgers.submit(db, who).state == "queued"
        assert running.take_lease(db, "x", "me", 5) is not None
        assert tenants.list_keys(db, who.tenant_id) != []


_HOLD = """
import sys, time
from sqlalchemy import text
from c2b_ray.endpoint.ledger import audit_log
from c2b_ray.endpoint.ledger.database import Database
with Database(sys.argv[1]).transaction() as tx:
    tx.execute(text("SELECT 1 FROM tenants WHERE id = :id FOR UPDATE"), {"id": sys.argv[2]})
    audit_log.append(tx, audit_log.Entry("x", "y"))
    print("holds", flush=True)
    time.sleep(600)
"""


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
