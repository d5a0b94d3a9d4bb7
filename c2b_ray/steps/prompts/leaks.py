"""Checks whether a prompt names the value that it should bring about without naming it: by whole words, inflections,
synonyms.

The paper's leakage rate is the share of prompts that do. A value may itself be inflected: "rain" names "rainy". It
knows English endings and a few synonyms of the most common attributes; an audit adds more.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.steps import words

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_HYPHENS = re.compile(r"(?<=\w)[-\u2010-\u2015](?=\w)")
_VOWELS = "aeiou"

SYNONYMS: dict[str, str] = {
    "man": "man male guy gentleman boy father dad husband boyfriend son brother uncle nephew grandfather he him his "
    "himself masculine sir mr king prince groom lad bearded businessman policeman fireman salesman chairman cameraman "
    "craftsman fisherman handyman spokesman workman waiter actor",
    "woman": "woman female lady girl mother mum mom wife housewife girlfriend daughter sister aunt niece grandmother "
    "she her hers herself feminine madam mrs ms queen princess bride lass businesswoman policewoman chairwoman "
    "saleswoman spokeswoman waitress actress",
    "young": "young youth youthful teen teenager child kid adolescent juvenile toddler baby",
    "old": "old elderly aged senior grandparent pensioner retiree retired geriatric",
    "white": "white caucasian european pale-skinned",
    "black": "black african dark-skinned",
    "asian": "asian chinese japanese korean indian vietnamese thai",
    "day": "day daytime daylight noon midday sunlit sunny sunlight",
    "night": "night nighttime nightfall overnight tonight midnight nocturnal moonlit moonlight moon dark darkness",
    "sunset": "sunset dusk sundown twilight evening",
    "rain": "rain rainfall rainstorm raindrop rainwater drizzle downpour shower umbrella-weather",
    "snow": "snow snowfall snowstorm snowflake snowdrift snowman blizzard",
    "fog": "fog mist haze murk",
    "clear": "clear cloudless fine dry",
    "small": "small little tiny miniature petite distant distance far faraway",
    "sun": "sun sunshine sunlight sunlit sunbeam sunray",
    "large": "large big huge giant enormous gigantic massive close-up",
}
_ALIASES = {
    "male": "man", "men": "man", "boy": "man", "female": "woman", "women": "woman", "girl": "woman",
    "elderly": "old", "senior": "old", "daytime": "day", "nighttime": "night", "dusk": "sunset", "misty": "fog",
    "mist": "fog", "big": "large", "huge": "large", "little": "small", "tiny": "small",
}  # fmt: skip
_IRREGULAR = {
    "wife": ("wives",), "housewife": ("housewives",), "child": ("children",), "dark": ("darkened",),
    "person": ("people",), "sun": ("sunny", "sunlit"), "lie": ("lying", "lain"), "goose": ("geese",),
    "mouse": ("mice",), "foot": ("feet",), "tooth": ("teeth",), "leaf": ("leaves",), "wolf": ("wolves",),
    "far": ("farther", "farthest", "further"),
}  # fmt: skip
_BEFORE_VOWELS = ("ed", "ing", "er", "ers", "est", "y", "ish", "en", "ens", "ened", "ening")
"""Endings that take away an e ("white", "whiter") and double a consonant ("red", "redder")."""
_FIXED = frozenset(["he", "him", "his", "himself", "she", "her", "hers", "herself", "mr", "mrs", "ms", "sir", "madam"])
_OTHER_WORDS = frozenset(
    ["many", "manner", "manners", "maned", "sony", "ladder", "ladders", "lady", "mister", "teeny", "finish"]
)
"""What the endings would make of man, son, lad, mist, teen and fine."""
_NOT_INFLECTED = frozenset({
    "evening", "herring", "news", "party", "army", "county", "story", "factory", "early", "holy", "every", "fairy",
    "bunny", "penny", "body", "baby", "city", "wicked", "rugged", "chicken", "kitten", "kitchen", "garden", "series",
})  # fmt: skip
"""Words that end like an inflection of another word, which they do not name: "party" is not "part"."""
_SHORT = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")
_EMPTY = words.PREPOSITIONS | {"a", "an", "the", "of", "with", "very", "quite", "rather"}
"""Words of a value's name that name nothing by themselves: "at night" is night, "very large" is large."""


def words_of(text: str) -> list[str]:
    """Returns the words of a text in order, in lower case, without their possessive ending.

    Accents are removed, and look-alike spellings (full width, invisible signs between letters) become plain ones.
    """
    return [re.sub(r"['’]s?$", "", word) for word in _WORD.findall(_plain(text))]


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text)
    kept = (letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cf"))
    return "".join(kept).casefold()


def inflections(word: str) -> frozenset[str]:
    """Returns the word with the English endings of nouns, verbs and adjectives, whether or not it takes them; without
    other words that only look so ("many" is no form of "man"). Pronouns and titles have no forms."""
    if word in _FIXED:
        return frozenset({word})
    forms = {word + ending for ending in ("", "s", "es", *_BEFORE_VOWELS, "ly", "ness")}
    if word.endswith("e"):
        forms |= {word + ending for ending in ("d", "r", "rs", "st")}
        forms |= {word[:-1] + ending for ending in _BEFORE_VOWELS}
    if word.endswith("y") and len(word) > 2 and word[-2] not in _VOWELS:
        forms |= {word[:-1] + "i" + ending for ending in ("es", "er", "ers", "est", "ed", "ness", "ly")}
    if len(word) > 2 and word[-1] not in "aeiouwxy" and word[-2] in _VOWELS and word[-3] not in _VOWELS:
        forms |= {word + word[-1] + ending for ending in _BEFORE_VOWELS}
    if word.endswith("man"):
        forms.add(word[:-2] + "en")
    return frozenset({word, *(forms - _OTHER_WORDS), *_IRREGULAR.get(word, ())})


def bases(word: str) -> tuple[str, ...]:
    """Returns the words of which this one may be an inflection: "rain" of "rainy", "smile" of "smiling", "dog" of
    "dogs"; none for a word that is none, or for one too short to say."""
    if word in _FIXED | _NOT_INFLECTED:
        return ()
    found = [base for base, forms in _IRREGULAR.items() if word in forms]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        found += [word[:-1], *([word[:-2]] if word.endswith(("ses", "xes", "zes", "ches", "shes")) else [])]
    for ending in ("ing", "ed", "y", "en"):
        stem = word.removesuffix(ending)
        if stem != word and stem[-1:] not in ("", *_VOWELS):
            found += _with_ending_restored(stem)
    return tuple(
        base for base in dict.fromkeys(found) if len(base) > 2 and any(letter in base for letter in _VOWELS + "y")
    )


def _with_ending_restored(stem: str) -> list[str]:
    """Undoes what an ending that begins with a vowel does: "runn" was "run", "strip" was "stripe"."""
    if len(stem) > 2 and stem[-1] == stem[-2]:
        return [stem, stem[:-1]]
    if _SHORT.fullmatch(stem):  # else its last letter would be doubled
        return [stem + "e"]
    return [stem, stem + "e"]


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
                part = words[at : at + len(phrase)]
                if len(part) == len(phrase) and all(w in forms for w, forms in zip(part, phrase, strict=True)):
                    return " ".join(part)
        return None


def leaks_of(names: Iterable[str], synonyms: Mapping[str, Sequence[str]]) -> Leaks:
    """Returns the words that name these values: the values themselves, known synonyms, and those of the config (value →
    texts)."""
    texts = []
    for name in names:
        plain = words_of(name.replace("_", " "))
        core = " ".join(word for word in plain if word not in _EMPTY) or " ".join(plain)
        stems = bases(core) if " " not in core else ()
        known = [word for one in (core, *stems) for word in SYNONYMS.get(_ALIASES.get(one, one), "").split()]
        texts += [core, *stems, *known, *synonyms.get(name, ())]
    phrases = dict.fromkeys(tuple(words_of(text.replace("_", " "))) for text in texts)
    phrases |= {("".join(phrase),): None for phrase in phrases if len(phrase) > 1}  # "ice cream" and "icecream"
    return Leaks(tuple(tuple(inflections(word) for word in phrase) for phrase in phrases if phrase))
