"""Words in their places: what a prompt is without one, with another, and which words can stand for each other."""

from __future__ import annotations

import pytest

from c2b_ray.audits.prompts.steps.words import by_slot, distinctive, frequent_words, occurrences, parts

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
