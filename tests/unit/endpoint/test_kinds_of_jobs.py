"""The kinds of jobs, and the models that their use is booked on: of a question, those of the run that it asks."""

import importlib
import inspect

import pytest
from ledgers import claimed, member, submit
from pydantic import BaseModel

from c2b_ray.endpoint.kinds import UNKNOWN, images_of_question, kind_named, kinds, models_of
from c2b_ray.endpoint.ledger import jobs, running
from c2b_ray.endpoint.work.progress import book_asked_run
from c2b_ray.errors import ConfigError


@pytest.mark.parametrize("kind", kinds().values(), ids=kinds())
def test_what_a_kind_names_exists_and_takes_what_a_runner_passes(kind):
    assert issubclass(kind.config_class, BaseModel)
    module, _, name = kind.run.partition(":")
    taken = list(inspect.signature(getattr(importlib.import_module(module), name)).parameters)
    assert taken[:5] == ["config", "out", "via", "listener", "placement"]


def test_another_kind_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match="did you mean 'failures'"):
        kind_named("failure")


TWO = {"classifier": {"old": "timm:a", "new": "timm:b"}}


@pytest.mark.parametrize(
    ("config", "models"),
    [
        ({"classifier": "timm:x"}, ["timm:x"]),
        ({"classifier": ["a", "b", "a"]}, ["a", "b"]),
        (TWO, ["timm:a", "timm:b"]),
        ({"task": "birds"}, [UNKNOWN]),
    ],
)
def test_use_is_booked_on_the_classifiers_of_a_config(db, config, models):
    assert models_of(db, "tenant", "c2b", config) == models


@pytest.mark.parametrize(
    ("named", "models"),
    [
        ({}, ["timm:a", "timm:b"]),
        ({"classifier": "new"}, ["timm:b"]),
        ({"classifier": "timm:a"}, ["timm:a"]),
        ({"classifier": "zebra"}, ["timm:a", "timm:b"]),
    ],
)
def test_a_question_is_booked_on_the_models_of_its_run(db, named, models):
    """Whatever text a question names as classifier, it is no model to book on, and no way around a model's quota."""
    who = member(db)
    asked = submit(db, who, config=TWO)
    question = {"run": f"run:{asked.id}", "sentence": "a bus", **named}
    assert models_of(db, who.tenant_id, "question", question) == models
    assert images_of_question(db, who.tenant_id, question) == 50 * len(models)
    assert images_of_question(db, who.tenant_id, question | {"n": 7}) == 7 * len(models)
    stranger = member(db, "beta")
    assert models_of(db, stranger.tenant_id, "question", question) == [UNKNOWN]


def test_the_draws_that_a_question_adds_to_its_run_count_as_storage(db, tmp_path):
    who, other = member(db), member(db, "beta")
    asked = claimed(db, who)
    running.finish(db, asked.job.id, asked.fence, str(tmp_path / asked.job.id))
    run = tmp_path / asked.job.id
    (run / "rounds").mkdir(parents=True)
    (run / "rounds" / "part-1.parquet").write_bytes(b"ten bytes.")
    question = submit(db, who, kind="question", config={"run": f"run:{asked.job.id}"})
    book_asked_run(db, submit(db, other, kind="question"), str(run))
    assert jobs.get(db, who.tenant_id, asked.job.id).bytes == 0, "another tenant's question books nothing here"
    book_asked_run(db, question, str(run))
    assert jobs.get(db, who.tenant_id, asked.job.id).bytes == 10
    book_asked_run(db, question, str(tmp_path / "job_gone"))


def test_a_question_to_a_search_for_failures_takes_draws(db):
    who = member(db)
    asked = submit(db, who, kind="failures", config={"classifier": "timm:a"})
    question = {"run": f"run:{asked.id}", "sentence": "a bus"}
    assert images_of_question(db, who.tenant_id, question) == 20_000
    assert models_of(db, who.tenant_id, "question", question) == ["timm:a"]
    jobs.request_cancel(db, who.tenant_id, asked.id)
    jobs.set_deleted(db, who.tenant_id, asked.id)
    assert images_of_question(db, who.tenant_id, question) is None
