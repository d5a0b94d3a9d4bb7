"""Errors of commands reach clients in the words of requests."""

import pytest

from c2b_ray.endpoint.words import fields_of, in_words_of_requests
from c2b_ray.endpoint.work.progress import problem
from c2b_ray.errors import ConfigError, RunError, StorageError


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("--classifier-a, --classifier-b", ["classifier_a", "classifier_b"]),
        ("--class", ["target_class"]),
        ("B", ["b"]),
        ("SENTENCE", ["sentence"]),
        ("images.index", ["images.index"]),
        ("", [""]),
    ],
)
def test_fields(said, fields):
    assert fields_of(said) == fields


def test_messages_keep_what_is_no_option():
    said = "no class named; name one with --class, not --classless; --classifier-a and 'a--class' stay apart"
    assert in_words_of_requests(said) == (
        "no class named; name one with target_class, not --classless; classifier_a and 'a--class' stay apart"
    )


def test_a_failed_job_names_the_field_of_its_config():
    failed = problem(ConfigError("--class", "'a thing' names no class; name one with --class"), "/srv/tenants/t")
    assert (failed.field, failed.detail) == (
        "target_class", "target_class: 'a thing' names no class; name one with target_class"
    )  # fmt: skip
    changed = problem(RunError("the images changed; give another --out to audit them as they are"), "/srv/tenants/t")
    assert (changed.field, changed.detail) == (None, "the images changed; submit it again to audit them as they are")
    full = problem(
        StorageError("runs/r: the disk is full; free some space and run the same command again, it resumes"), "/srv/t"
    )
    assert full.detail == "runs/r: the disk is full; free some space and submit it again, it resumes"
