"""Errors as data: all fields survive a traceback's text, whatever the class takes as arguments."""

from __future__ import annotations

import traceback

import pytest

from c2b_ray.errors import Argument, C2BError, ConfigError, ReplyError, ServiceError, WeightsError, naming
from c2b_ray.serving.channel import CannotStart, carried_in_text, from_text, to_text

ERRORS = [
    WeightsError("“model.bin” is a pickle\nof two lines", location="s3://b/model.bin", run="runs/1", app="encoder"),
    ConfigError(Argument.CLASSIFIER, "absent", location="audit.yaml", remedy=naming("give ", Argument.CLASSIFIER_A)),
    ReplyError("no JSON", reply='{"half": "'),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_read_back_whole_from_the_traceback_of_a_constructor(error: C2BError) -> None:
    with pytest.raises(CannotStart) as raised, carried_in_text():
        raise error
    text = f"The deployment failed to start. Error:\n{''.join(traceback.format_exception(raised.value))}\nmore"
    found = from_text(text)
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_an_error_class_of_somebody_else_becomes_a_service_error() -> None:
    class Theirs(C2BError):
        pass

    text = to_text(Theirs("why", location="x"))
    del Theirs
    found = from_text(text.replace("Theirs", "Unheard"))
    assert type(found) is ServiceError
    assert found.location == "x"


def test_an_argument_of_another_release_is_left_out():
    text = to_text(ConfigError(Argument.TARGET, "why"))
    found = from_text(text.replace('["TARGET"]', '["UNHEARD"]'))
    assert (type(found), str(found), found.arguments) == (ConfigError, "--target: why", ())


@pytest.mark.parametrize("text", ["", "c2b_ray.errors.WeightsError: said", to_text(WeightsError("cut"))[:-3]])
def test_a_text_without_a_whole_error_has_none(text: str) -> None:
    assert from_text(text) is None
