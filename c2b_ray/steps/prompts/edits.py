"""Minimal edits of prompts: the position of a word, the prompt without it, the prompt with another word instead.

It knows the English that captions are made of: articles, prepositions, "that is". It knows no model.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.names import a_or_an
from c2b_ray.steps import words

ARTICLES = frozenset({"a", "an", "the", "one", "some"})
JOINTS = words.PREPOSITIONS | frozenset(
    {"of", "and", "or", "that", "which", "who", "is", "are", "was", "were", "looks", "seems", "to", "as", "while"}
    | {"before", "after", "beyond", "his", "her", "its", "their", "this", "there", "we", "see", "it", "for", "very"}
)
LEADS = frozenset(
    {"photo", "picture", "image", "snapshot", "photograph", "drawing", "view", "scene", "painting", "portrait", "shot"}
)
_FUNCTION = ARTICLES | JOINTS
_TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")

Slot = tuple[str, str]
"""What stands before a word, function words alone, and what kind of word comes after it: words of one slot are of one
form, and each can replace the other."""


@dataclass(frozen=True)
class Occurrence:
    """A content word in a prompt: the prompt as tokens, and the position of the word."""

    tokens: tuple[str, ...]
    at: int

    @property
    def word(self) -> str:
        return self.tokens[self.at].lower()

    @property
    def slot(self) -> Slot:
        before: list[str] = []
        for token in reversed(self.tokens[: self.at]):
            if token.lower() not in _FUNCTION or len(before) == 3:
                break
            before.append("a" if token.lower() in ARTICLES else token.lower())
        after = self.tokens[self.at + 1].lower() if self.at + 1 < len(self.tokens) else ""
        begins = not before and self.at == 0
        first = "^" if begins else " ".join(reversed(before)) or "~"
        return first, "word" if after and after not in _FUNCTION and after[0].isalnum() else "end"

    def with_word(self, word: str) -> str:
        """Returns the prompt with another word instead of this one, with a matching article."""
        return text_of([*self.tokens[: self.at], word, *self.tokens[self.at + 1 :]])

    def without(self) -> str:
        """Returns the prompt without the word and without what only leads up to it: its article, its preposition, its
        comma."""
        return text_of([*self.tokens[: self._from], *self.tokens[self.at + 1 :]])

    @property
    def part(self) -> str:
        """The part that `without` lacks."""
        return text_of(self.tokens[self._from : self.at + 1])

    @property
    def _from(self) -> int:
        """The first token that only leads up to the word."""
        at = self.at
        while (
            self.slot[1] == "end"
            and at
            and (self.tokens[at - 1].lower() in _FUNCTION or not _is_word(self.tokens[at - 1]))
        ):
            at -= 1
        return at


def _is_word(token: str) -> bool:
    return token[0].isalnum()


def occurrences(prompt: str) -> list[Occurrence]:
    """Returns every content word of the prompt."""
    tokens = tuple(_TOKEN.findall(prompt))
    return [
        Occurrence(tokens, at)
        for at, token in enumerate(tokens)
        if token[0].isalpha() and len(token) > 1 and token.lower() not in _FUNCTION | LEADS
    ]


def text_of(tokens: Sequence[str]) -> str:
    """Returns the tokens as text, with `a` or `an` by the sound that follows."""
    fixed = list(tokens)
    for at, token in enumerate(fixed[:-1]):
        if token.lower() in ("a", "an") and fixed[at + 1][0].isalpha():
            right = a_or_an(fixed[at + 1])
            fixed[at] = right.capitalize() if token[0].isupper() else right
    text = re.sub(r"\s+([,.;:!?])", r"\1", " ".join(fixed))
    return re.sub(r"^[\s,;:]+|[\s,;:]+$", "", text)


def parts(prompt: str) -> list[tuple[str, str]]:
    """Returns (part, prompt without it) for each adjective and each phrase that can be left out; the head noun
    is kept."""
    result: dict[str, str] = {}
    for occurrence in occurrences(prompt):
        without = occurrence.without()
        if not without or (occurrence.slot[0] in ("^", "a", "~", "of a") and occurrence.slot[1] == "end"):
            continue  # the noun that the prompt is about
        result.setdefault(occurrence.part, without)
    return list(result.items())


def by_slot(prompts: Iterable[str]) -> dict[Slot, dict[str, list[Occurrence]]]:
    """Returns every slot with its words, each with its occurrences, in the order of the prompts."""
    result: dict[Slot, dict[str, list[Occurrence]]] = defaultdict(lambda: defaultdict(list))
    for prompt in prompts:
        for occurrence in occurrences(prompt):
            result[occurrence.slot][occurrence.word].append(occurrence)
    return result


def frequent_words(prompts: Iterable[str], excluded: Collection[str]) -> list[str]:
    """Returns content words by the number of prompts that hold them, most first, without the excluded ones."""
    counts = Counter(
        word for prompt in prompts for word in dict.fromkeys(occurrence.word for occurrence in occurrences(prompt))
    )
    return [word for word, _ in counts.most_common() if word not in excluded]


def distinctive(wordings: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Returns value → the content words of its wordings that no other value's have: they name it or describe it."""
    words_by_value = {
        value: list(dict.fromkeys(occurrence.word for text in texts for occurrence in occurrences(text)))
        for value, texts in wordings.items()
    }
    counts = Counter(word for listed in words_by_value.values() for word in listed)
    return {value: [word for word in listed if counts[word] == 1] for value, listed in words_by_value.items()}
