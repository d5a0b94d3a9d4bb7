"""What those who watch a job read: how far it is, and why it failed, without the server's own paths."""

import pytest

from c2b_ray.audits.kit.events import Event
from c2b_ray.endpoint.work.telling import Telling, problem
from c2b_ray.errors import BusyRunError, ConfigError, ServiceError, SourceError, StorageError
from c2b_ray.pipelines.progress import Progress


def progress(step: str, answered: int, resumed: int = 0) -> Event:
    return Event(step, "progress", 1.0, Progress(answered, 0, resumed, 100, 10.0, answered))


def test_images_are_counted_in_the_steps_that_ask_classifiers():
    told = []
    telling = Telling(told.append, lambda: None)
    for event in (
        Event("fetch images", "begin"), progress("fetch images", 50),
        Event("classify: a", "begin"), progress("classify: a", 20, resumed=30), progress("classify: a", 40, resumed=30),
        Event("classify: a", "end"), Event("classify: a", "begin"), progress("classify: a", 5),
    ):  # fmt: skip
        telling(event)
    assert telling.images == 45, "what was there before is not booked again; a step that comes again is"
    assert telling.present == 70, "answers of earlier processes count among those that the run holds"
    assert told[-1].images == 40, "of many events only some are told"


def test_each_event_asks_whether_to_go_on():
    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Telling(lambda told: None, end)(Event("score", "begin"))


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConfigError("classifier", "no such file"), False),
        (SourceError("/srv/tenants/t1/data/x.csv: no such file"), False),
        (BusyRunError("another process is writing"), True),
        (StorageError("the disk is full"), True),
        (ServiceError("does not answer"), True),
        (RuntimeError("CUDA error"), True),
        (MemoryError(), True),
    ],
)
def test_what_may_pass_is_tried_again(error, again):
    assert problem(error, "/srv/tenants/t1").again is again


def test_a_problem_says_what_to_do_without_secrets_or_the_servers_paths():
    error = SourceError(
        "/srv/tenants/t1/data/x.csv: no such file; see https://h/x?token=abcdefgh12345",
        location="/srv/tenants/t1/data/x.csv",
    )
    said = problem(error, "/srv/tenants/t1")
    assert said.detail.startswith("data/x.csv: no such file")
    assert "abcdefgh12345" not in said.detail
    assert said.location == "data/x.csv"
    assert problem(ConfigError("images.table", "no"), "/srv").field == "images.table"
