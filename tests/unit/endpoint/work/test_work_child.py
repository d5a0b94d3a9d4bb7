"""The process of a job as it starts: on a machine so busy that its first lease has passed before it reads its job."""

import os

import pytest

from c2b_ray.endpoint.ledger.database import steady_now
from c2b_ray.endpoint.work.child import FENCED_STATUS, WorkLimit, WorkStopped, _obey
from c2b_ray.endpoint.work.process import COMMAND, JobProcess
from c2b_ray.endpoint.work.protocol import LeaseExtended, Start, StopOrder, WorkEnded, line
from c2b_ray.endpoint.work.runner import without_a_word


@pytest.fixture
def late(tmp_path):
    """Started, and told of a job whose lease has passed."""
    process = JobProcess(COMMAND, dict(os.environ), str(tmp_path), None)
    out = tmp_path / "tenants" / "t" / "runs" / "job"
    out.mkdir(parents=True)
    process.send(Start(kind="c2b", config={"task": ""}, out=str(out), via="here", until=steady_now() - 1))
    yield process
    process.kill()


def heard(process):
    said = None
    while not isinstance(said, WorkEnded):
        said = process.receive(120)
        assert said is not None, "in vain"
    return said


def test_it_goes_on_once_its_runner_says_that_the_lease_was_renewed(late):
    late.send(LeaseExtended(until=steady_now() - 0.5))  # renewed once, and passed again
    late.send(LeaseExtended(until=steady_now() + 120))
    ended = heard(late)
    assert (ended.how, ended.problem.field) == ("failed", "task"), "it came to read its config"


def test_an_order_that_came_before_is_obeyed():
    leash = WorkLimit(steady_now() - 1, lambda message: None)
    _obey(line(StopOrder(what="cancel")), leash)
    assert leash.lapsed
    _obey(line(LeaseExtended(until=steady_now() + 120)), leash)
    assert not leash.lapsed
    with pytest.raises(WorkStopped) as stopped:
        leash.check()
    assert stopped.value.how == "cancelled"


@pytest.mark.parametrize(("status", "how"), [(FENCED_STATUS, "yielded"), (-9, "failed"), (1, "failed")])
def test_one_that_stopped_as_its_lease_passed_is_no_death_of_its_job(status, how):
    ended = without_a_word(status)
    assert (ended.how, ended.problem is None) == (how, how == "yielded")


def test_why_it_failed_is_said_also_where_the_disk_of_its_log_is_full(tmp_path):
    """It died without a word, with status 120."""
    with open("/dev/full", "ab") as full:
        process = JobProcess(COMMAND, dict(os.environ), str(tmp_path), full)
    out = tmp_path / "tenants" / "t" / "runs" / "job"
    out.mkdir(parents=True)
    process.send(Start(kind="c2b", config={"task": ""}, out=str(out), via="here", until=steady_now() + 120))
    try:
        assert heard(process).problem.field == "task"
    finally:
        process.kill()


def test_it_ends_with_its_runner(late):
    late._process.stdin.close()
    assert late.reap(120) == FENCED_STATUS
