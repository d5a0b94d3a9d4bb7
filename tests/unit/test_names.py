"""Names that look the same are the same."""

from __future__ import annotations

import unicodedata

from c2b_ray.audits.clip_bias.downstream import answered_question
from c2b_ray.audits.clip_bias.steps.measure import Attribute
from c2b_ray.names import folded, normalise

COMPOSED = "Älter"
APART = unicodedata.normalize("NFD", COMPOSED)


def test_an_accent_may_be_a_character_of_its_own():
    assert COMPOSED != APART
    assert folded(APART) == folded(COMPOSED) == "älter"
    assert normalise(f" {APART}. ") == "älter"


def test_a_protected_value_and_an_answer_in_either_form_are_one():
    attribute = Attribute.of("age", [COMPOSED, APART, "jung", COMPOSED])
    assert attribute.values == ("jung", COMPOSED)
    assert attribute.codes.tolist() == [1, 1, 0, 1]
    assert answered_question(0, COMPOSED, APART, None).accuracy == 1.0
