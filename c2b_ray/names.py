"""Tells when two names of classes, attributes or values are the same, and whether a text mentions one. It knows
characters and English endings, not what the names mean."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
"""Characters without a width: spaces and joiners of no width, soft hyphens, marks of direction and of byte order,
variants of a sign. They come with copied text, and nobody sees them."""


def without_invisible(name: str) -> str:
    return _INVISIBLE.sub("", name)


def folded(name: str) -> str:
    """Returns the name in lower case with single spaces; names that differ only in these are spelled alike.

    A letter with its accent is one character or two (Unicode's NFC and NFD), which look the same and are: here one.
    Characters that nobody sees are left out, and a space that does not break is a space.
    """
    return seen(name).lower()


def normalise(name: str) -> str:
    """Returns `folded` without underscores, quotes and closing punctuation: the form in which names are compared."""
    return folded(without_invisible(name).replace("_", " ").strip(" .,;:'\""))


def seen(name: str) -> str:
    """Returns the name as a reader sees it: names that differ in what is seen, as in case, stay apart."""
    return " ".join(unicodedata.normalize("NFC", without_invisible(name)).split())


def repeated_names(names: Iterable[str], form: Callable[[str], str] = folded) -> list[list[int]]:
    """Returns the positions of each name that comes more than once in this form."""
    positions: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        positions.setdefault(form(name), []).append(number)
    return [numbers for numbers in positions.values() if len(numbers) > 1]


_VOWEL_SOUNDS = ("hour", "honest", "honour", "honor", "heir", "unid", "unim", "unin")
_CONSONANT_SOUNDS = ("uni", "eu", "ewe", "use", "usa", "usu", "uti", "uten", "one", "once", "ukulele")


def a_or_an(word: str) -> str:
    """Returns the indefinite article before a word, by its sound."""
    start = word.lower()
    vowel = start.startswith(_VOWEL_SOUNDS) or (start[:1] in tuple("aeiou") and not start.startswith(_CONSONANT_SOUNDS))
    return "an" if vowel else "a"


SINGULAR_ENDINGS = ("ss", "us", "is", "ns")
_PLURALS: dict[str, str] = dict(
    re.findall(
        r"(\w+) (\w+)",
        "calf calves, child children, die dice, elf elves, foot feet, goose geese, half halves, knife knives, "
        "leaf leaves, loaf loaves, louse lice, man men, mouse mice, ox oxen, person people, scarf scarves, "
        "shelf shelves, thief thieves, tooth teeth, wife wives, wolf wolves, woman women",
    )
)


def plural(name: str) -> str:
    """Returns the plural of an English noun; unchanged where it is one."""
    *first_words, last = name.split(" ")
    if last in _PLURALS:
        return " ".join([*first_words, _PLURALS[last]])
    if (name.endswith("s") and not name.endswith(SINGULAR_ENDINGS)) or name.split()[-1:] in (
        ["fish"],
        ["goldfish"],
        ["sheep"],
    ):
        return name
    if re.search(r"(?:s|x|z|ch|sh)$", name):
        return f"{name}es"
    if re.search(r"[^aeiou]y$", name):
        return f"{name[:-1]}ies"
    return f"{name}s"


_ACCENTS = "\u0300-\u036f"  # that are characters of their own, behind their letter: "cafe" is not in "café"
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]"
)
"""Letters of scripts that put no space between words, such as Thai, Khmer, Chinese and Japanese, or none between a noun
and its particle, as Korean."""


def mentions(text: str, label: str) -> bool:
    """Returns whether the text holds one of the label's names, which commas separate: "tench, Tinca tinca" has two."""
    parts = (" ".join(name.replace("_", " ").split()).casefold() for name in label.split(","))
    return any(mention(name).search(text.casefold()) for name in parts if name)


@lru_cache(maxsize=8192)
def mention(name: str) -> re.Pattern[str]:
    """Returns a pattern that finds a name in a text: whole words in any case, in singular or plural, joined by spaces,
    hyphens or underscores, with accents in either of Unicode's forms. `name` holds a word."""
    name = unicodedata.normalize("NFC", name)
    spellings = dict.fromkeys(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    start = "" if _UNSPACED.match(name[0]) else r"(?<![\w-])"
    end = "" if _UNSPACED.match(name[-1]) else rf"(?![\w{_ACCENTS}-])"
    return re.compile(rf"{start}(?:{'|'.join(map(_forms, spellings))}){end}", re.IGNORECASE)


def _forms(name: str) -> str:
    *first, last = name.split()
    forms = sorted({last, plural(last.lower()), f"{last}s", f"{last}es"}, key=len, reverse=True)
    return r"[\s_-]+".join([*map(re.escape, first), f"(?:{'|'.join(map(re.escape, forms))})"])
