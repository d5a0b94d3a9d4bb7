"""What those who watch a job read: how far it is, and why it failed, without the server's own paths."""

from dataclasses import replace

import pytest

from c2b_ray.audits.kit.progress import IMAGES, IMAGES_HELD, Event
from c2b_ray.endpoint import counters
from c2b_ray.endpoint.work.progress import ProgressReporter, problem
from c2b_ray.endpoint.work.protocol import ProtocolError, from_child, line
from c2b_ray.engine.progress import Progress
from c2b_ray.errors import (
    Argument,
    BusyRunError,
    ConfigError,
    RunError,
    ServiceError,
    SourceError,
    SpecError,
    StorageError,
    another_run,
    naming,
    resuming,
)


def progress(step: str, answered: int, resumed: int = 0) -> Event:
    return Event(step, "progress", 1.0, Progress(answered, 0, resumed, 100, 10.0, answered))


def test_images_are_counted_in_the_steps_that_ask_classifiers():
    told = []
    telling = ProgressReporter(told.append, lambda: None)
    for event in (
        Event("fetch images", "begin"), progress("fetch images", 50),
        Event("classify: a", "begin"), progress("classify: a", 20, resumed=30), progress("classify: a", 40, resumed=30),
        Event("classify: a", "end"), Event("classify: a", "begin"), progress("classify: a", 5),
    ):  # fmt: skip
        telling(event)
    assert telling.images == 45, "what was there before is not booked again; a step that comes again is"
    assert telling.present == 70, "answers of earlier processes count among those that the run holds"
    assert told[-1].images == 40, "of many events only some are told"


def test_images_of_other_steps_are_counted_as_their_audit_says():
    telling = ProgressReporter(lambda told: None, lambda: None)
    judged = [replace(progress("judge", answered, resumed=2), images_per_row=2.5) for answered in (2, 4)]
    of_search = Event("search", "progress", counts={IMAGES: 30, IMAGES_HELD: 50})
    for event in (Event("judge", "begin"), *judged, Event("search", "begin"), progress("search", 7), of_search):
        telling(event)
    assert telling.images == 10 + 30, "rows of a search are no images"
    assert telling.present == 15 + 50


def test_what_a_search_for_failures_drew_reaches_the_counters_of_its_runner():
    told = []
    counts = {"discovery failed": 3, "discovery passed": 90, "discovery unusable": 7, "made up": 5}
    ProgressReporter(told.append, lambda: None)(Event("draw captions that may fail", "end", 1.0, counts=counts))
    [message] = told
    arrived = from_child(line(message))
    pairs = [("discovery", "failed"), ("discovery", "unusable"), ("confirmation", "failed")]
    before = {pair: value(*pair) for pair in pairs}
    counters.count_draws(arrived.counts)
    assert {pair: value(*pair) - before[pair] for pair in before} == {
        ("discovery", "failed"): 3, ("discovery", "unusable"): 7, ("confirmation", "failed"): 0,
    }  # fmt: skip
    for wrong in (b'"counts":{"a":-1}', b'"counts":{"a":"x"}'):
        with pytest.raises(ProtocolError):
            from_child(line(message).replace(b'"counts":{', wrong[:-1] + b","))


def value(stage: str, outcome: str) -> float:
    return counters.DRAWS.labels(stage, outcome)._value.get()


def test_each_event_asks_whether_to_go_on():
    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProgressReporter(lambda told: None, end)(Event("score", "begin"))


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
    said = problem(error, "/srv/tenants/t1")
    assert said.again is again
    assert said.busy is isinstance(error, BusyRunError)


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


def test_a_failed_job_names_the_fields_of_its_request_and_its_remedy():
    about_class = ConfigError(
        Argument.CLASS, "'a thing' names no class", remedy=naming("name one with ", Argument.CLASS)
    )
    failed = problem(about_class, "/srv/tenants/t")
    assert (failed.field, failed.detail) == (
        "target_class", "target_class: 'a thing' names no class; name one with target_class"
    )  # fmt: skip
    changed = RunError("the images changed", remedy=another_run("to audit them as they are"))
    assert problem(changed, "/srv/tenants/t").detail == "the images changed; submit it again to audit them as they are"
    full = StorageError("/srv/tenants/t/runs/r: the disk is full", remedy=resuming("free some space"))
    assert problem(full, "/srv/tenants/t").detail == (
        "runs/r: the disk is full; free some space and submit it again, it resumes"
    )


def test_an_upload_is_told_as_the_config_names_it():
    digest = "d2" * 32
    error = SpecError(f"onnx:/srv/tenants/t/uploads/{digest}.onnx: nothing states how pixels become numbers")
    failed = problem(error, "/srv/tenants/t")
    assert failed.detail == f"onnx:upload:{digest}: nothing states how pixels become numbers"
    assert failed.title == "A model cannot be used as its spec says"
