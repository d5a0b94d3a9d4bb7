"""Checks whether a prompt names the value that it should bring about without naming it: by whole words, inflections,
synonyms.

The paper's leakage rate is the share of prompts that do. A value may itself be inflected: "rain" names "rainy". It
knows a few synonyms of the most common attributes; an audit adds more. `english` knows inflections.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.steps import words
from c2b_ray.steps.prompts.english import bases, inflections

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_HYPHENS = re.compile(r"(?<=\w)[-\u2010-\u2015](?=\w)")

SYNONYMS: dict[str, str] = {
    "man": "man male guy gentleman boy father dad husband boyfriend son brother uncle nephew grandfather he him his "
    "himself masculine sir mr king prince groom lad bearded businessman policeman fireman salesman chairman cameraman "
    "craftsman fisherman handyman spokesman workman waiter actor",
    "woman": "woman female lady girl mother mum mom wife housewife girlfriend daughter sister aunt niece grandmother "
    "she her hers herself feminine madam mrs ms queen princess bride lass businesswoman policewoman chairwoman "
    "saleswoman spokeswoman waitress actress",
    "young": "young youth youthful youngster teen teenager child kid adolescent juvenile toddler baby",
    "old": "old elder elderly aged senior grandparent pensioner retiree retired geriatric",
    "white": "white caucasian european pale-skinned",
    "black": "black african dark-skinned",
    "asian": "asian chinese japanese korean indian vietnamese thai",
    "day": "day daytime daylight noon midday sunlit sunny sunlight",
    "night": "night nighttime nightfall overnight tonight midnight nocturnal moonlit moonlight moon dark darkness",
    "sunset": "sunset dusk sundown twilight evening",
    "rain": "rain rainfall rainstorm raindrop rainwater drizzle downpour shower umbrella-weather",
    "snow": "snow snowfall snowstorm snowflake snowdrift snowman snowcapped blizzard",
    "fog": "fog mist haze murk",
    "clear": "clear cloudless fine dry",
    "small": "small little tiny miniature petite distant distance far faraway",
    "sun": "sun sunshine sunlight sunlit sunbeam sunray",
    "storm": "storm thunderstorm thunder",
    "cloud": "cloud overcast",
    "grey": "grey gray",
    "blond": "blond blonde",
    "colourful": "colourful colorful",
    "moustache": "moustache mustache",
    "glasses": "glasses eyeglasses spectacles",
    "angry": "angry anger furious",
    "large": "large big huge giant enormous gigantic massive close-up",
}
_ALIASES = {
    "male": "man", "men": "man", "boy": "man", "female": "woman", "women": "woman", "girl": "woman",
    "elderly": "old", "senior": "old", "daytime": "day", "nighttime": "night", "dusk": "sunset", "misty": "fog",
    "mist": "fog", "big": "large", "huge": "large", "gray": "grey", "blonde": "blond", "colorful": "colourful",
    "mustache": "moustache", "overcast": "cloud", "little": "small", "tiny": "small",
}  # fmt: skip
_EMPTY = words.PREPOSITIONS | {"a", "an", "the", "of", "with", "very", "quite", "rather"}
"""Words of a value's name that name nothing by themselves: "at night" is night, "very large" is large."""
_DETERMINERS = frozenset(
    ["a", "an", "the", "this", "that", "these", "those", "my", "your", "his", "her", "its", "our", "their"]
)
"""Words that may stand between those of a name: "riding his bike" names "riding a bike"."""


def words_of(text: str) -> list[str]:
    """Returns the words of a text in order, in lower case, without their possessive ending.

    Accents are removed, and look-alike spellings (full width, invisible signs between letters) become plain ones.
    """
    return [re.sub(r"['’]s?$", "", word) for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text)
    kept = (letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cf"))
    return "".join(kept).casefold()


@dataclass(frozen=True)
class Leaks:
    """`phrases`: sequences of words, each word with all its forms. A prompt that holds one of them leaks."""

    phrases: tuple[tuple[frozenset[str], ...], ...]

    def word(self, text: str) -> str | None:
        """Returns the first word or phrase of the text that names a value, "sun-set" as well as "sunset"; None where
        nothing does."""
        return self._first(words_of(text)) or self._first(words_of(_HYPHENS.sub("", text)))

    def _first(self, words: Sequence[str]) -> str | None:
        for at in range(len(words)):
            for phrase in self.phrases:
                if end := _end(words, at, phrase):
                    return " ".join(words[at:end])
        return None


def _end(words: Sequence[str], at: int, phrase: Sequence[frozenset[str]]) -> int | None:
    """Returns where the phrase that begins at `at` ends; None where none begins there."""
    for number, forms in enumerate(phrase):
        while number and at < len(words) and words[at] in _DETERMINERS - forms:
            at += 1
        if at == len(words) or words[at] not in forms:
            return None
        at += 1
    return at


def leaks_of(names: Iterable[str], synonyms: Mapping[str, Sequence[str]]) -> Leaks:
    """Returns the words that name these values: the values themselves, known synonyms, and those of the config (value →
    texts)."""
    texts = []
    for name in names:
        plain = words_of(name.replace("_", " "))
        core = " ".join(word for word in plain if word not in _EMPTY) or " ".join(plain)
        stems = bases(core) if " " not in core else ()
        known = [word for one in (core, *stems) for word in SYNONYMS.get(_ALIASES.get(one, one), "").split()]
        whole = [name] if " " in core else []  # "cup of coffee" beside "cup coffee"
        texts += [core, *whole, *stems, *known, *synonyms.get(name, ())]
    phrases = dict.fromkeys(_named_by(text) for text in texts)
    phrases |= {("".join(phrase),): None for phrase in phrases if len(phrase) > 1}  # "ice cream" and "icecream"
    return Leaks(tuple(_forms(phrase) for phrase in phrases if phrase))


def _named_by(text: str) -> tuple[str, ...]:
    """Returns the words of a name without determiners, unless it is one."""
    words = words_of(text.replace("_", " "))
    return tuple(word for word in words if word not in _DETERMINERS) or tuple(words)


def _forms(phrase: Sequence[str]) -> tuple[frozenset[str], ...]:
    """Returns all forms of each word; among several, also of the word that it may come from: "rides a bike"."""
    if len(phrase) == 1:
        return (inflections(phrase[0]),)
    return tuple(frozenset().union(*map(inflections, (word, *bases(word)))) for word in phrase)
