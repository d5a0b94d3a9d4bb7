import pickle

import pytest

from c2b_ray import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError("images.index", "no such index", location="audit.yaml"),
        errors.ReplyError("empty reply", "…"),
        errors.SpecError("x"),
        errors.RunError("damaged", run="runs/1", location="runs/1/run.json"),
        errors.ServiceError("silent", app="classifiers"),
        errors.StorageError("the disk is full", location="runs/1", remedy=errors.resuming("free some space")),
        errors.ConfigError(
            (errors.Argument.CLASSIFIER_A, errors.Argument.CLASSIFIER_B),
            "runs/1 has three",
            remedy=errors.naming("name two with ", errors.Argument.CLASSIFIER_A),
        ),
    ],
)
def test_errors_cross_processes_as_themselves(error):
    again = pickle.loads(pickle.dumps(error))  # as Ray carries them; no weights are ever read so
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_an_argument_and_the_remedy_are_called_what_a_command_or_a_request_calls_them():
    both = (errors.Argument.CLASSIFIER_A, errors.Argument.CLASSIFIER_B)
    error = errors.ConfigError(
        both, "runs/1 has three", remedy=errors.naming("name two with ", *both, after=": x, y, z")
    )
    at_terminal = (
        "--classifier-a, --classifier-b: runs/1 has three; name two with --classifier-a and --classifier-b: x, y, z"
    )
    assert str(error) == error.worded("terminal") == at_terminal
    assert error.worded("request") == (
        "classifier_a, classifier_b: runs/1 has three; name two with classifier_a and classifier_b: x, y, z"
    )
    assert error.fields("terminal") == ["--classifier-a", "--classifier-b"]
    assert error.fields("request") == ["classifier_a", "classifier_b"]
    assert error.reason("request") == "runs/1 has three; name two with classifier_a and classifier_b: x, y, z"


def test_what_a_user_wrote_is_repeated_as_it_is_written():
    error = errors.ConfigError(errors.Argument.CLASS, "no class is called '--class'", location="audit.yaml")
    assert error.worded("request") == "audit.yaml: target_class: no class is called '--class'"


def test_a_field_of_a_config_is_called_the_same_everywhere():
    error = errors.ConfigError("images.index", "no such index", location="audit.yaml")
    assert error.worded("request") == str(error) == "audit.yaml: images.index: no such index"
    assert error.fields("request") == ["images.index"]
    assert errors.ConfigError("", "a file is expected").worded("request") == "a file is expected"


@pytest.mark.parametrize(
    ("error", "at_terminal", "in_request"),
    [
        (
            errors.RunError("the images changed", remedy=errors.another_run("to audit them", "put the files back")),
            "the images changed; give another --out to audit them, or put the files back",
            "the images changed; submit it again to audit them, or put the files back",
        ),
        (
            errors.StorageError("runs/1: the disk is full", remedy=errors.resuming("free some space")),
            "runs/1: the disk is full; free some space and run the same command again, it resumes",
            "runs/1: the disk is full; free some space and submit it again, it resumes",
        ),
    ],
)
def test_a_remedy_is_said_in_the_words_of_where_it_is_read(error, at_terminal, in_request):
    assert (str(error), error.worded("request")) == (at_terminal, in_request)
