"""Captions that are tried, each with its text, its sentences and its origin: rows of `tables.CANDIDATES`.

It checks captions that a person or a file provides; `refinement` and `clusters` make others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import prompts
from c2b_ray.audits.failures.discovery.sentences import DroppedSentence, behind, caption, finished, noun, split, usable
from c2b_ray.config.classifiers import Ancestry, Entry
from c2b_ray.errors import Argument, ConfigError, ReplyError, nearest
from c2b_ray.names import mentions, normalise
from c2b_ray.roles import ChatReply, ChatRequest
from c2b_ray.steps import synonyms
from c2b_ray.steps.classify import NAME_LABELS, is_unnamed
from c2b_ray.steps.replies import parse_reply
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.failures import CANDIDATES

Origin = Literal[
    "baseline", "cluster", "sentence", "pair", "triple", "shorter", "adjective", "language_model", "person", "file"
]


@dataclass(frozen=True)
class Candidate:
    """A caption of one label: a baseline prompt and the sentences behind it.

    `parent`: the id of the caption that it is made from. `verbatim`: the text where it was written as a whole.
    """

    label: str
    prompt: str
    sentences: tuple[str, ...]
    origin: Origin
    parent: str | None = None
    verbatim: str | None = None

    @property
    def text(self) -> str:
        """The text that the generator gets."""
        return caption(self.prompt, self.sentences) if self.verbatim is None else self.verbatim

    @property
    def caption_id(self) -> str:
        return content_id("caption", self.label, self.text)


def table(candidates: Iterable[Candidate]) -> pa.Table:
    """Returns rows of `tables.CANDIDATES`, each caption once: the first with its text."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.caption_id, candidate)
    rows = [
        {
            "caption_id": caption_id,
            "label": candidate.label,
            "text": candidate.text,
            "sentences": list(candidate.sentences),
            "parent_caption": candidate.parent,
            "origin": candidate.origin,
        }
        for caption_id, candidate in first.items()
    ]
    return pa.Table.from_pylist(rows, CANDIDATES)


def written(text: str, labels: Sequence[str], origin: Origin, field: str | Argument = "caption") -> Candidate:
    """Returns a caption as a person or a file wrote it, word for word, for the one label that it contains.

    Raises ConfigError for `field` where it contains none of the labels, or several, which is ambiguous. Where one label
    is part of another, as "lion" of "sea lion", the longer one counts.
    """
    line = " ".join(text.split())
    labels_mentioned = [label for label in labels if mentions(line, label)]
    within = [
        label
        for label in labels_mentioned
        if any(label != other and mentions(noun(other), label) for other in labels_mentioned)
    ]
    labels_meant = [label for label in labels_mentioned if label not in within]
    if len({normalise(label) for label in labels_meant}) != 1:
        labels_listed = ", ".join(map(repr, labels[:10])) + (" …" if len(labels) > 10 else "")
        why = (
            f"names several labels, {', '.join(map(repr, labels_meant))}; write one"
            if labels_meant
            else f"names none of the labels {labels_listed}"
        )
        raise ConfigError(field, f"the caption {line[:200]!r} {why}")
    prompt, sentences = behind(finished(line), labels_meant[0])
    return Candidate(labels_meant[0], prompt, tuple(sentences), origin, verbatim=line)


# Derives from a caption that fails often shorter ones that may fail as often (Wiles et al. 2022, "Caption
# refinement").


MOST_REWRITES = 3
SHORTEN_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "captions": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_REWRITES,
            "items": {"type": "string", "minLength": 1, "maxLength": 400},
        }
    },
    "required": ["captions"],
    "additionalProperties": False,
}

_BEFORE_ADJECTIVES = frozenset(
    re.findall(r"\w+", "a an the its one some two three many several in on with of at by under")
)
_NO_NOUNS = _BEFORE_ADJECTIVES | synonyms.PREPOSITIONS | {"and", "or", "but", "that", "which", "is", "are"}
_ARTICLE = re.compile(r"\b(an?)\s+([\w'-]+)", re.IGNORECASE)


def without_adjectives(candidate: Candidate) -> list[Candidate]:
    """Returns captions with one adjective dropped, for each that stands before a noun, and with all of them dropped."""
    sentences = candidate.sentences
    variants = [
        (*sentences[:i], _without(sentence, [adjective]), *sentences[i + 1 :])
        for i, sentence in enumerate(sentences)
        for adjective in _adjectives(sentence)
    ]
    bare = tuple(_without(sentence, _adjectives(sentence)) for sentence in sentences)
    return _each_once(candidate, (("adjective", variant) for variant in [*variants, bare]))


def rewrite_request(candidate: Candidate, seed: int) -> ChatRequest:
    """Returns the request to a language model for shorter captions of the same label; greedy decoding."""
    values = {"label": noun(candidate.label), "caption": candidate.text, "prompt": finished(candidate.prompt)}
    messages = prompts.messages("shorten", most=str(MOST_REWRITES), **values)
    return ChatRequest(messages, SHORTEN_SCHEMA, max_tokens=256, seed=seed_of("shorten", seed, candidate.caption_id))


def rewrites(
    candidate: Candidate, reply: ChatReply, others: Collection[str] = ()
) -> tuple[list[Candidate], list[DroppedSentence]]:
    """Returns the captions of a reply that say less than the caption and nothing more, and why each other one is
    refused.

    The reasons are those of `sentences.usable`, and: no_reply, says_more.
    """
    try:
        texts = parse_reply(reply, SHORTEN_SCHEMA)["captions"]
    except ReplyError as error:
        return [], [DroppedSentence(f"{error}: {error.reply[:200]}", "no_reply")]
    accepted: list[tuple[Origin, tuple[str, ...]]] = []
    dropped: list[DroppedSentence] = []
    for text in texts:
        sentences, rejected = _sentences(candidate, text, others)
        dropped += rejected
        if not rejected:
            accepted.append(("language_model", tuple(sentences)))
    return _each_once(candidate, iter(accepted)), dropped


def _sentences(candidate: Candidate, text: str, others: Collection[str]) -> tuple[list[str], list[DroppedSentence]]:
    if text.startswith(finished(candidate.prompt)):
        addition = split(text.removeprefix(finished(candidate.prompt)))
    else:
        prompt, addition = behind(text, candidate.label)
        if not _said(prompt) <= _said(candidate.text):
            return [], [DroppedSentence(text, "says_more")]
        if not addition:
            return [], [DroppedSentence(text, "says_nothing")]
    sentences, dropped = usable(addition, candidate.label, others)
    if not _said(" ".join(sentences)) <= _said(candidate.text):
        dropped.append(DroppedSentence(text, "says_more"))
    return sentences, dropped


def _said(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w'-]+", text.casefold())) - {"a", "an", "the", "it", "is", "its", "has"}


def _each_once(candidate: Candidate, variants: Iterator[tuple[Origin, tuple[str, ...]]]) -> list[Candidate]:
    sets_seen = {candidate.sentences, ()}
    result = []
    for origin, sentences in variants:
        if sentences not in sets_seen:
            sets_seen.add(sentences)
            result.append(Candidate(candidate.label, candidate.prompt, sentences, origin, candidate.caption_id))
    return result


def _adjectives(sentence: str) -> list[str]:
    """Returns adjectives before a noun: "yellow" of "it is on a yellow flower", nothing of "it is yellow"."""
    parts = sentence.split()
    result = []
    for previous_word, part, next_word in zip(parts, parts[1:], parts[2:], strict=False):
        is_led = previous_word.lower() in _BEFORE_ADJECTIVES or previous_word in result
        if is_led and synonyms.is_adjective(part.lower()) and next_word.lower().strip(",.") not in _NO_NOUNS:
            result.append(part)
    return result


def _without(sentence: str, adjectives: Sequence[str]) -> str:
    shortened = " ".join(part for part in sentence.split() if part not in adjectives)

    def article(match: re.Match[str]) -> str:
        return f"{synonyms.article(match[2]) or f'{match[1]} '}{match[2]}"

    return _ARTICLE.sub(article, shortened) if adjectives else shortened


# A hierarchy applied to a classifier's labels: which labels share a parent, and what a prompt calls a label's kind.


MOST_MISSING = 6
_IN_ORDER = 0.5
"""A label space is the hierarchy's own if it has as many labels, and more than this share of them match by position."""


class Hierarchy:
    """Labels are compared as names are everywhere. "tench, Tinca tinca" is the entry that has both names, else the one
    with the first.

    `label_space`: the labels of a classifier in their order. Where it is the hierarchy's own label space (ImageNet-1k),
    each label is identified by its position, so that its two cranes are distinguished.
    """

    def __init__(self, ancestry: Ancestry, label_space: Sequence[str] = ()) -> None:
        self._ancestry, self._labels = ancestry, tuple(label_space)

    @staticmethod
    def of(parents: Mapping[str, Sequence[str]]) -> Hierarchy:
        """Returns a hierarchy from label → its parents."""
        entries = (
            Entry((name,), tuple(map(normalise, above)), above[0] if above else None) for name, above in parents.items()
        )
        return Hierarchy(Ancestry("the hierarchy", tuple(entries)))

    def __contains__(self, label: str) -> bool:
        return bool(self._entries(label))

    def check(self, labels: Iterable[str]) -> None:
        """Raises ConfigError for the field `hierarchy` where it lacks a label."""
        missing = [label for label in labels if label not in self]
        if missing:
            remainder = f", nor {len(missing) - MOST_MISSING} more" if len(missing) > MOST_MISSING else ""
            known_names = [name for entry in self._ancestry.entries for name in entry.names[:1]]
            problem = f"{self._ancestry.source} has no label {', '.join(map(repr, missing[:MOST_MISSING]))}{remainder}"
            similar = (
                f"{nearest(normalise(missing[0]), known_names)} or write a YAML file of label: parent for all labels"
            )
            hint = NAME_LABELS if is_unnamed(missing[:1]) else similar
            raise ConfigError("hierarchy", f"{problem}; {hint}")

    def parents(self, label: str) -> frozenset[str]:
        """Returns the names of a label's parents; empty for a label without one. Raises ConfigError for an unknown
        label."""
        self.check([label])
        return frozenset(parent for entry in self._entries(label) for parent in entry.parents)

    def shares_parent(self, a: str, b: str) -> bool:
        """Returns whether two labels have a parent in common. A label without a parent shares none, even with
        itself."""
        return not self.parents(a).isdisjoint(self.parents(b))

    def parent_name(self, label: str) -> str | None:
        """Returns the text behind the label in a prompt, "insect" in "fly (insect)"; None for a label without a parent.

        For a name of several things, it is that of the most common meaning. Raises ConfigError for an unknown label.
        """
        self.check([label])
        return next((entry.shown for entry in self._entries(label) if entry.shown), None)

    def by_rarer_meanings(self, positions: Collection[int]) -> list[tuple[str, str, str]]:
        """Returns the pairs of labels of the label space, one of them at `positions`, that share a parent only where a
        name does not have its most common meaning, each with such a parent: in WordNet a lion and a baby are persons.
        """
        space = range(len(self._labels))
        usual = [{parent for entry in self._entries_at(position)[:1] for parent in entry.parents} for position in space]
        below: dict[str, list[int]] = {}
        for position in space:
            for parent in sorted(self._parents_of_space[position]):
                below.setdefault(parent, []).append(position)
        pairs: dict[tuple[int, int], str] = {}
        for parent, members in below.items():
            for first, second in combinations(members, 2):
                is_asked = first in positions or second in positions
                if is_asked and usual[first].isdisjoint(usual[second]):
                    pairs.setdefault((first, second), parent)
        shown = {entry.names[-1]: entry.names[0] for entry in self._ancestry.entries if entry.names[-1] in below}
        return [
            (self._labels[first], self._labels[second], shown.get(parent, parent))
            for (first, second), parent in sorted(pairs.items())
        ]

    def kin(self, positions: Sequence[int]) -> NDArray[np.bool_]:
        """Returns bool (labels of the label space,): which share a parent with one of the labels at `positions`.

        Raises ConfigError where the hierarchy lacks any label of the space: an image taken for it would count as a
        failure.
        """
        above = frozenset().union(*(self._parents_of_space[position] for position in positions))
        return np.array([not above.isdisjoint(parents) for parents in self._parents_of_space], bool)

    @cached_property
    def _parents_of_space(self) -> list[frozenset[str]]:
        self.check(self._labels)
        return [
            frozenset(parent for entry in self._entries_at(position) for parent in entry.parents)
            for position in range(len(self._labels))
        ]

    def _entries_at(self, position: int) -> list[Entry]:
        return [self._ancestry.entries[position]] if self._in_order else self._entries(self._labels[position])

    @cached_property
    def _in_order(self) -> bool:
        entries = self._ancestry.entries
        if not self._ancestry.ordered or len(entries) != len(self._labels):
            return False
        pairs = zip(self._labels, entries, strict=True)
        equal_names = sum(not _names(label).isdisjoint(map(normalise, entry.names)) for label, entry in pairs)
        return equal_names > _IN_ORDER * len(entries)

    def _entries(self, label: str) -> list[Entry]:
        """Returns the possible meanings of the label, the most common one first; [] where nothing has its name."""
        numbers = self._numbers(label)
        if not numbers and "," in label:
            parts = [set(self._numbers(part)) for part in label.split(",")]
            numbers = sorted(set.intersection(*parts)) or self._numbers(label.partition(",")[0])
        if not numbers and self._in_order:
            numbers = [position for position, name in enumerate(self._labels) if normalise(name) == normalise(label)]
        return [self._ancestry.entries[number] for number in numbers]

    def _numbers(self, name: str) -> list[int]:
        numbers = self._by_name.get(normalise(name), [])
        first = self._ancestry.commonest.get(normalise(name))
        entries = self._ancestry.entries
        return sorted(numbers, key=lambda n: (n != first, normalise(entries[n].names[0]) != normalise(name)))

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        result: dict[str, list[int]] = {}
        for number, entry in enumerate(self._ancestry.entries):
            for name in dict.fromkeys(map(normalise, entry.names)):
                result.setdefault(name, []).append(number)
        return result


def _names(label: str) -> set[str]:
    return {normalise(label), *map(normalise, label.split(","))}
