"""What is shipped is spread as a comparison needs it, and one's own models are described in one text."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.world.clip_zoo_members import MEMBERS, Skew, described
from c2b_ray.world.zoo import WEIGHTS


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
