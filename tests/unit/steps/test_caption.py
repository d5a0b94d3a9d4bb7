import json

from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.steps.caption import caption
from c2b_ray.steps.propose import propose

PROPOSALS, _ = propose("task", ["bus"], None, {"weather": ["snow", "rain"]}, seed=0)


def test_without_a_model_the_default_template_is_filled():
    captions, rejected = caption("task", PROPOSALS, None, 1, seed=0)
    assert captions["text"].to_pylist() == ["a photo of a bus, weather: snow", "a photo of a bus, weather: rain"]
    assert rejected.num_rows == 0


def test_the_models_captions_are_used_and_bad_ones_replaced_by_the_template():
    model = ScriptedLanguageModel(
        [
            json.dumps({"template": "a [CLASS] in [VALUE]"}),
            json.dumps({"caption": "a bus  in deep snow"}),
            json.dumps({"caption": "a lorry in the rain"}),
        ]
    )
    captions, rejected = caption("task", PROPOSALS, model, 1, seed=0)
    assert captions["text"].to_pylist() == ["a bus in deep snow", "a bus in rain"]
    (row,) = rejected.to_pylist()
    assert (row["step"], row["about"]) == ("caption", "bus/weather/rain")
    assert "does not name the class" in row["reason"]


def test_a_template_without_places_is_rejected():
    model = ScriptedLanguageModel([json.dumps({"template": "a photo"}), "no", "no"])
    captions, rejected = caption("task", PROPOSALS, model, 1, seed=0)
    assert captions["text"].to_pylist()[0] == "a photo of a bus, weather: snow"
    assert [row["step"] for row in rejected.to_pylist()] == ["template", "caption", "caption"]


def test_several_captions_per_cell_have_ids_of_their_own():
    captions, _ = caption("task", PROPOSALS, None, 3, seed=0)
    assert captions.num_rows == 6
    assert len(set(captions["caption_id"].to_pylist())) == 6
