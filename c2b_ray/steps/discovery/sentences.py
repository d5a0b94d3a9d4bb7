"""Captions as a baseline prompt and sentences behind it: "a realistic photograph of a fly (insect). it is on a flower."

A caption is split into its sentences, which are recombined (Wiles et al. 2022, section 3). `clauses` turns a
captioner's free text into such sentences. It knows texts, not images or models.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from string import Formatter

from c2b_ray.errors import ConfigError
from c2b_ray.names import mention, mentions, normalise
from c2b_ray.steps import words

MOST_WORDS = 25
"""The most words of a sentence: a longer one describes one image rather than a kind of images (footnote 4)."""

_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")
_ABBREVIATED = re.compile(r"(?:^|[\s(])(?:[A-Za-z]|e\.g|i\.e|mr|mrs|dr|st|no|vs|approx|etc)\.$", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+", re.MULTILINE)
_LITTLE = frozenset(re.findall(r"\w+", "a an the it its is are was were be been there this that these those"))
_SAYS_NOTHING = _LITTLE | frozenset(
    re.findall(r"\w+", "of in on at by with and or to for as one has have seen shown image photo photograph picture")
)


@dataclass(frozen=True)
class Dropped:
    """`reason`: names_label, names_class, repeated, too_long, says_nothing."""

    sentence: str
    reason: str


def noun(label: str) -> str:
    """Returns a label's name in a text: "tench" for "tench, Tinca tinca", "traffic light" for "traffic_light"."""
    return " ".join(label.partition(",")[0].replace("_", " ").split())


def name_pattern(label: str) -> re.Pattern[str]:
    """Returns a pattern that finds the label's name in a text."""
    return mention(noun(label))


def check_prompt(template: str) -> None:
    """Raises ConfigError for the field `prompt` where it has no {label}, or a placeholder that is neither {label} nor
    {parent}."""
    try:
        placeholders = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError("prompt", f"{template!r} is no template: {error}") from error
    if "label" not in placeholders or not set(placeholders) <= {"label", "parent"}:
        raise ConfigError(
            "prompt", f"{template!r} must hold {{label}}, and may hold {{parent}}; nothing else in braces"
        )


def baseline(template: str, label: str, parent: str | None) -> str:
    """Returns the prompt of a label. "a" and "an" fit the word behind them; without a parent " ({parent})" is
    removed."""
    check_prompt(template)
    text = template.replace("{parent}", parent) if parent else re.sub(r"\s*\(\{parent\}\)|\{parent\}", "", template)
    name = noun(label)

    def filled(match: re.Match[str]) -> str:
        article = match.group(1)
        new_article = words.article(name) if article else ""
        return f"{new_article.capitalize() if article and article[0] == 'A' else new_article}{name}"

    return finished(" ".join(re.sub(r"(\b[Aa]n?\s+)?\{label\}", filled, text).split()))


def caption(prompt: str, sentences: Iterable[str]) -> str:
    """Returns the prompt with the sentences behind it, each with its full stop."""
    return " ".join([finished(prompt), *map(finished, sentences)])


def finished(sentence: str) -> str:
    text = " ".join(sentence.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def split(text: str) -> list[str]:
    """Returns the sentences of a text, without full stops. "e.g." and initials end no sentence; bullets are removed."""
    parts: list[str] = []
    for part in (" ".join(piece.split()) for piece in _END.split(_BULLET.sub("", text)) if piece.strip()):
        if parts and _ABBREVIATED.search(parts[-1]):
            parts[-1] = f"{parts[-1]} {part}"
        else:
            parts.append(part)
    return [bare for part in parts if (bare := part.strip(" \"'“”.!?;,"))]


def behind(text: str, label: str) -> tuple[str, list[str]]:
    """Returns the prompt that a caption begins with and the sentences behind it. The prompt ends with the sentence that
    names the label."""
    parts = split(text)
    at = next((i for i, part in enumerate(parts) if mentions(part, label)), 0)
    return finished(". ".join(parts[: at + 1])), parts[at + 1 :]


def usable(
    sentences: Iterable[str], label: str, others: Collection[str] = (), most_words: int = MOST_WORDS
) -> tuple[list[str], list[Dropped]]:
    """Returns the sentences that may stand behind a prompt, and why each other one may not.

    `others`: classes that none may name, such as the one that the images were taken for: "a fly that looks like a bee"
    would ask the generator for a bee. A sentence whose subject is the label is rewritten with "it".
    """
    kept: list[str] = []
    dropped: list[Dropped] = []
    for sentence in sentences:
        said = _about_it(sentence, label)
        if reason := _refused(said, label, others, most_words):
            dropped.append(Dropped(sentence, reason))
        else:
            kept.append(said)
    once = without_repeats(kept)
    repeated = [Dropped(sentence, "repeated") for sentence in kept]
    for sentence in once:
        repeated.remove(Dropped(sentence, "repeated"))
    return once, dropped + repeated


def without_repeats(sentences: Sequence[str]) -> list[str]:
    """Removes sentences that say nothing beyond the others: "it is on a flower" beside "it is on a yellow flower"."""
    result: list[str] = []
    for sentence in sentences:
        if not contained(sentence, result):
            result = [other for other in result if not contained(other, [sentence])]
            result.append(sentence)
    return result


def contained(sentence: str, others: Iterable[str]) -> bool:
    """Returns whether one of the others says everything that the sentence says."""
    said = _words(sentence) - _LITTLE  # prepositions count: "by day" is not in "on a rainy day"
    return any(said <= _words(other) for other in others)


def _words(sentence: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w'-]+", sentence.casefold()))


def _about_it(sentence: str, label: str) -> str:
    """ "the fly is in focus" → "it is in focus". The first letter becomes small, so that equal sentences have equal
    spelling."""
    text = " ".join(sentence.split()).strip(" .")
    subject = re.compile(
        rf"^(?:the|this|that|an?) {name_pattern(label).pattern}(?=\s+(?:is|has|was|looks|stands|sits)\b)"
    )
    text = re.compile(subject.pattern, re.IGNORECASE).sub("it", text)
    return uncapitalised(text)


def uncapitalised(text: str) -> str:
    """Returns the text with a small first letter, unless its first word is "I" or all in capitals."""
    first = text.partition(" ")[0]
    return text if first != first.capitalize() or first == "I" else f"{text[:1].lower()}{text[1:]}"


def _refused(sentence: str, label: str, others: Collection[str], most_words: int) -> str | None:
    if any(mentions(sentence, other) for other in others if normalise(other) != normalise(label)):
        return "names_class"
    if mentions(sentence, label):
        return "names_label"
    if _words(sentence) <= _SAYS_NOTHING:
        return "says_nothing"
    return "too_long" if len(sentence.split()) > most_words else None
