"""Copies of a ledger: of one moment, restored whole or not at all, into an empty database only."""

import errno
import json
import stat
from pathlib import Path

import pytest
from ledgers import claimed, member, submit
from sqlalchemy import select

from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.ledger import audit_log, jobs, running, tables, tenants, webhooks
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.operate import backup as module
from c2b_ray.endpoint.operate.backup import MANIFEST, backup, restore
from c2b_ray.errors import InputError, StorageError


@pytest.fixture
def config(tmp_path):
    return read_endpoint({"folder": str(tmp_path / "old")})


@pytest.fixture
def empty(tmp_path):
    db = Database(f"sqlite:///{tmp_path / 'new' / 'ledger.db'}")
    yield db
    db.close()


def rows(db, table):
    with db.reading() as tx:
        return {tuple(map(repr, row)) for row in tx.execute(select(*table.columns))}


@pytest.fixture
def filled(db, config):
    """A ledger with a job that runs, one that waits, a webhook and a key."""
    who = member(db)
    webhooks.create(db, who.tenant_id, "https://example.org", "s")
    ended = claimed(db, who)
    running.finish(db, ended.job.id, ended.fence, "run", "weights-1")
    submit(db, who, config={"task": 'b\u00fcs \u2028 "x"\n'}, name="nightly", idempotency_key="once")
    return who, claimed(db, who), tenants.create_key(db, who.tenant_id, "more", tenants.SCOPES).text


def test_every_row_comes_back(db, config, empty, filled, tmp_path):
    backup(db, config, tmp_path / "copy")
    restore(empty, config, tmp_path / "copy")
    for table in (tables.tenants, tables.keys, tables.events, tables.webhooks, tables.deliveries, tables.idempotency):
        assert rows(empty, table) == rows(db, table), table.name
    assert rows(db, tables.audit_log) < rows(empty, tables.audit_log)
    assert tenants.verify_key(empty, filled[2]) is not None


def test_jobs_that_ran_wait_and_their_old_runner_is_fenced_off(db, config, empty, filled, tmp_path):
    who, claim, _ = filled
    backup(db, config, tmp_path / "copy")
    restore(empty, config, tmp_path / "copy")
    job = jobs.get(empty, who.tenant_id, claim.job.id)
    assert (job.state, job.owner) == ("queued", None)
    assert job.fence > claim.fence + 1000  # the lost ledger may have handed it on after the copy
    with pytest.raises(tables.FencedError):
        running.finish(empty, job.id, claim.fence)
    again = claimed(empty, who)
    running.finish(empty, again.job.id, again.fence)
    assert webhooks.find_event(empty, again.job.id, 0)[1] > webhooks.find_event(db, claim.job.id, 0)[1]


def test_the_audit_log_still_goes_through_the_head_that_was_kept(db, config, empty, filled, tmp_path):
    head = audit_log.head(db)
    manifest = backup(db, config, tmp_path / "copy")
    assert manifest["audit_head"] == f"{head.seq}:{head.hash}"
    restore(empty, config, tmp_path / "copy")
    assert audit_log.verify(empty, head) is None
    assert audit_log.page(empty)[0].action == "ledger.restore"


def test_a_ledger_that_has_rows_is_refused_and_stays(db, config, empty, filled, tmp_path):
    from c2b_ray.endpoint.ledger import migrations

    backup(db, config, tmp_path / "copy")
    migrations.prepare(empty)
    tenants.create(empty, "other")
    with pytest.raises(InputError, match="empty database"):
        restore(empty, config, tmp_path / "copy")
    assert [tenant.name for tenant in tenants.every(empty)] == ["other"]


@pytest.mark.parametrize("damage", ["changed", "missing", "cut off", "another revision"])
def test_a_damaged_copy_restores_nothing(db, config, empty, filled, tmp_path, damage):
    copy = tmp_path / "copy"
    backup(db, config, copy)
    if damage == "changed":
        (copy / "keys.jsonl").write_text((copy / "keys.jsonl").read_text().replace("more", "evil"))
    elif damage == "missing":
        (copy / "events.jsonl").unlink()
    elif damage == "cut off":
        (copy / MANIFEST).unlink()
    else:
        manifest = json.loads((copy / MANIFEST).read_text())
        (copy / MANIFEST).write_text(json.dumps(manifest | {"revision": "9999"}))
    with pytest.raises(InputError):
        restore(empty, config, copy)
    assert not Path(str(empty.engine.url.database)).exists() or tenants_of(empty) == []


def tenants_of(db):
    from c2b_ray.endpoint.ledger import migrations

    return [] if migrations.revision(db) == migrations.EMPTY else tenants.every(db)


def test_a_copy_is_its_owners_and_overwrites_nothing(db, config, filled, tmp_path):
    backup(db, config, tmp_path / "copy")
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "copy" / "webhooks.jsonl").stat().st_mode) == 0o600
    with pytest.raises(InputError, match="new folder"):
        backup(db, config, tmp_path / "copy")


@pytest.mark.parametrize("written", [0, 3])
def test_a_disk_that_fills_up_keeps_nothing_of_the_copy(db, config, filled, tmp_path, monkeypatch, written):
    """What was left over held hashes of keys, and kept the disk full."""
    write, count = module._write, iter(range(written))

    def fills(path, lines):
        if next(count, None) is None:
            path.write_text("the first part of ")
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, lines)

    monkeypatch.setattr(module, "_write", fills)
    with pytest.raises(StorageError, match="copy: the disk is full; nothing of the copy was kept"):
        backup(db, config, tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))
    monkeypatch.undo()
    backup(db, config, tmp_path / "copy")


def test_a_copy_is_of_one_moment_while_others_write(db, open_db, config, filled, tmp_path):
    other = open_db()
    with db.snapshot() as tx:
        before = tx.execute(select(tables.jobs.c.id)).all()
        submit(other, filled[0])
        assert tx.execute(select(tables.jobs.c.id)).all() == before
    assert backup(db, config, tmp_path / "copy")["tables"]["jobs"]["rows"] == len(before) + 1


def test_the_storage_goes_along_and_comes_back_whole(db, config, empty, filled, tmp_path):
    who, claim, _ = filled
    run = Path(config.storage_root) / "tenants" / who.tenant_id / "runs" / claim.job.id
    run.mkdir(parents=True)
    (run / "images.parquet").write_bytes(b"rows" * 1000)
    backup(db, config, tmp_path / "copy", with_storage=True)
    new = read_endpoint({"folder": str(tmp_path / "new")})
    restored = Path(new.storage_root) / "tenants" / who.tenant_id / "runs" / claim.job.id / "images.parquet"
    copied = tmp_path / "copy" / "storage" / restored.relative_to(new.storage_root)
    whole = copied.read_bytes()
    copied.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="differs from the file"):
        restore(empty, new, tmp_path / "copy", with_storage=True)
    copied.write_bytes(whole)
    restore(empty, new, tmp_path / "copy", with_storage=True)
    assert restored.read_bytes() == whole
