"""SQLite that is locked, full, damaged or not there; a process that dies while it writes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ledgers
import pytest
from sqlalchemy import event

from c2b_ray.endpoint.ledger import audit_log, database, jobs, migrations, tenants
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.errors import ConfigError, StorageError

Open = Callable[[], ledgers.SetDatabase]


@pytest.mark.long
def test_a_lock_that_another_process_holds_is_an_outage_that_passes(
    open_db: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    db = open_db()
    who = ledgers.member(db)
    job, text = ledgers.submit(db, who), tenants.create_key(db, who.tenant_id, "ci").text
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseDownError, match="busy") as down:
        ledgers.submit(db, who)
    assert down.value.retry_after > 0
    assert jobs.get(db, who.tenant_id, job.id) == job  # who reads waits for nobody
    assert tenants.KeyRing(db).verify(text) is not None
    other.execute("ROLLBACK")
    other.close()
    assert ledgers.submit(db, who).state == "queued"


def test_a_thread_that_holds_the_lock_too_long_is_an_outage_of_the_others(
    open_db: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    db = open_db()
    who = ledgers.member(db)
    began, end = threading.Event(), threading.Event()

    def hold() -> None:
        with db.transaction():
            began.set()
            end.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    began.wait(10)
    with pytest.raises(DatabaseDownError, match="locked"):
        ledgers.submit(db, who)
    end.set()
    holder.join()
    assert ledgers.submit(db, who).state == "queued"


@pytest.mark.long
def test_more_readers_than_connections_are_told_to_come_again(
    open_db: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_db()
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    db = Database(f"sqlite:///{tmp_path / 'ledger.db'}", connections=1)
    with db.reading(), pytest.raises(DatabaseDownError, match="every connection"):
        db.ping()
    db.ping()
    db.close()


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(open_db: Open) -> None:
    db, room = open_db(), {"pages": 2**30}
    who = ledgers.member(db)

    @event.listens_for(db.engine, "checkout")
    def _limit(connection: Any, record: Any, proxy: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {room['pages']}")

    kept = [ledgers.submit(db, who)]
    room["pages"] = 1  # SQLite takes it for as many as there are

    def submit_on() -> None:
        while True:
            kept.append(ledgers.submit(db, who, config={"much": "x" * 5000}))

    with pytest.raises(DatabaseDownError, match="full") as down:
        submit_on()
    assert down.value.retry_after > 0
    assert {job.id for job in jobs.page(db, who.tenant_id, limit=200).items} == {job.id for job in kept}
    room["pages"] = 2**30
    assert ledgers.submit(db, who, config={"much": "x" * 5000}).state == "queued"
    assert audit_log.verify(db) is None


@pytest.mark.parametrize("content", [b"no database " * 1000, b"SQLite format 3\0" + b"\xff" * 9000])
def test_a_file_that_is_no_database_is_said_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    db = Database(f"sqlite:///{path}")
    with pytest.raises(StorageError, match="damaged or not a database"):
        migrations.prepare(db)
    db.close()
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "theirs.db") as theirs:
        theirs.execute("CREATE TABLE jobs (title)")
    theirs.close()
    db = Database(f"sqlite:///{tmp_path / 'theirs.db'}")
    with pytest.raises(Exception, match="of another program; name another database"):
        migrations.prepare(db)
    db.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://x", "postgres"])
def test_a_url_that_names_no_such_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Database(url)
    assert refused.value.field == "database"


def test_a_folder_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "ledger.db"):
        with pytest.raises(StorageError, match="cannot be opened"):
            Database(f"sqlite:///{path}")


def test_a_process_that_is_killed_while_it_submits_leaves_what_it_was_told_is_kept(open_db: Open) -> None:
    db = open_db()
    who = ledgers.member(db)
    url = db.engine.url.render_as_string()
    process = subprocess.Popen(
        [sys.executable, "-c", _SUBMIT_ON, url, who.tenant_id], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    told += process.communicate()[0].split("\n")[:-1]  # what follows the last line's end may be half a line
    kept = {job.id for job in jobs.page(db, who.tenant_id, limit=10_000).items}
    assert set(told) <= kept
    assert len(kept) <= len(told) + 1
    assert audit_log.verify(db) is None


_SUBMIT_ON = """
import sys
from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import jobs, tables
from c2b_ray.endpoint.ledger.database import Database
db, limits = Database(sys.argv[1]), Quotas(concurrent_jobs=10**6)
while True:
    print(jobs.submit(db, sys.argv[2], None, tables.NewJob("c2b", {}, {}), limits)[0].id, flush=True)
"""


def test_a_program_beside_it_that_ends_takes_nothing_of_what_is_written_next(open_db: Open, tmp_path: Path) -> None:
    db = open_db()
    who = ledgers.member(db)
    Database(f"sqlite:///{tmp_path / 'ledger.db'}").close()  # as the API of `c2b endpoint` has beside its runner
    beside = f"import sqlite3; sqlite3.connect({str(tmp_path / 'ledger.db')!r}).execute('select 1 from jobs')"
    subprocess.run([sys.executable, "-c", beside], check=True)
    job = ledgers.submit(db, who)
    seen = beside.replace("1 from jobs", "id from jobs").replace("sqlite3.connect", "print(*sqlite3.connect", 1) + ")"
    other = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True)
    assert job.id in other.stdout
    assert jobs.get(open_db(), who.tenant_id, job.id) == job
