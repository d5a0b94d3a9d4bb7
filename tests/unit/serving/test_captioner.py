"""What the captioner's deployment lets through: replies that keep to the role."""

from __future__ import annotations

import pytest

from c2b_ray.errors import ServiceError
from c2b_ray.roles import Answer, Question
from c2b_ray.serving.captioner import _as_many, _check

QUESTION = Question("?", ("a", "b"))


@pytest.mark.parametrize("answer", [Answer("a"), Answer("b", (0.25, 0.75)), Answer(None, None, "named no choice")])
def test_what_keeps_to_the_role_passes(answer: Answer) -> None:
    _check("toy:x", answer, QUESTION)


@pytest.mark.parametrize(
    "answer",
    [
        Answer("c"),
        Answer(None),
        Answer("a", None, "and an error"),
        Answer("a", (1.0,)),
        Answer("a", (0.4, 0.4)),
        Answer("a", (float("nan"), 1.0)),
    ],
)
def test_what_breaks_the_role_is_a_service_error(answer: Answer) -> None:
    with pytest.raises(ServiceError, match="Captioner: toy:x"):
        _check("toy:x", answer, QUESTION)


def test_a_reply_too_few_is_a_service_error() -> None:
    with pytest.raises(ServiceError, match="gave 1 replies to 2 rows"):
        _as_many("toy:x", [Answer("a")], 2)
