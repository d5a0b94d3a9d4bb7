"""Tells when two names of classes, attributes or values are the same. It knows characters, not what the names mean."""

from __future__ import annotations

import unicodedata


def folded(name: str) -> str:
    """Returns the name in lower case with single spaces; names that differ only in these are spelled alike.

    A letter with its accent is one character or two (Unicode's NFC and NFD), which look the same and are: here one.
    """
    return " ".join(unicodedata.normalize("NFC", name).lower().split())


def normalise(name: str) -> str:
    """Returns `folded` without underscores, quotes and closing punctuation: the form in which names are compared."""
    return folded(name.replace("_", " ").strip(" .,;:'\""))


_VOWEL_SOUNDS = ("hour", "honest", "honour", "honor", "heir", "unid", "unim", "unin")
_CONSONANT_SOUNDS = ("uni", "eu", "ewe", "use", "usa", "usu", "uti", "uten", "one", "once", "ukulele")


def a_or_an(word: str) -> str:
    """Returns the indefinite article before a word, by its sound."""
    start = word.lower()
    vowel = start.startswith(_VOWEL_SOUNDS) or (start[:1] in tuple("aeiou") and not start.startswith(_CONSONANT_SOUNDS))
    return "an" if vowel else "a"
