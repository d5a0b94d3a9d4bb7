import json
from collections.abc import Sequence

import numpy as np
import pytest

from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.steps.propose import Hypothesis, merge_all
from c2b_ray.steps.synonyms import Judge, apart, head, key


class Encoder:
    """Holds the names of each group to be as near as it is told, and the groups to have nothing in common."""

    dimension, revision = 256, "e"

    def __init__(self, *groups: Sequence[str], near: float = 0.98) -> None:
        self.groups, self.near = groups, near
        self.others: dict[str, int] = {}

    def encode_texts(self, texts):
        found = np.zeros((len(texts), 256), np.float32)
        for row, text in enumerate(texts):
            group = next((i for i, names in enumerate(self.groups) if text in names), None)
            if group is None:
                found[row, 255 - self.others.setdefault(text, len(self.others))] = 1
                continue
            place = self.groups[group].index(text)
            found[row, group] = np.sqrt(self.near)
            found[row, 20 + place] = np.sqrt(1 - self.near)
        return found


def says(answer):
    return ScriptedLanguageModel(lambda _: json.dumps({"same": answer}))


@pytest.mark.parametrize(
    ("a", "b"),
    [("colour", "color"), ("night", "nighttime"), ("night", "at night"), ("night", "Night time"), ("gray", "grey"),
     ("close-up", "close up"), ("in the snow", "snowy"), ("cars", "car"), ("a beach", "beaches")],
)  # fmt: skip
def test_one_thing_in_two_spellings(a, b):
    assert key(a) == key(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [("with a dog", "without a dog"), ("on", "off"), ("lights on", "lights off"), ("rain", "no rain"), ("day", "night"),
     ("glass", "grass"), ("one dog", "two dogs"), ("street", "street lamp"), ("bus", "bu")],
)  # fmt: skip
def test_two_things_are_not_one(a, b):
    assert key(a) != key(b)


def test_head_words_leave_out_what_says_nothing():
    assert head("weather conditions") == head("weather") == ("weather",)
    assert head("heavy rain") != head("rain")


@pytest.mark.parametrize(
    ("a", "b"),
    [("day", "night"), ("daytime scene", "night scene"), ("small object", "large object"), ("light rain", "heavy rain"),
     ("left side", "right side"), ("rain", "no rain"), ("two dogs", "three dogs"), ("red bus", "blue bus"),
     ("3 people", "4 people"), ("with hat", "without hat")],
)  # fmt: skip
def test_what_is_known_to_be_apart(a, b):
    assert apart(a, b)
    assert apart(b, a)


def test_what_may_be_the_same_is_not_apart():
    assert not apart("dusk", "twilight")
    assert not apart("road", "street")


def same(judge, *names, values=None):
    (found,) = judge.same([names], values)
    return [(s.a, s.b, s.rule) for s in found]


def test_nearness_alone_merges_nothing():
    encoder = Encoder(["road", "street"])
    assert same(Judge(encoder), "road", "street", "beach") == []
    assert same(Judge(encoder, says(True)), "road", "street", "beach") == [("road", "street", "language model")]
    assert same(Judge(encoder, says(False)), "road", "street") == []
    assert same(Judge(encoder, ScriptedLanguageModel(lambda _: "prose")), "road", "street") == []


def test_antonyms_are_not_merged_however_near_and_whatever_is_said():
    """The trap: day and night are near in an encoder's space, and the language model says yes to everything."""
    encoder, model = Encoder(["day", "night"], ["small", "large"], near=0.999), says(True)
    judge = Judge(encoder, model)
    assert same(judge, "day", "night", "sunset") == []
    assert same(judge, "small", "large") == []
    assert model.requests == []  # not even asked


def test_a_model_that_says_yes_in_one_order_alone_does_not_confirm():
    model = ScriptedLanguageModel([json.dumps({"same": True}), json.dumps({"same": False})])
    assert same(Judge(Encoder(["road", "street"]), model), "road", "street") == []


def test_below_the_threshold_or_not_each_others_nearest_is_not_asked():
    model = says(True)
    assert same(Judge(Encoder(["road", "street"], near=0.89), model), "road", "street") == []
    assert model.requests == []
    # three that are equally near: only one pair is each other's nearest
    assert same(Judge(Encoder(["road", "street", "lane"]), says(True)), "road", "street", "lane") == [
        ("road", "street", "language model")
    ]


def test_a_head_word_needs_the_encoder_and_no_language_model():
    names = ("weather", "weather conditions")
    assert same(Judge(), *names) == []
    assert same(Judge(Encoder(list(names))), *names) == [(*names, "head word")]
    assert same(Judge(Encoder(list(names), near=0.5)), *names) == []


def test_attributes_need_a_value_in_common_to_be_asked_about():
    encoder = Encoder(["size", "pattern"])
    apart_ = {"size": {"small", "large"}, "pattern": {"plain", "striped"}}
    assert same(Judge(encoder, says(True)), "size", "pattern", values=apart_) == []
    shared = {"size": {"small", "large"}, "pattern": {"Large", "plain"}}
    assert same(Judge(encoder, says(True)), "size", "pattern", values=shared) != []


def hypothesis(name, *values, source="language_model"):
    return Hypothesis(name, values, source, (name,))


def test_merges_are_told_for_attributes_and_values():
    encoder = Encoder(["weather", "weather conditions"], ["road", "street"])
    given = [
        hypothesis("weather", "snow", "rain", "snowy"),
        hypothesis("weather conditions", "fog", "hail"),
        hypothesis("place", "road", "street", "beach"),
        hypothesis("location", "road", "street", "beach", "sea"),
        hypothesis("lighting", "at night", "nighttime"),
    ]
    (found,) = merge_all([given], Judge(encoder, says(True)))
    told = {h.attribute: (h.bias_classes, [(m.kind, m.name, m.into, m.rule) for m in h.merged]) for h in found}
    assert told == {
        "weather": (
            ("snow", "rain", "fog", "hail"),
            [("attribute", "weather conditions", "weather", "head word"), ("value", "snowy", "snow", "spelling")],
        ),
        "place": (
            ("road", "beach", "sea"),
            [("attribute", "location", "place", "values"), ("value", "street", "road", "language model")],
        ),
    }  # lighting had one value in two spellings: nothing is left to compare
    assert found[0].merged[0].similarity == pytest.approx(0.98, abs=1e-3)
    assert found[1].merged[0].similarity is None


def test_what_a_user_wrote_stays():
    encoder = Encoder(["colour", "paint"])
    user = [
        hypothesis("colour", "red", "blue", source="user"),
        hypothesis("color", "red", "crimson", source="user"),  # two of a user's own stay two
        hypothesis("lighting", "night", "nighttime", source="user"),  # so do their values
    ]
    (found,) = merge_all([[*user, hypothesis("paint", "red", "black")]], Judge(encoder, says(True)))
    assert [(h.attribute, h.bias_classes) for h in found] == [
        ("colour", ("red", "blue")),
        ("color", ("red", "crimson")),
        ("lighting", ("night", "nighttime")),
    ]
    assert found[0].source == "user+language_model"
    assert [(m.name, m.into) for m in found[0].merged] == [("paint", "colour")]


def test_classes_share_what_was_said():
    model = says(True)
    given = [hypothesis("place", "road", "street", "beach")]
    merge_all([given, given, given], Judge(Encoder(["road", "street"]), model))
    assert len(model.requests) == 2  # one pair, in either order
