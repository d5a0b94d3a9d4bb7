"""Retention: what is old goes, what runs stays, and a death in between is made good at the next pass."""

import os
import time
from pathlib import Path

import pytest
from ledgers import claimed, member, submit

from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.ledger import audit_log, jobs, running, tenants, uploads, webhooks
from c2b_ray.endpoint.ledger.uploads import NewUpload
from c2b_ray.endpoint.operate import retention
from c2b_ray.endpoint.policy.names import upload_path
from c2b_ray.errors import RunError

DAY = 86_400
SHA = "ab" * 32
BY_AGE = {"runs_days": 10, "uploads_days": 10, "events_days": 10}


@pytest.fixture
def config(tmp_path):
    return read_endpoint({"folder": str(tmp_path), "retention": BY_AGE})


def run_of(config, who, job_id):
    path = Path(config.storage_root) / "tenants" / who.tenant_id / "runs" / job_id
    path.mkdir(parents=True, exist_ok=True)
    (path / "run.json").write_text("{}")
    return path


def finished(db, config, who):
    claim = claimed(db, who, 1e9)
    running.finish(db, claim.job.id, claim.fence, "run")
    return claim.job.id, run_of(config, who, claim.job.id)


def upload_of(db, config, who, sha256=SHA):
    uploads.add(db, who.tenant_id, None, NewUpload(sha256, "onnx", 3, "m", {}), config.quotas)
    path = Path(upload_path(str(Path(config.storage_root) / "tenants" / who.tenant_id), sha256, "onnx"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"abc")
    return path


def test_runs_go_by_age_and_nothing_of_a_job_that_runs_or_waits(db, config):
    who = member(db)
    old, old_run = finished(db, config, who)
    held = claimed(db, who, 1e9).job
    waiting = submit(db, who)
    kept = [run_of(config, who, job.id) for job in (held, waiting)]
    db.skew = 5 * DAY
    young_run = finished(db, config, who)[1]
    assert retention.purge(db, config).runs == 0
    db.skew = 11 * DAY
    assert retention.purge(db, config).runs == 1
    assert not old_run.exists()
    assert jobs.get(db, who.tenant_id, old) is None
    assert all(path.exists() for path in (*kept, young_run))
    assert audit_log.verify(db) is None
    assert not retention.purge(db, config)


def test_a_run_stays_while_a_job_that_waits_or_runs_reads_it(db, config):
    who = member(db)
    read, read_run = finished(db, config, who)
    other, other_run = finished(db, config, who)
    reader = submit(db, who, config={"methods": {"C2B": f"run:{read}"}})
    db.skew = 11 * DAY
    assert retention.purge(db, config).runs == 1
    assert read_run.exists()
    assert not other_run.exists()
    with pytest.raises(RunError, match=f"{reader.id} reads the run of {read}"):
        jobs.set_deleted(db, who.tenant_id, read)
    stranger = member(db, "beta")
    submit(db, stranger, config={"methods": {"C2B": f"run:{read}"}})  # names a run that it cannot have
    jobs.request_cancel(db, who.tenant_id, reader.id)
    assert retention.purge(db, config).runs == 1
    assert not read_run.exists()
    assert jobs.get(db, who.tenant_id, other) is None


def test_what_was_deleted_stands_nowhere_in_the_file_of_the_ledger(db, config, tmp_path):
    """SQLite keeps deleted rows in its file until its log is written into it."""
    who, other = member(db), member(db, "beta")
    secret = "a sentence that nobody else may read"
    webhooks.create(db, who.tenant_id, "https://example.org", secret)
    job = submit(db, who, config={"task": secret}, resolved={"task": secret})
    kept = submit(db, other, config={"task": "kept by the other tenant"})
    db.overwrite_deleted()
    assert secret.encode() in (tmp_path / "ledger.db").read_bytes()
    jobs.request_cancel(db, who.tenant_id, job.id)
    retention.remove_tenant(db, config, "acme")
    files = b"".join(path.read_bytes() for path in tmp_path.glob("ledger.db*"))
    assert secret.encode() not in files
    assert b"kept by the other tenant" in files
    assert jobs.get(db, other.tenant_id, kept.id) is not None


def test_a_death_between_ledger_and_storage_is_made_good(db, config, monkeypatch):
    who = member(db)
    _, run = finished(db, config, who)
    model = upload_of(db, config, who)
    os.utime(model, (time.time() - 2 * DAY,) * 2)
    db.skew = 11 * DAY
    died = RuntimeError("killed")

    def dies(*args):
        raise died

    with monkeypatch.context() as patch:
        patch.setattr(retention, "_remove_folder", dies)
        with pytest.raises(RuntimeError):
            retention.purge(db, config)
    uploads.remove(db, who.tenant_id, SHA, "retention")
    assert run.exists()
    assert retention.purge(db, config).leftovers == 2
    assert not run.exists()
    assert not model.exists()


def test_files_that_the_ledger_does_not_know_stay(db, config):
    """The endpoint's file may name a wrong database."""
    stranger = Path(config.storage_root) / "tenants" / f"tenant_{'0' * 24}"
    (stranger / "runs" / f"job_{'0' * 24}").mkdir(parents=True)
    (stranger / "uploads").mkdir()
    old = stranger / "uploads" / f"{SHA}.onnx"
    old.write_bytes(b"abc")
    os.utime(old, (1, 1))
    assert not retention.purge(db, config)
    assert old.exists()
    assert (stranger / "runs" / f"job_{'0' * 24}").exists()


def test_uploads_go_once_no_job_has_named_them_for_so_long(db, config):
    who = member(db)
    named, unnamed = upload_of(db, config, who), upload_of(db, config, who, "cd" * 32)
    other = member(db, "other")
    others = upload_of(db, config, other)
    job = submit(db, who, config={"classifier": f"onnx:upload:{SHA}"})
    db.skew = 11 * DAY
    assert retention.purge(db, config).uploads == 2
    assert named.exists()
    assert not unnamed.exists()
    assert not others.exists()
    jobs.request_cancel(db, who.tenant_id, job.id)
    db.skew = 22 * DAY
    retention.purge(db, config)
    assert not named.exists()


def test_keys_events_and_deliveries_are_forgotten(db, config):
    who = member(db)
    webhooks.create(db, who.tenant_id, "https://example.org", "s")
    submit(db, who, idempotency_key="once")
    claim = claimed(db, who, 1e9)
    running.finish(db, claim.job.id, claim.fence)
    [(delivery, hook)] = webhooks.due(db)
    webhooks.delivered(db, delivery.id)
    keeps = read_endpoint({"folder": config.folder, "retention": {"events_days": 10}})
    db.skew = 2 * DAY
    assert retention.purge(db, keeps).idempotency_keys == 1
    db.skew = 11 * DAY
    deleted = retention.purge(db, keeps)
    assert deleted.events > 0
    assert (deleted.runs, deleted.deliveries) == (0, 1)
    assert webhooks.deliveries(db, who.tenant_id, hook.id) == []


def test_a_tenant_who_leaves_is_gone_with_all_files_also_after_a_death(db, config, monkeypatch):
    who, other = member(db), member(db, "other")
    job = claimed(db, who, 1e9)
    run, others = run_of(config, who, job.job.id), finished(db, config, other)[1]
    with pytest.raises(RunError, match="cancel"):
        retention.remove_tenant(db, config, "acme")
    assert run.exists()
    running.finish(db, job.job.id, job.fence)
    with monkeypatch.context() as patch:
        patch.setattr(retention, "_remove_folder", lambda path: None)
        retention.remove_tenant(db, config, "acme")
    assert tenants.by_name(db, "acme") is None
    retention.purge(db, config)
    assert not run.parents[1].exists()
    assert others.exists()
    assert any(entry.subject == job.job.id for entry in audit_log.page(db))
    assert audit_log.verify(db) is None


def test_a_clock_that_is_set_ahead_deletes_nothing(db, config):
    pass_ = retention.Retention(db, config, "this one")
    assert not pass_.clock_is_steady()
    assert pass_.clock_is_steady()
    db.skew = 400 * DAY
    assert not pass_.clock_is_steady()
    assert not pass_.clock_is_steady()  # for a day, in which somebody may put it right


def test_a_machine_that_slept_by_night_deletes_by_age_in_the_morning(db, config, monkeypatch):
    pass_ = retention.Retention(db, config, "this one")
    assert not pass_.clock_is_steady()
    awake = retention.steady_now
    monkeypatch.setattr(retention, "steady_now", lambda: awake() + 8 * 3600)
    db.skew = 8 * 3600
    assert pass_.clock_is_steady()


def test_the_clock_of_passes_runs_while_the_machine_sleeps(monkeypatch):
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 5.0}.__getitem__)
    assert retention.steady_now() == 5.0
