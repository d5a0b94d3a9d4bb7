"""Captions without a language model, as people write them under pictures."""

import re

import pytest

from c2b_ray.steps.caption import FRAMES, caption_of
from c2b_ray.world.scenes import ATTRIBUTES


@pytest.mark.parametrize(
    ("target", "attribute", "value", "text"),
    [
        ("goldfish", "lighting", "dark", "a photo of a dark goldfish"),
        ("goldfish", "lighting", "night", "a photo of a goldfish at night"),
        ("goldfish", "lighting", "soft", "a photo of a goldfish in soft light"),
        ("goldfish", "lighting conditions", "low light", "a photo of a goldfish in low light"),
        ("traffic_light", "weather", "snowy", "a photo of a traffic light in the snow"),
        ("airplane", "weather", "overcast", "a photo of an airplane in overcast weather"),
        ("airplane", "colour", "orange", "a photo of an orange airplane"),
        ("umbrella", "setting", "beach", "a photo of an umbrella on the beach"),
        ("umbrella", "setting", "street", "a photo of an umbrella in the street"),
        ("umbrella", "setting", "grassy field", "a photo of an umbrella in a grassy field"),
        ("umbrella", "background", "white", "a photo of an umbrella against a white background"),
        ("bus", "companion", "no companion", "a photo of a bus on its own"),
        ("bus", "companion", "dog", "a photo of a bus with a dog"),
        ("bus", "companion", "people", "a photo of a bus with people"),
        ("bus", "pattern", "none", "a photo of a bus without a pattern"),
        ("bus", "pattern", "polka dots", "a photo of a bus with polka dots"),
        ("face", "glasses", "no", "a photo of a face without glasses"),
        ("face", "hair colour", "red", "a photo of a face with red hair"),
        ("face", "object colour", "red", "a photo of a red face"),
        ("dog", "viewpoint", "side view", "a photo of a dog from the side"),
        ("dog", "number of objects", "two", "a photo of two dogs"),
        ("dog", "blur", "blurry", "a blurry photo of a dog"),
        ("dog", "image style", "oil painting", "an oil painting of a dog"),
        ("scissors", "age", "old", "a photo of old scissors"),
        ("hour hand", "weird", "xyzzy", "a photo of an hour hand, xyzzy"),
    ],
)
def test_where_a_value_goes(target, attribute, value, text):
    assert caption_of(target, [(attribute, value)]) == text


def test_several_values_make_one_sentence():
    values = [("colour", "red"), ("size", "small"), ("lighting", "night"), ("companion", "none")]
    assert caption_of("bus", values) == "a photo of a small red bus at night on its own"


@pytest.mark.parametrize(("attribute", "values"), ATTRIBUTES.items())
def test_a_hundred_captions_differ_and_say_the_value(attribute, values):
    for value in values:
        texts = [caption_of("bus", [(attribute, value)], number) for number in range(100)]
        assert len(set(texts)) == 100
        assert all(re.search(r"\bbus\b", text) for text in texts)
        assert len({text.split(" of ")[0].split(" showing ")[0] for text in texts[: len(FRAMES)]}) > 5
