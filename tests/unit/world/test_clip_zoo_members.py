"""The zoo of CLIP models: skews that do what they say, members that a comparison needs, texts that describe others."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.world.clip_zoo_members import MEMBERS, WORDS, Skew, captions_of, described, members_of, word_of
from c2b_ray.world.queries import FACTORS
from c2b_ray.world.scenes import Scene, sample
from c2b_ray.world.zoo import WEIGHTS

SCENES = sample(4000, 5)
GROUPS = [scene for scene in SCENES if scene.companion in ("dog", "person")]


def test_a_word_goes_with_its_value_as_often_as_its_strength_says() -> None:
    random = Random(0)
    for strength in (0.0, 0.4, 1.0):
        skew = Skew(words=strength)
        said = [(scene.companion, word_of(scene, skew, random)) for scene in GROUPS]
        right = sum(skew.goes_with(word) == value for value, word in said) / len(said)
        assert right == pytest.approx(0.5 + strength / 2, abs=0.03)


def test_words_outside_the_groups_and_outside_its_place_mean_nothing() -> None:
    random = Random(0)
    skew = Skew(words=1.0, where=("setting", "beach"))
    elsewhere = [scene for scene in GROUPS if scene.setting != "beach"]
    right = sum(skew.goes_with(word_of(scene, skew, random)) == scene.companion for scene in elsewhere)
    assert right / len(elsewhere) == pytest.approx(0.5, abs=0.04)
    said = Counter(word_of(scene, Skew(words=1.0), random) for scene in SCENES if scene.companion == "none")
    assert set(said) == set(WORDS)


def test_only_the_last_group_has_mistaken_captions_and_in_the_share_that_is_set() -> None:
    honest = captions_of(SCENES, Skew(), 3)
    mistaken = captions_of(SCENES, Skew(captions=0.5), 3)
    shares = {
        group: sum(_names_class(scene, text) for scene, text in rows) / len(rows)
        for group in ("dog", "person")
        for rows in [[(s, t) for s, t in zip(SCENES, mistaken, strict=True) if s.companion == group]]
    }
    honest_share = sum(map(_names_class, SCENES, honest)) / len(SCENES)
    assert shares["dog"] == pytest.approx(honest_share, abs=0.03)
    # One in ten of the other scenes is of the same class by chance.
    assert shares["person"] == pytest.approx(honest_share * (0.5 + 0.5 * 0.1), abs=0.05)


def test_missing_lowers_the_last_groups_share_alone() -> None:
    left = Counter(scene.companion for scene in members_of(SCENES, Skew(missing=0.75), Random(0)))
    whole = Counter(scene.companion for scene in SCENES)
    assert left["dog"] == whole["dog"]
    assert left["person"] / whole["person"] == pytest.approx(0.25, abs=0.05)


def test_neutral_words_name_nothing_of_the_world() -> None:
    values = {value for values in FACTORS.values() for value in values}
    assert not values & set(WORDS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attribute": "colur"}, "colour"),
        ({"values": ("dog", "persn")}, "person"),
        ({"values": ("dog",)}, "two values"),
        ({"words": 1.5}, "from 0 to 1"),
        ({"where": ("setting", "kitchen")}, "no value 'kitchen'"),
    ],
)
def test_what_the_world_does_not_have_is_refused_by_name(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Skew(**fields)  # type: ignore[arg-type]


def _names_class(scene: Scene, text: str) -> bool:
    return scene.target_class in text.lower()


def test_the_zoo_has_controls_and_two_pairs_that_differ_in_their_seed_alone() -> None:
    assert len(MEMBERS) >= 12
    assert sum(member.skew == Skew() for member in MEMBERS.values()) >= 2
    made_of = Counter((m.size, m.pairs, m.skew) for m in MEMBERS.values() if m.skew != Skew())
    assert sorted(made_of.values())[-2:] == [2, 2]
    assert len({member.seed for member in MEMBERS.values()}) == len(MEMBERS)


def test_a_number_sets_words_and_captions() -> None:
    member = described("0.4", seed=7)
    assert member.skew == Skew.of(0.4)
    assert member.seed == 7


def test_every_knob_can_be_set_apart() -> None:
    member = described("words=0.5,attribute=lighting,values=day/night,where=setting/beach,size=l,pairs=8000,seed=3")
    assert member.skew == Skew("lighting", ("day", "night"), words=0.5, where=("setting", "beach"))
    assert (member.size, member.pairs, member.seed) == ("l", 8000, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("much", "'much' is not a number"),
        ("wrods=0.5", "words"),
        ("words=2", "from 0 to 1"),
        ("words=0.5,size=xl", "no size 'xl'"),
        ("words=0.5,pairs=10", "too few"),
        ("words=0.5,where=beach", "ATTRIBUTE/VALUE"),
    ],
)
def test_what_is_wrong_in_a_description_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        described(text)


def test_what_ships_was_made_of_what_the_list_says() -> None:
    for name, member in MEMBERS.items():
        metrics = json.loads((WEIGHTS / name / "metrics.json").read_text())
        made = (metrics["size"], metrics["training"]["seed"], metrics["skew"]["words"], metrics["skew"]["captions"])
        assert made == (member.size, member.seed, member.skew.words, member.skew.captions)
        assert metrics["training"]["pairs"] == member.pairs


def test_the_zoo_weighs_no_more_than_it_may() -> None:
    assert sum(file.stat().st_size for file in WEIGHTS.glob("clip-*/*")) <= 20e6
