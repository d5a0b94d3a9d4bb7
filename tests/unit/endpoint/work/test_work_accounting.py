"""Each image and each second is booked once, however the database behaves."""

from types import SimpleNamespace

import pytest

from c2b_ray.endpoint.ledger.tables import Claim
from c2b_ray.endpoint.work.progress import SliceUse, booked_before, measured
from c2b_ray.endpoint.work.protocol import StepReport


def told(step="classify", kind="progress", **more):
    return StepReport(step=step, kind=kind, **more)


def test_what_is_new_is_reported_and_booked_once():
    account = SliceUse(["a"])
    account.seconds = 2.0
    account.tell(told(done=10, total=40, rate=5.0, images=10))
    first = account.progress()
    assert (first.images, first.model_seconds, first.seconds_left) == ({"a": 10}, {"a": 2.0}, 6.0)
    assert account.progress().images == {"a": 10}, "not booked yet: the database was down"
    account.booked()
    assert account.complete
    assert (account.progress().images, account.progress().model_seconds) == ({}, {})
    account.tell(told(done=15, images=15))
    assert account.progress().images == {"a": 5}


def test_images_are_of_the_stage_that_answered_them_also_where_it_has_ended():
    account = SliceUse(["a"])
    account.tell(told("classify", images=10))
    account.tell(told("report", "begin", images=10))
    assert (account.progress().stage, account.progress().images_stage) == ("report", "classify")


def test_a_commit_of_which_nobody_heard_is_not_booked_again():
    account = SliceUse(["a"], images=10, seconds=3.0)
    account.progress()
    account.booked()
    account.images, account.seconds = 15, 4.0
    account.progress()  # the answer to it is lost
    account.set_booked(15, 4.0)
    assert account.complete


def test_classifiers_share_what_was_used():
    account = SliceUse(["a", "b"], images=5, seconds=4.0)
    assert account.progress().images == {"a": 3, "b": 2}
    assert account.progress().model_seconds == {"a": 2.0, "b": 2.0}


def test_what_a_lost_runner_wrote_and_did_not_book_is_booked_by_the_next():
    account = SliceUse(["a"], before=0)  # the ledger has nothing of the first claim, whose rows are all there
    account.tell(told(done=200, total=200, images=0, present=200))
    assert account.progress().images == {"a": 200}
    after_a_slice = SliceUse(["a"], before=120)
    after_a_slice.tell(told(done=200, total=200, images=80, present=200))
    assert after_a_slice.images == 80, "an orderly slice booked its own"
    first = SliceUse(["a"])
    first.tell(told(done=200, images=0, present=200))
    assert first.images == 0, "a question finds answers of the run that it asks, which are that run's"


@pytest.mark.parametrize(
    ("kind", "fence", "run_path", "before"),
    [
        ("c2b", 1, None, None),
        ("c2b", 2, None, 30),
        ("c2b", 1, "runs/of-a-cancelled-job", 30),
        ("question", 2, None, None),  # its answers may be those of the run that it asks
    ],
)
def test_what_is_missing_is_booked_where_a_runner_may_have_been_lost(kind, fence, run_path, before):
    job = SimpleNamespace(kind=kind, run_path=run_path, images=30)
    assert booked_before(Claim(job, fence)) == before


def test_counts_never_fall():
    account = SliceUse(["a"])
    account.tell(told(images=10))
    account.tell(told(step="score", kind="begin", images=4))
    assert account.images == 10


def test_only_rows_count_as_progress(tmp_path):
    account = SliceUse(["a"])
    account.measure(str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    account.measure(str(tmp_path / "run"))
    assert not account.advanced, "each attempt writes its manifest"
    (tmp_path / "run" / "images").mkdir()
    (tmp_path / "run" / "images" / "part-1.parquet").write_bytes(b"rows")
    account.measure(str(tmp_path / "run"))
    assert account.advanced
    assert account.progress().advanced
    assert measured(str(tmp_path / "run")).total == 6


def test_a_directory_that_cannot_be_read_ends_nothing(tmp_path):
    (tmp_path / "run").write_text("a file")
    account = SliceUse(["a"])
    account.measure(str(tmp_path / "run"))
    assert account.held is None or account.held.rows == 0
