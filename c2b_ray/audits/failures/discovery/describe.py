"""Mines descriptions of failures for sets of sentences that failures share and other images do not.

A set I of sentences that explains a of m failures, and that a share b of ordinary images has, gains

    G(I) = a*log((a/m)/b) + (m-a)*log((1-a/m)/(1-b)) - COST*|I|        (a/m > b; the last term for m > 1)

This is the log likelihood ratio of the failures: with a share a/m of them having I, against the share in other images.
For a single failure the whole description gains most. It knows sets of sentences.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa

from c2b_ray.roles import Captioner, CaptionReply
from c2b_ray.steps.decode import decode_batch
from c2b_ray.tables import DESCRIPTIONS

LARGEST = 4
COST = 2.0
"""Nats that each sentence must gain, because there are many possible sentences."""

Sentences = tuple[str, ...]


@dataclass(frozen=True)
class SentenceSet:
    """A set of sentences in the order of their description. `lift`: how much more frequent it is among failures."""

    sentences: Sentences
    support: int
    lift: float
    gain: float


class Background:
    """The frequency of each sentence among a label's ordinary images; sentences are taken as independent."""

    def __init__(self, descriptions: Sequence[Sentences]) -> None:
        self._count = Counter(sentence for one in descriptions for sentence in set(one))
        self._images = len(descriptions)

    def share(self, sentences: Sentences) -> float:
        return math.prod((self._count[one] + 0.5) / (self._images + 1) for one in sentences)


def mine(failures: Sequence[Sentences], background: Background, most: int) -> list[SentenceSet]:
    """Returns at most `most` sets, best first; each explains failures that those before it do not."""
    left = [one for one in failures if one]
    result: list[SentenceSet] = []
    while left and len(result) < most:
        best = max(_sets(left, background), key=lambda mined: (mined.gain, mined.sentences), default=None)
        if best is None or best.gain <= 0:
            break
        result.append(best)
        left = [one for one in left if not set(best.sentences) <= set(one)]
    return result


def _sets(failures: Sequence[Sentences], background: Background) -> list[SentenceSet]:
    """Returns every set of up to `LARGEST` sentences of a failure, and each whole description."""
    support: Counter[frozenset[str]] = Counter()
    order: dict[frozenset[str], Sentences] = {}
    for one in failures:
        distinct = tuple(dict.fromkeys(one))
        sizes = range(1, min(LARGEST, len(distinct)) + 1)
        sets = [chosen for size in sizes for chosen in combinations(distinct, size)]
        for chosen in dict.fromkeys([*sets, distinct]):
            order.setdefault(frozenset(chosen), chosen)
            support[frozenset(chosen)] += 1
    return [_mined(order[key], count, len(failures), background) for key, count in support.items()]


def _mined(sentences: Sentences, support: int, failures: int, background: Background) -> SentenceSet:
    share, usual = support / failures, min(background.share(sentences), 0.999)
    if share <= usual:
        return SentenceSet(sentences, support, share / usual, -math.inf)
    gain = support * math.log(share / usual)
    if share < 1:
        gain += (failures - support) * math.log((1 - share) / (1 - usual))
    return SentenceSet(sentences, support, share / usual, gain - (COST * len(sentences) if failures > 1 else 0.0))


# Describes failures: the captioner's text about each kept image. It knows only bytes and texts.


def describe(images: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `schemas.DESCRIPTIONS`, a row per row of `images` (`description_id`, `label`, `image`).

    An image that cannot be decoded, or about which the captioner says nothing usable, has an error in its row.
    """
    decoded, errors = decode_batch(images["image"].to_pylist())
    good = [index for index, pixels in enumerate(decoded) if pixels is not None]
    labels = images["label"].to_pylist()
    replies = [CaptionReply(None, error) for error in errors]
    if good:
        shown = [pixels for pixels in decoded if pixels is not None]
        answered = captioner.caption(shown, [labels[index] for index in good])
        for index, reply in zip(good, answered, strict=True):
            replies[index] = reply
    columns = {
        "description_id": images["description_id"],
        "text": pa.array([reply.text for reply in replies], pa.string()),
        "error": pa.array([reply.error for reply in replies], pa.string()),
    }
    return pa.table(columns).cast(DESCRIPTIONS)
