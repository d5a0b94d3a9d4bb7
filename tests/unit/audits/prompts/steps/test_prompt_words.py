"""Words of prompts: what names a value, and what a prompt is with another word."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from c2b_ray.audits.prompts.steps.words import (
    LeakWords,
    by_slot,
    distinctive,
    frequent_words,
    leaks_of,
    occurrences,
    parts,
)

LEAKS = leaks_of(["night", "red", "woman", "very old"], {"red": ["ruby stone", "crimson"]})


@pytest.mark.parametrize(
    "text",
    ["a bus at Night", "reddish mug", "the nights", "a redder, warmer mug", "Midnight tea", "two women", "her mug",
     "a ruby stone", "crimson.", "a very old bus", "the woman's bus", "A NIGHT BUS", "a night-time bus", "at ni-ght",
     "a ruby-stone", "rubystone", "two policewomen", "a n\u0131ght bus in the n\u00edght", "ni\u200bght", "\uff4eight",
     "the woman\u2019s mug", "overnight", "a very\u2011old bus"],
)  # fmt: skip
def test_it_leaks(text: str) -> None:
    assert LEAKS.word(text)


@pytest.mark.parametrize(
    "text",
    [
        "a nightingale",
        "a reduced bus",
        "ruby bus",
        "a stone",
        "the hermit",
        "very bold",
        "there",
        "",
        "credit",
        "a ten-ight bus",
        "human",
        "a German bus",
        "a well-red-one"[:6],
    ],
)
def test_it_does_not(text: str) -> None:
    assert LEAKS.word(text) is None


PEOPLE = leaks_of(["man", "woman", "young"], {})
WEATHER = leaks_of(["clear", "fog"], {})
SIZES = leaks_of(["far", "large"], {})


@pytest.mark.parametrize(
    ("leaks", "text"),
    [(PEOPLE, "many people"), (PEOPLE, "a garden shed and a herd of cows"), (PEOPLE, "a ladder in the manner of"),
     (PEOPLE, "the cat hisses at a maned lion"), (WEATHER, "find a fish with fins"), (WEATHER, "a matte finish"),
     (SIZES, "a hug"), (SIZES, "she hugs the bear")],
)  # fmt: skip
def test_another_word_that_looks_like_a_form_does_not(leaks: LeakWords, text: str) -> None:
    assert leaks.word(text) is None


@pytest.mark.parametrize(
    ("leaks", "text"),
    [(PEOPLE, "men and boys"), (PEOPLE, "her bag"), (PEOPLE, "she waits"), (PEOPLE, "the youngest"), (PEOPLE, "babies"),
     (WEATHER, "a hazy morning"), (WEATHER, "misty hills"), (WEATHER, "the driest month"), (SIZES, "the hugest bus"),
     (SIZES, "bigger"), (SIZES, "further off"), (leaks_of(["blue"], {}), "bluish")],
)  # fmt: skip
def test_a_form_does(leaks: LeakWords, text: str) -> None:
    assert leaks.word(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("at night", "a night scene"), ("at night", "a bus under the moon"), ("in the rain", "rainy"),
     ("very large", "a large bus"), ("dark skin", "dark-skinned")],
)  # fmt: skip
def test_a_value_of_several_words_is_named_by_those_that_say_something(name: str, text: str) -> None:
    assert leaks_of([name], {}).word(text)
    assert leaks_of([name], {}).word("a plain bus at the stop") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [("riding a bike", "a man riding a bike"), ("riding a bike", "she rode her bike"),
     ("cup of coffee", "two cups of coffee"), ("talking on the phone", "he talks on a phone"),
     ("in front of a mirror", "a cat in front of the mirror"), ("a person with a hat", "a person with a hat"),
     ("brushing teeth", "brush your teeth"), ("Rosy_Cheeks", "a rosy cheek"),
     ("full of people", "a bus full of people"), ("out of focus", "slightly out of focus")],
)  # fmt: skip
def test_a_value_of_several_words_is_named_by_itself_and_by_forms_of_its_words(name: str, text: str) -> None:
    """Small words within a name hid it: prompts that held "riding a bike" word for word passed the filter."""
    assert leaks_of([name], {}).word(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("riding a bike", "a bike by the road"), ("riding a bike", "riding past a bike"),
     ("cup of coffee", "a cup of tea"), ("red hat", "a red bus, a hat"), ("talking on the phone", "talking to her"),
     ("full of people", "a full bus")],
)  # fmt: skip
def test_some_of_its_words_do_not_name_it(name: str, text: str) -> None:
    assert leaks_of([name], {}).word(text) is None


def test_a_value_of_small_words_alone_is_named_by_all_of_them() -> None:
    assert leaks_of(["very near"], {}).word("a bus very near")
    assert leaks_of(["very near"], {}).word("a bus near a tree") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [("rainy", "a bus in the rain"), ("sunny", "a boat in the sun"), ("sunny", "sunshine"), ("foggy", "mist on hills"),
     ("smiling", "with a smile"), ("running", "she runs"), ("flying", "flies past"), ("striped", "with stripes"),
     ("dotted", "with dots"), ("wooden", "made of wood"), ("children", "a child"), ("boats", "a boat"),
     ("glasses", "a glass"), ("daytime", "by day"), ("elderly", "an old man"), ("dark", "a darkening sky")],
)  # fmt: skip
def test_an_inflected_value_is_named_by_the_word_that_it_comes_from(name: str, text: str) -> None:
    assert leaks_of([name], {}).word(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("busy", "a bus"), ("party", "a part of it"), ("evening", "even so"), ("tiny", "a tin mug"), ("red", "a bus"),
     ("glass", "gas"), ("street", "a stroll"), ("city", "a cite"), ("baby", "a bob"), ("news", "a new bus")],
)  # fmt: skip
def test_a_value_that_only_ends_like_an_inflection_has_no_other_names(name: str, text: str) -> None:
    assert leaks_of([name], {}).word(text) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [("running", "she ran"), ("sitting", "sat down"), ("frozen", "freezing"), ("broken", "breaks"),
     ("dying", "it died"), ("knife", "knives"), ("shelves", "a shelf"), ("berries", "a berry"),
     ("younger", "young people"), ("darker", "a dark room"), ("tattooed", "a tattoo"), ("grey", "gray"),
     ("blonde", "blond hair"), ("colourful", "colorful"), ("stormy", "a thunderstorm"),
     ("elderly", "the elders"), ("man", "mens shoes"), ("flower", "flowers"), ("ladder", "two ladders"),
     ("worn", "wearing thin"), ("ski", "skiing"), ("caf\u00e9", "CAFES")],
)  # fmt: skip
def test_irregular_forms_other_spellings_and_plurals_name_a_value(name: str, text: str) -> None:
    assert leaks_of([name], {}).word(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("bus", "a busy street"), ("hat", "hated"), ("car", "he cared"), ("arm", "an army"), ("star", "staring"),
     ("tall", "a tally"), ("fur", "fury"), ("tin", "tiny"), ("pan", "panes of glass"), ("rat", "rated"),
     ("fir", "fires"), ("cap", "a cape"), ("post", "a poster"), ("show", "a shower"), ("flow", "a flower"),
     ("corn", "a corner"), ("plan", "planes"), ("ear", "early"), ("happy", "happening"),
     ("silly", "a window sill"), ("tidy", "the tide"), ("linen", "a line of people"), ("tired", "car tires"),
     ("shorts", "short hair")],
)  # fmt: skip
def test_words_that_share_letters_alone_do_not(name: str, text: str) -> None:
    """ "a busy street" was rejected under `bus`, so that a search lost prompts that name nothing."""
    assert leaks_of([name], {}).word(text) is None


def test_of_pairs_that_were_written_without_a_look_at_the_rules_few_are_wrong() -> None:
    """93 % were right when the pairs were first tried (snowballstemmer 73, simplemma 82, lemminflect 83 %); what they
    showed was mended, so that they guard what is right, and say no more how good the rules are."""
    with (Path(__file__).parent / "named_by.csv").open(encoding="utf-8") as file:
        pairs = list(csv.DictReader(file))
    wrong = [
        row
        for row in pairs
        if (leaks_of([row["value"]], {}).word(row["text"]) is not None) != (row["names it"] == "yes")
    ]
    assert len(pairs) == 220
    assert len(wrong) <= 8, wrong


PROMPT = "a photo of a rusty bus near an old fence, at a market"


def occurrence(word: str, prompt: str = PROMPT):
    return next(one for one in occurrences(prompt) if one.word == word)


@pytest.mark.parametrize(
    ("word", "without"),
    [
        ("rusty", "a photo of a bus near an old fence, at a market"),
        ("market", "a photo of a rusty bus near an old fence"),
        ("old", "a photo of a rusty bus near a fence, at a market"),
    ],
)
def test_without_a_word_and_what_leads_up_to_it(word: str, without: str) -> None:
    assert occurrence(word).without() == without


def test_a_phrase_in_the_middle_goes_whole() -> None:
    assert occurrence("fence", "a bus near a fence at a market").without() == "a bus at a market"
    assert occurrence("rusty", "a bus that is rusty at a market").without() == "a bus at a market"


def test_articles_follow_their_words() -> None:
    assert occurrence("rusty").with_word("elegant").startswith("a photo of an elegant bus")


def test_words_of_one_form_share_a_slot() -> None:
    slots = by_slot(["a rusty bus near a fence", "a quiet mug near the barrel", "a boat at a market"])
    words = [set(group) for group in slots.values()]
    assert {"rusty", "quiet"} in words
    assert {"fence", "barrel"} in words
    assert {"bus", "mug"} in words
    assert {"market"} in words


def test_parts_keep_the_noun_that_it_is_about() -> None:
    assert dict(parts("a photo of a rusty bus near a fence")) == {
        "rusty": "a photo of a bus near a fence",
        "near a fence": "a photo of a rusty bus",
    }


def test_frequent_words_leave_out_frames_and_names() -> None:
    assert frequent_words(["a photo of a red bus", "the red mug"], {"mug"}) == ["red", "bus"]


def test_what_describes_one_value_alone_is_told_from_what_describes_all() -> None:
    worded = distinctive({"clear": ["in fine weather"], "rain": ["in rainy weather", "in a downpour"]})
    assert worded == {"clear": ["fine"], "rain": ["rainy", "downpour"]}
