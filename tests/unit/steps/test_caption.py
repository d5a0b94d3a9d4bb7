import json

import pytest

from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.steps.caption import caption
from c2b_ray.steps.propose import propose

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
