"""What Prometheus reads of an endpoint: true of the ledger, and of few series whatever clients send."""

import socket
import urllib.request

import pytest
from ledgers import claimed, granted, leader, member, set_row, submit
from prometheus_client import CollectorRegistry

from c2b_ray.endpoint import counters
from c2b_ray.endpoint.ledger import running, tables, webhooks
from c2b_ray.endpoint.ledger.database import DatabaseDownError
from c2b_ray.endpoint.ledger.tables import Failure, Progress
from c2b_ray.endpoint.operate.metrics import Gauges, read, served
from c2b_ray.errors import ConfigError


def value(gauges, name, **labels):
    made = CollectorRegistry()
    made.register(gauges)
    return made.get_sample_value(name, labels)


def counted(counter, *labels):
    return counter.labels(*labels)._value.get()


def test_gauges_say_what_the_ledger_holds(db):
    who = member(db)
    for number in range(2):
        running.take_lease(db, f"{running.SLOT}runner/{number}", "runner", 30)
    claimed(db, who)
    submit(db, who)
    reading = read(db)
    assert reading.jobs == {"queued": 1, "running": 1}
    assert (reading.busy, reading.slots) == (1, 2)
    assert 0 < reading.dispatcher_lease <= 100
    gauges = Gauges(db)
    assert value(gauges, "c2b_runner_slots", state="free") == 1
    assert value(gauges, "c2b_database_up") == 1


def test_a_runner_that_died_has_no_slot_and_runs_nothing(db):
    running.take_lease(db, f"{running.SLOT}runner/0", "runner", 30)
    claimed(db, member(db))
    db.later(100)
    reading = read(db)
    assert (reading.busy, reading.slots, reading.dispatcher_lease) == (0, 0, 0)


def test_a_job_that_has_yielded_waits_since_then_and_not_since_it_was_submitted(db):
    claim = claimed(db, member(db))
    db.skew = 1000
    running.renew(db, claim.job.id, claim.fence, 30)
    running.release(db, claim.job.id, claim.fence)
    db.skew = 1010
    assert read(db).queue_age == pytest.approx(10, abs=3)


def test_a_job_that_may_not_run_yet_does_not_make_the_queue_old(db):
    who = member(db)
    job = submit(db, who)
    set_row(db, job.id, created=1.0, not_before=read_now(db) + 500)
    assert read(db).queue_age == 0
    db.skew = 520
    assert read(db).queue_age == pytest.approx(20, abs=3)


def read_now(db):
    with db.reading() as tx:
        return db.now(tx.connection)


def test_a_delivery_that_was_given_up_raises_no_alert_for_ever(db):
    who = member(db)
    webhooks.create(db, who.tenant_id, "https://example.org", "s")
    claim = claimed(db, who)
    running.finish(db, claim.job.id, claim.fence)
    [(delivery, _)] = webhooks.due(db)
    webhooks.failed(db, delivery.id, "500", retry_in=None)
    assert read(db).deliveries["given_up"] == 1
    db.skew = 2 * 86_400
    assert read(db).deliveries["given_up"] == 0


def test_a_database_that_is_down_shows_itself_alone(db, monkeypatch):
    clock = [0.0]
    gauges = Gauges(db, 2, lambda: clock[0])
    assert value(gauges, "c2b_jobs", state="queued") == 0

    def down():
        raise DatabaseDownError("gone", 1.0)

    monkeypatch.setattr(db, "reading", down)
    assert value(gauges, "c2b_database_up") == 1  # it was asked a moment ago
    clock[0] = 3.0
    assert value(gauges, "c2b_database_up") == 0
    assert value(gauges, "c2b_jobs", state="queued") is None


def test_use_and_ends_are_counted_once_they_are_kept(db):
    who = member(db)
    claim = claimed(db, who)
    images, seconds = counted(counters.IMAGES, "classify"), counted(counters.MODEL_SECONDS, "timm")
    ends, rejects = counted(counters.ENDED, "failed"), counted(counters.REJECTS, "Weights cannot be used")
    used = Progress("classify: timm:resnet18", images={"timm:resnet18": 32}, model_seconds={"timm:resnet18": 1.5})
    running.progress(db, claim.job.id, claim.fence, used)
    with pytest.raises(tables.FencedError):
        running.progress(db, claim.job.id, claim.fence + 1, used)
    with pytest.raises(tables.FencedError):
        running.fail(db, claim.job.id, claim.fence + 1, Failure("Weights cannot be used"))
    running.fail(db, claim.job.id, claim.fence, Failure("Weights cannot be used"))
    assert counted(counters.IMAGES, "classify") == images + 32
    assert counted(counters.MODEL_SECONDS, "timm") == seconds + 1.5
    assert counted(counters.ENDED, "failed") == ends + 1
    assert counted(counters.REJECTS, "Weights cannot be used") == rejects + 1


def test_names_that_strangers_choose_make_no_series(monkeypatch):
    monkeypatch.setattr(counters, "_titles", set())
    before = sum(len(family.samples) for family in counters.REJECTS.collect())  # of other tests in this process
    counters.used("secret step", [1], {"upload:secret-model": 1.0, "http://secret.example": 1.0})
    for number in range(200):
        counters.ended("failed", f"title {number}")
    shown = {sample.labels.get("model") for family in counters.MODEL_SECONDS.collect() for sample in family.samples}
    assert not any("secret" in str(name) for name in shown)
    assert sum(len(family.samples) for family in counters.REJECTS.collect()) - before <= 60


def test_a_process_without_an_api_answers_at_its_port(db):
    granted(db, member(db))
    leader(db)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with served(db, f"127.0.0.1:{port}"), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert 'c2b_jobs{state="queued"} 1.0' in answer.read().decode()
    with pytest.raises(ConfigError, match="HOST:PORT"), served(db, "9420"):
        pass


def test_the_parts_of_a_stage_are_as_busy_as_those_of_the_jobs_in_it_are_on_average():
    def shown(stage, part):
        made = CollectorRegistry()
        made.register(counters.BUSY)
        return made.get_sample_value("c2b_stage_busy", {"stage": stage, "part": part})

    counters.busy("job-1", "classify: resnet", {"decoding": 0.9, "model": 0.2})
    counters.busy("job-2", "classify: other", {"decoding": 0.5, "gpu": 0.4})
    assert (shown("classify", "decoding"), shown("classify", "gpu")) == (pytest.approx(0.7), 0.4)
    counters.busy("job-1", "embed", {"model": 1.0})
    assert (shown("classify", "decoding"), shown("classify", "model"), shown("other", "model")) == (0.5, None, 1.0)
    counters.busy("job-1", "", {})
    counters.busy("job-2", "", {})
    assert (shown("classify", "decoding"), shown("other", "model")) == (None, None)
