"""Wordings: what is compared, and what denies."""

from __future__ import annotations

import pytest

from c2b_ray.audits.evaluate.steps.matching import is_presence, keyword_wording, wording


@pytest.mark.parametrize(
    ("attribute", "value", "texts", "negated"),
    [
        ("Weather", "Fog", ("fog", "fog weather"), False),
        ("Eyeglasses", "present", ("eyeglasses",), False),
        ("Eyeglasses", "absent", ("eyeglasses",), True),
        ("No_Beard", "present", ("beard",), True),
        ("No_Beard", "-1", ("beard",), False),
        ("companion", "none", ("companion",), True),
        ("beard", "no beard", ("beard", "beard beard"), True),
        ("hat", "without a hat", ("hat", "hat hat"), True),
        ("note", "notable", ("notable", "notable note"), False),
    ],
)
def test_what_is_denied_is_compared_with_its_direction_turned(attribute, value, texts, negated):
    said = wording(attribute, value)
    assert (said.texts, said.negated) == (texts, negated)


def test_names_replace_a_value_or_an_attribute_that_is_there_or_not():
    names = {"weather: fog": "mist", "Eyeglasses": "spectacles"}
    assert wording("weather", "fog", names).texts == ("mist",)
    assert wording("Eyeglasses", "absent", names) == wording("spectacles", "absent")
    assert wording("weather", "rain", names).texts[0] == "rain"
    assert keyword_wording("No dog") == keyword_wording("without any dog")


def test_presence_is_known_by_all_its_values():
    assert is_presence(frozenset({"1", "-1"}))
    assert not is_presence(frozenset({"none", "dog"}))
    assert not is_presence(frozenset())
