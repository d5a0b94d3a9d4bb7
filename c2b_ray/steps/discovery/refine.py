"""Derives from a caption that fails often shorter ones that may fail as often (Wiles et al. 2022, "Caption
refinement").

By rule: each sentence alone, each left out, pairs, adjectives dropped. By a language model, as the paper proposes: it
writes shorter captions, and one with a word that the caption lacks is refused. Which of them are as good as the caption
is measured elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.roles import ChatReply, ChatRequest
from c2b_ray.schemas import seed_of
from c2b_ray.steps import words
from c2b_ray.steps.discovery.candidates import Candidate, Origin
from c2b_ray.steps.discovery.sentences import Dropped, behind, finished, noun, split, usable
from c2b_ray.steps.replies import parse_reply

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
_NO_NOUNS = _BEFORE_ADJECTIVES | words.PREPOSITIONS | {"and", "or", "but", "that", "which", "is", "are"}
_ARTICLE = re.compile(r"\b(an?)\s+([\w'-]+)", re.IGNORECASE)


def without_adjectives(candidate: Candidate) -> list[Candidate]:
    """Returns captions with one adjective dropped, for each that stands before a noun, and with all of them dropped."""
    said = candidate.sentences
    variants = [
        (*said[:i], _without(sentence, [adjective]), *said[i + 1 :])
        for i, sentence in enumerate(said)
        for adjective in _adjectives(sentence)
    ]
    bare = tuple(_without(sentence, _adjectives(sentence)) for sentence in said)
    return _each_once(candidate, (("adjective", variant) for variant in [*variants, bare]))


def rewrite_request(candidate: Candidate, seed: int) -> ChatRequest:
    """Returns the request to a language model for shorter captions of the same label; greedy decoding."""
    values = {"label": noun(candidate.label), "caption": candidate.text, "prompt": finished(candidate.prompt)}
    messages = prompts.messages("shorten", most=str(MOST_REWRITES), **values)
    return ChatRequest(messages, SHORTEN_SCHEMA, max_tokens=256, seed=seed_of("shorten", seed, candidate.caption_id))


def rewrites(
    candidate: Candidate, reply: ChatReply, others: Collection[str] = ()
) -> tuple[list[Candidate], list[Dropped]]:
    """Returns the captions of a reply that say less than the caption and nothing more, and why each other one is
    refused.

    The reasons are those of `sentences.usable`, and: no_reply, says_more.
    """
    try:
        texts = parse_reply(reply, SHORTEN_SCHEMA)["captions"]
    except ReplyError as error:
        return [], [Dropped(f"{error}: {error.reply[:200]}", "no_reply")]
    kept: list[tuple[Origin, tuple[str, ...]]] = []
    dropped: list[Dropped] = []
    for text in texts:
        sentences, refused = _sentences(candidate, text, others)
        dropped += refused
        if not refused:
            kept.append(("language_model", tuple(sentences)))
    return _each_once(candidate, iter(kept)), dropped


def _sentences(candidate: Candidate, text: str, others: Collection[str]) -> tuple[list[str], list[Dropped]]:
    if text.startswith(finished(candidate.prompt)):
        rest = split(text.removeprefix(finished(candidate.prompt)))
    else:
        prompt, rest = behind(text, candidate.label)
        if not _said(prompt) <= _said(candidate.text):
            return [], [Dropped(text, "says_more")]
        if not rest:
            return [], [Dropped(text, "says_nothing")]
    sentences, dropped = usable(rest, candidate.label, others)
    if not _said(" ".join(sentences)) <= _said(candidate.text):
        dropped.append(Dropped(text, "says_more"))
    return sentences, dropped


def _said(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w'-]+", text.casefold())) - {"a", "an", "the", "it", "is", "its", "has"}


def _each_once(candidate: Candidate, variants: Iterator[tuple[Origin, tuple[str, ...]]]) -> list[Candidate]:
    seen = {candidate.sentences, ()}
    result = []
    for origin, sentences in variants:
        if sentences not in seen:
            seen.add(sentences)
            result.append(Candidate(candidate.label, candidate.prompt, sentences, origin, candidate.caption_id))
    return result


def _adjectives(sentence: str) -> list[str]:
    """Returns adjectives before a noun: "yellow" of "it is on a yellow flower", nothing of "it is yellow"."""
    parts = sentence.split()
    result = []
    for before, part, after in zip(parts, parts[1:], parts[2:], strict=False):
        led = before.lower() in _BEFORE_ADJECTIVES or before in result
        if led and words.is_adjective(part.lower()) and after.lower().strip(",.") not in _NO_NOUNS:
            result.append(part)
    return result


def _without(sentence: str, adjectives: Sequence[str]) -> str:
    rest = " ".join(part for part in sentence.split() if part not in adjectives)

    def article(match: re.Match[str]) -> str:
        return f"{words.article(match[2]) or f'{match[1]} '}{match[2]}"

    return _ARTICLE.sub(article, rest) if adjectives else rest
