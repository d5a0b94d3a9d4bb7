"""Decides with few images which of a search's candidates have the highest score: all start with few, most drop out.

Successive halving (Karnin et al. 2013; Jamieson & Talwalkar 2016) on the score log P(s) + λ · log mean P(value), under
seeds that all candidates share. A winner by few images wins partly by luck. Three things keep luck from accumulating
over a search's many races: the next race begins with other seeds (`Ranked.used`), the score of the text that a
candidate continues counts for more than its first images, and winners get images that had no part in their winning. It
knows scores and guides, not tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from c2b_ray.steps.prompts.guide import Counted, Shares, bias_scores

Indices = NDArray[np.intp]

FIRST_SHARE = 8
"""A race begins with K / 8 images of each candidate."""
_OF_PARENT = 6
"""The weight, in rounds of images, of the score of a candidate's beginning: most tokens change little."""


@dataclass(frozen=True)
class Contest:
    """`keep`: how many win, at most `of_parent` of one parent's while there are others. `weight`: λ. `seeds`: K of
    them. `raced`: False scores every candidate on all K."""

    keep: int
    of_parent: int
    weight: float
    seeds: tuple[int, ...]
    raced: bool

    @property
    def step(self) -> int:
        """Images that each remaining candidate gets in a round."""
        return max(1, len(self.seeds) // FIRST_SHARE) if self.raced else len(self.seeds)


@dataclass(frozen=True)
class Candidates:
    """`priors`: log P of each. `parents`: the number of the text that it continues, −1 for none. `before`: that text's
    bias score, NaN where there is none."""

    texts: Sequence[str]
    priors: Shares
    parents: Sequence[int]
    before: Shares


@dataclass(frozen=True)
class Ranked:
    """`order`: the candidates that won, best first. `bias`: for each, log mean probability as far as it is known.
    `used`: how many of the seeds, from the first on, the winners' images used."""

    order: list[int]
    bias: Shares
    used: int


def best(candidates: Candidates, guide: Counted, contest: Contest) -> Ranked:
    """Returns the winners among the candidates; in a race the better half remains after each round."""
    bias = np.full(len(candidates.texts), np.nan)

    def sorted_by_score(some: Indices, used: int) -> Indices:
        shares = guide.probabilities([candidates.texts[int(i)] for i in some], contest.seeds[:used])
        weight = _OF_PARENT * contest.step if contest.raced else 0
        bias[some] = _shrunken(shares, candidates.before[some], weight)
        return some[np.argsort(-(candidates.priors[some] + contest.weight * bias[some]), kind="stable")]

    left, used = np.arange(len(candidates.texts)), 0
    while True:
        used = min(used + contest.step, len(contest.seeds))
        left = sorted_by_score(left, used)
        half = -(-len(left) // 2)
        if half <= contest.keep or used == len(contest.seeds):
            break
        left = left[:half]
    winners = np.array(_capped(left.tolist(), candidates.parents, contest), np.intp)
    if len(winners) < len(candidates.texts) and used < len(contest.seeds):
        used = min(used + contest.step, len(contest.seeds))
        winners = sorted_by_score(winners, used)
    return Ranked(winners.tolist(), bias, used)


def _capped(order: Sequence[int], parents: Sequence[int], contest: Contest) -> list[int]:
    """Returns the first of the order that may win together, and others where there are too few of them."""
    kept: list[int] = []
    spare: list[int] = []
    for i in order:
        siblings = sum(parents[other] == parents[i] for other in kept)
        (kept if parents[i] < 0 or siblings < contest.of_parent else spare).append(i)
    return [*kept, *spare][: contest.keep]


def _shrunken(shares: Shares, parents: Shares, images: int) -> Shares:
    """Returns bias scores with the mean shrunk towards that of the text that each candidate continues, with a weight of
    `images` images."""
    known = ~np.isnan(shares)
    sums, counts = np.where(known, shares, 0.0).sum(axis=1), known.sum(axis=1)
    before = np.exp(parents)
    weight = np.where(np.isnan(before), 0, images)
    total = counts + weight
    means = np.divide(sums + weight * np.nan_to_num(before), total, out=np.zeros(len(sums)), where=total > 0)
    return bias_scores(means[:, None])
