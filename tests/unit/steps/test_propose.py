import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.steps.propose import Hypothesis, described, merge_all, propose
from c2b_ray.steps.synonyms import Judge


def reply(**attributes):
    return json.dumps({"attributes": [{"name": k, "values": v} for k, v in attributes.items()]})


def test_replies_are_normalised_merged_and_joined_by_given_hypotheses():
    said = reply(Weather=["Snow", "rain ", "snow"], climate=["rain", "snow", "fog"], hue=["red", "Red "])
    model = ScriptedLanguageModel([said])
    proposals, rejected = propose("task", ["bus"], model, {"Setting": ["beach", "street"]}, seed=0)
    assert rejected.num_rows == 0
    rows = {row["attribute"]: row for row in proposals.to_pylist()}
    assert set(rows) == {"setting", "weather"}  # hue is one value, twice; climate's values cover weather's
    assert rows["weather"]["bias_classes"] == ["snow", "rain", "fog"]
    assert rows["weather"]["merged_from"] == ["weather", "climate"]
    assert rows["setting"]["source"] == "user"


def test_a_users_values_are_not_added_to():
    model = ScriptedLanguageModel([reply(weather=["snow", "rain", "hail"])])
    proposals, _ = propose("task", ["bus"], model, {"weather": ["snow", "rain"]}, seed=0)
    (row,) = proposals.to_pylist()
    assert row["bias_classes"] == ["snow", "rain"]
    assert row["source"] == "user+language_model"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Weather matters most, I think.", "not JSON"),
        ('{"attributes": [{"name": "weather", "val', "not JSON"),
        ("", "empty reply"),
        ('{"attributes": [{"name": "weather", "values": ["snow"]}]}', "attributes/0/values"),
        ('{"attributes": []}', "attributes"),
        ("[1, 2]", "another form"),
    ],
)
def test_bad_replies_are_kept_and_asked_again(text, reason):
    model = ScriptedLanguageModel([text, reply(weather=["snow", "rain"])])
    proposals, rejected = propose("task", ["bus"], model, None, seed=0)
    assert proposals.num_rows == 1
    (row,) = rejected.to_pylist()
    assert row["reply"] == text
    assert row["about"] == "bus"
    assert reason in row["reason"]


def test_a_model_that_never_answers_leaves_the_given_hypotheses():
    model = ScriptedLanguageModel(["prose"] * 3)
    proposals, rejected = propose("task", ["bus"], model, {"weather": ["snow", "rain"]}, seed=0)
    assert proposals["attribute"].to_pylist() == ["weather"]
    assert rejected.num_rows == 3


words = st.text(st.characters(codec="utf-8"), max_size=12)


@given(st.lists(st.tuples(words, st.lists(words, max_size=6)), max_size=6))
def test_merging_is_idempotent_and_leaves_something_to_compare(raw):
    raw_hypotheses = [Hypothesis(name, tuple(values), "language_model", (name,)) for name, values in raw]
    [once] = merge_all([raw_hypotheses], Judge())
    assert len({h.attribute for h in once}) == len(once)
    assert all(len(set(h.bias_classes)) == len(h.bias_classes) >= 2 for h in once)


def test_the_language_model_is_told_the_classes_unless_the_task_names_them():
    assert described("Classify photos", ["bus", "boat"]) == "Classify photos. Classes: bus, boat."
    assert described("What is it?", ["bus"]) == "What is it? Classes: bus."
    assert described("Tell Buses from traffic lights.", ["bus", "traffic_light"]) == "Tell Buses from traffic lights."
    assert "Classes: cat" in described("Sort categories", ["cat"])
    many = described("Classify photos", [f"class {n}" for n in range(1000)])
    assert many.endswith("class 39 and 960 more.")
    told = []

    def reply(request):
        told.append(request.messages[-1].content)
        return json.dumps({"attributes": [{"name": "sky", "values": ["a", "b"]}]})

    propose("Classify photos", ["bus", "boat"], ScriptedLanguageModel(reply), None, seed=0)
    assert len(told) == 2
    assert all("Task: Classify photos. Classes: bus, boat.\n" in text for text in told)
