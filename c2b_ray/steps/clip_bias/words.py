"""Splits captions into words, and masks words that reveal an attribute."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from c2b_ray.steps.prompts.english import inflections

MASK, UNKNOWN = "[MASK]", "[UNK]"
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Returns lower-case words without punctuation, as the Penn Treebank tokenizer of the COCO evaluation leaves plain
    captions, without its Java. "dog's" is one word here and two there."""
    return [match[0].replace("’", "'") for match in _WORD.finditer(text.lower())]


def mask_of(values: Iterable[str], extra: Iterable[str]) -> frozenset[str]:
    """Returns the words that reveal an attribute: those of its values and the extra ones, with their inflections, such
    as men of man."""
    single = {_without_s(word) for text in (*values, *extra) for word in words_of(text.replace("_", " "))}
    return frozenset(form for word in single for form in inflections(word))


def masked(text: str, mask: Collection[str], known: Collection[str] | None = None) -> str:
    """Returns the caption with each word of the mask, and each word that is not `known`, replaced by a sign.

    Hirota et al. 2022, section 4.1: words that the captioner never uses are masked in human captions; otherwise its
    small vocabulary alone would make it look fair. A possessive reveals as much as its word: "woman's" is masked too.
    """
    signs = [
        MASK if _without_s(word) in mask else word if known is None or word in known else UNKNOWN
        for word in words_of(text)
    ]
    return " ".join(signs)


def _without_s(word: str) -> str:
    return word.removesuffix("'s")


def says_nothing(text: str) -> bool:
    """Returns whether no word is left after masking."""
    return all(word in (MASK, UNKNOWN) for word in text.split())


def vocabulary_of(texts: Sequence[str]) -> frozenset[str]:
    return frozenset(word for text in texts for word in words_of(text))
