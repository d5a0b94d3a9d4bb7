import pytest

from c2b_ray.steps.caption import caption_of
from c2b_ray.steps.labels import names_class, names_value
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.scenes import ATTRIBUTES


@pytest.mark.parametrize(
    ("text", "attribute", "value", "named"),
    [
        ("raining on a bus", "weather", "rain", True),
        ("a bus in the rain", "weather", "rainy", True),
        ("a bus in a snowfall", "weather", "snow", True),
        ("a photo of a bus", "weather", "snow", False),
        ("a cartoon of a bus", "companion", "car", False),
        ("a striped bus", "pattern", "stripes", True),
        ("a red-coloured bus", "colour", "red", True),
        ("a bus on its own", "companion", "none", True),
        ("a bus with a dog", "companion", "none", False),
        ("a face with glasses", "glasses", "yes", True),
        ("a face without glasses", "glasses", "yes", False),
        ("a face without glasses", "glasses", "no", True),
        ("公交车 夜", "时间", "夜", True),
    ],
)
def test_a_value_is_said_in_any_form_of_its_words(text, attribute, value, named):
    assert names_value(text, attribute, value) is named


def test_what_values_have_in_common_tells_nothing():
    assert names_value("a bus in low light", "lighting", "low light", ["high light"])
    assert not names_value("a bus in the light", "lighting", "low light", ["high light"])


def test_a_merged_name_will_do():
    assert names_value("an automobile at a rave", "place", "party", same=["rave"])
    assert not names_value("an automobile at a rave", "place", "party")


def test_a_class_is_a_word_of_its_own():
    assert names_class("two Traffic Lights", "traffic_light")
    assert not names_class("a scar", "car")


def test_the_worlds_phrases_name_their_value_and_no_other():
    cells = [(a, v, p) for a, values in PHRASES.items() for v, own in values.items() for p in own]

    def named(attribute, value, phrase):
        return names_value(f"a bus {phrase}", attribute, value, [o for o in ATTRIBUTES[attribute] if o != value])

    assert sum(named(*cell) for cell in cells) >= 0.95 * len(cells)
    assert not [(v, p) for a, v, p in cells for other in ATTRIBUTES[a] if other != v and named(a, other, p)]


def test_captions_by_rules_name_what_they_must():
    for attribute, values in ATTRIBUTES.items():
        for value in values:
            others = [other for other in values if other != value]
            text = caption_of("bus", [(attribute, value)])
            assert names_class(text, "bus")
            assert names_value(text, attribute, value, others), text
