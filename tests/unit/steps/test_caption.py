"""Captions without a language model, as people write them under pictures."""

import json
import re

import pytest

from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.steps.caption import FRAMES, caption, caption_of
from c2b_ray.steps.propose import propose
from c2b_ray.world.scenes import ATTRIBUTES

PROPOSALS, _ = propose("task", ["bus"], None, {"weather": ["snow", "rain"]}, seed=0)


def texts(model, captions_per_cell=1, proposals=PROPOSALS, **more):
    captions, rejected = caption("task", proposals, model, captions_per_cell, 0, **more)
    return captions["text"].to_pylist(), rejected.to_pylist()


def says(template, captions):
    """A model that answers the template's request, then captions by number or always the same."""
    return ScriptedLanguageModel(
        [json.dumps({"template": template}), *(json.dumps({"caption": text}) for text in captions)]
    )


def test_without_a_model_captions_are_as_people_write_them():
    assert texts(None) == (["a photo of a bus in the snow", "a photo of a bus in the rain"], [])


def test_the_models_captions_are_used_and_bad_ones_replaced_by_the_template():
    model = says("a [CLASS] in [VALUE]", ["a bus  in deep snow", "a lorry in the rain"])
    said, (row,) = texts(model)
    assert said == ["a bus in deep snow", "a bus in rain"]
    assert (row["step"], row["about"]) == ("caption", "bus/weather/rain")
    assert "does not name the class" in row["reason"]


def test_a_caption_that_says_nothing_of_its_value_is_replaced():
    said, rejected = texts(says("a photo of a [CLASS] [VALUE]", ["a photo of a bus"] * 2))
    assert said == ["a photo of a bus in the snow", "a photo of a bus in the rain"]
    assert [row["reason"] for row in rejected] == [
        "the caption does not say that weather is snow",
        "the caption does not say that weather is rain",
    ]


def test_a_caption_said_twice_is_replaced_within_a_cell_and_between_values():
    both = "a bus in snow and rain"
    said, rejected = texts(says("a [CLASS] in [VALUE]", [both, both.upper(), both, "rain on a bus"]), 2)
    assert said == [both, "a bus in snow", "a bus in rain", "rain on a bus"]
    assert [row["reason"] for row in rejected] == ["another caption of this attribute says the same"] * 2


def test_a_template_without_places_is_rejected():
    said, rejected = texts(ScriptedLanguageModel([json.dumps({"template": "a photo"}), "no", "no"]))
    assert said[0] == "a photo of a bus in the snow"
    assert [row["step"] for row in rejected] == ["template", "caption", "caption"]


@pytest.mark.parametrize("model", [None, "repeats"])
def test_many_captions_of_a_cell_are_all_different(model):
    always = ScriptedLanguageModel(lambda request: json.dumps({"caption": "a bus in snow, rain", "template": "x"}))
    said, _ = texts(always if model else None, 100)
    assert len({text.lower() for text in said}) == 200
    assert all("bus" in text and ("snow" in text or "rain" in text) for text in said)


def test_a_users_template_of_an_attribute_is_filled_and_reworded_for_more_captions():
    proposals, _ = propose("t", ["umbrella"], None, {"lighting": ["dim", "harsh"], "sky": ["red", "grey"]}, seed=0)
    templates = {"Lighting": "a photo of a [CLASS] in [VALUE] light"}
    said, _ = texts(None, 2, proposals, templates=templates)
    assert said[:3] == [
        "a photo of an umbrella in dim light",
        "a picture of an umbrella in dim light",
        "a photo of an umbrella in harsh light",
    ]
    assert said[4] == "a photo of an umbrella under a red sky"


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
