"""Writes captions of two values at once, from the captions of each.

A language model writes both into one; without a model, or where its reply loses one of the two, the first caption is
continued with what the second says after the class. It does not know which model answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.names import normalise
from c2b_ray.roles import ChatRequest, LanguageModel
from c2b_ray.steps.caption import MAX_TOKENS, Cell, caption_of
from c2b_ray.steps.intersect import Pair, bias_class
from c2b_ray.steps.naming import names_class
from c2b_ray.steps.propose import TEMPERATURE, TOP_P
from c2b_ray.steps.replies import CAPTION_SCHEMA, parse_reply
from c2b_ray.tables import CAPTIONS, REJECTED, content_id, seed_of

PROMPT = "pair"
Texts = dict[tuple[str, str, int], str]
_SMALL = frozenset({"a", "an", "the", "in", "on", "at", "by", "of", "with", "is", "are", "it", "and", "to", "that"})


def caption_pairs(
    pairs: Sequence[Pair], captions: pa.Table, language_model: LanguageModel | None, seed: int
) -> tuple[pa.Table, pa.Table]:
    """Returns tables of `schemas.CAPTIONS`, a row per cell of a pair and number, and of `schemas.REJECTED`.

    `captions`: those of the single values. A cell gets as many as its first value has.
    """
    columns = ("proposal_id", "bias_class", "number", "text")
    rows_of = zip(*(captions[name].to_pylist() for name in columns), strict=True)
    texts = {(proposal, value, number): text for proposal, value, number, text in rows_of}
    numbers = sorted(set(captions["number"].to_pylist()))
    rows = [
        _row(pair, x, y, number)
        for pair in pairs
        for x, y in pair.cells()
        for number in numbers
        if (pair.a["proposal_id"], x, number) in texts
    ]
    rejected: list[dict[str, str]] = []
    replies = _ask(rows, texts, language_model, seed) if language_model and rows else [None] * len(rows)
    for row, reply in zip(rows, replies, strict=True):
        first, second = _both(row, texts)
        if isinstance(reply, ReplyError):
            about = f"{row['target_class']}/{row['attribute']}/{row['bias_class']}"
            rejected.append({"step": "caption", "about": about, "reply": reply.reply, "reason": str(reply)})
        row["text"] = reply if isinstance(reply, str) else _continued(row, first, second)
        row["caption_id"] = content_id("caption", row["proposal_id"], row["bias_class"], row["number"], row["text"])
    kept = [{name: row[name] for name in CAPTIONS.names} for row in rows]
    return pa.Table.from_pylist(kept, CAPTIONS), pa.Table.from_pylist(rejected, REJECTED)


def _row(pair: Pair, x: str, y: str, number: int) -> Cell:
    return {**pair.as_proposal(), "bias_class": bias_class(x, y), "number": number, "pair": pair, "values": (x, y)}


def _both(row: Cell, texts: Texts) -> tuple[str, str]:
    pair, (x, y) = row["pair"], row["values"]
    return tuple(  # type: ignore[return-value]
        texts.get((part["proposal_id"], value, row["number"]), texts[part["proposal_id"], value, 0])
        for part, value in ((pair.a, x), (pair.b, y))
    )


def _ask(rows: Sequence[Cell], texts: Texts, language_model: LanguageModel, seed: int) -> list[str | ReplyError]:
    requests = []
    for row in rows:
        pair, (first, second) = row["pair"], _both(row, texts)
        fields = {"target_class": row["target_class"], "first": first, "second": second}
        fields |= {"attribute_a": pair.a["attribute"], "value_a": row["values"][0]}
        fields |= {"attribute_b": pair.b["attribute"], "value_b": row["values"][1]}
        identity = [row[name] for name in ("proposal_id", "bias_class", "number")]
        requests.append(
            ChatRequest(
                prompts.messages(PROMPT, **fields),
                schema=CAPTION_SCHEMA,
                temperature=TEMPERATURE,
                top_p=TOP_P,
                max_tokens=MAX_TOKENS,
                seed=seed_of("pair", prompts.text(PROMPT), identity, seed),
            )
        )
    result: list[str | ReplyError] = []
    for row, reply in zip(rows, language_model.chat(requests), strict=True):
        try:
            text = " ".join(str(parse_reply(reply, CAPTION_SCHEMA)["caption"]).split())
            result.append(_checked(text, reply.text, row, _both(row, texts)))
        except ReplyError as error:
            result.append(error)
    return result


def _checked(text: str, whole: str, row: Cell, both: tuple[str, str]) -> str:
    """Returns the caption. Raises ReplyError unless it names the class and uses a word that is specific to each of the
    two captions."""
    said = _words(text)
    if not names_class(text, row["target_class"]):
        raise ReplyError("the caption does not name the class", whole)
    words_a, words_b = (_words(one) | _words(value) for one, value in zip(both, row["values"], strict=True))
    for mine, theirs, part, value in (
        (words_a, words_b, row["pair"].a, row["values"][0]),
        (words_b, words_a, row["pair"].b, row["values"][1]),
    ):
        if not (mine - theirs) & said:
            raise ReplyError(f"the caption does not show that {part['attribute']} is {value}", whole)
    return text


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", normalise(text))) - _SMALL


def _continued(row: Cell, first: str, second: str) -> str:
    """Returns the first caption with what the second says after the class, or both values in general words where it
    says nothing there."""
    match = re.search(rf"(?<!\w){re.escape(row['target_class'])}(?!\w)", second, re.IGNORECASE)
    rest = second[match.end() :].strip().rstrip(".") if match else ""
    if not re.search(r"\w", rest):
        pair, (x, y) = row["pair"], row["values"]
        both = [(pair.a["attribute"], x), (pair.b["attribute"], y)]
        return caption_of(row["target_class"], both, row["number"])
    return f"{first.rstrip('. ')}{'' if rest[0] in ',;:.' else ' '}{rest}"
