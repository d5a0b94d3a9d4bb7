"""The contract of `Database.alone` and of what needs it: one block at a time, whoever asks, and none after a death."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from ledgers import OpenDb, at_once, claimed, member

from c2b_ray.endpoint.ledger import database, jobs, running, tables, webhooks
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError

_HOLD = """
import sys, time
from c2b_ray.endpoint.ledger.database import Database
with Database(sys.argv[1]).alone("a file"):
    print("holds", flush=True)
    time.sleep(600)
"""


class TestAlone:
    def test_blocks_of_one_name_run_one_after_the_other(self, db: Database, open_db: OpenDb) -> None:
        inside: list[str] = []

        both = db, open_db()

        def block(number: int) -> None:
            with both[number % 2].alone("a file"):
                inside.append(str(number))
                time.sleep(0.05)
                inside.append(str(number))

        at_once(4, block)
        assert inside[::2] == inside[1::2]
        assert sorted(inside[::2]) == ["0", "1", "2", "3"]

    def test_transactions_go_on_inside_and_beside_a_block(self, db: Database, open_db: OpenDb) -> None:
        with db.alone("a file"):
            member(db)
            member(open_db(), "other")

    def test_a_turn_that_does_not_come_is_an_outage_that_says_so(
        self, db: Database, open_db: OpenDb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "WAIT_SECONDS", 0.3)
        with db.alone("a file"), pytest.raises(DatabaseDownError), open_db().alone("a file"):
            pytest.fail("two blocks at once")

    def test_the_death_of_a_process_ends_its_block(self, db: Database) -> None:
        url = db.engine.url.render_as_string(hide_password=False)
        holder = subprocess.Popen([sys.executable, "-c", _HOLD, url], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        waited = threading.Timer(0.5, holder.kill)
        waited.start()
        with db.alone("a file"):
            assert holder.wait() != 0
        holder.stdout.close()

    def test_webhooks_created_at_once_are_not_more_than_a_tenant_may_have(self, db: Database, open_db: OpenDb) -> None:
        who, both, refused = member(db), (db, open_db()), []

        def create(number: int) -> None:
            for _ in range(4):
                try:
                    webhooks.create(both[number % 2], who.tenant_id, "https://example.org/hook", "whsec_x")
                except webhooks.TooManyError as error:
                    refused.append(str(error))

        at_once(8, create)
        assert len(webhooks.listed(db, who.tenant_id)) == webhooks.MOST
        assert refused == ["a tenant has at most 20 webhooks; delete one"] * 12

    def test_of_deletions_at_once_one_has_the_job_and_the_others_none(self, db: Database, open_db: OpenDb) -> None:
        who, both = member(db), (db, open_db())
        for _ in range(5):
            claim = claimed(db, who)
            running.finish(db, claim.job.id, claim.fence)
            deleted = at_once(4, partial(_deleted, both, who.tenant_id, claim.job.id))
            assert sorted(one is None for one in deleted) == [False, True, True, True]


def _deleted(both: tuple[Database, Database], tenant_id: str, job_id: str, number: int) -> tables.Job | None:
    return jobs.set_deleted(both[number % 2], tenant_id, job_id)
