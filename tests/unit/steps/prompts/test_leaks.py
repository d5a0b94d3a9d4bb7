"""What names a value: words, their inflections, synonyms; and what does not."""

from __future__ import annotations

import pytest

from c2b_ray.steps.prompts.leaks import leaks_of

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
