"""Which of a search's candidates have the highest score, decided with few images: all start with few, most drop out.

Successive halving (Karnin et al. 2013; Jamieson & Talwalkar 2016) on the score log P(s) + λ · log mean P(value), under
seeds that all candidates share. A winner by few images wins by luck as well, so three things keep luck from
adding up over a search's many races: the next race begins with other seeds than this one's (`Ranked.used`), what is
known of the text that a candidate continues counts for more than its first images, and winners get images that had no
part in their winning. It knows scores and guides, not tokens.
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
"""Rounds of images that what is known of the candidate's beginning counts for: most tokens change little."""


@dataclass(frozen=True)
class Contest:
    """`keep`: how many win, no more than `of_parent` of one parent's as long as there are others. `weight`: λ.
    `seeds`: K of them. `raced`: False scores every candidate on all K."""

    keep: int
    of_parent: int
    weight: float
    seeds: tuple[int, ...]
    raced: bool

    @property
    def step(self) -> int:
        """Images that each candidate that is left gets in a round."""
        return max(1, len(self.seeds) // FIRST_SHARE) if self.raced else len(self.seeds)


@dataclass(frozen=True)
class Candidates:
    """`priors`: log P of each. `parents`: the number of what it continues, −1 for nothing; `before`: its bias score,
    NaN where there is none."""

    texts: Sequence[str]
    priors: Shares
    parents: Sequence[int]
    before: Shares


@dataclass(frozen=True)
class Ranked:
    """`order`: the candidates that won, best first. `bias`: of each, log mean probability as far as it is known.
    `used`: so many of the seeds, from the first, are those of the winners' images."""

    order: list[int]
    bias: Shares
    used: int


def best(candidates: Candidates, guide: Counted, contest: Contest) -> Ranked:
    """The winners among the candidates; in a race all that are left after each round are the better half."""
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
    """The first of the order that may win together; others where there are too few of them."""
    kept: list[int] = []
    spare: list[int] = []
    for i in order:
        siblings = sum(parents[other] == parents[i] for other in kept)
        (kept if parents[i] < 0 or siblings < contest.of_parent else spare).append(i)
    return [*kept, *spare][: contest.keep]


def _shrunken(shares: Shares, parents: Shares, images: int) -> Shares:
    """Bias scores with the mean drawn towards that of the text that each candidate continues, by so many images."""
    known = ~np.isnan(shares)
    sums, counts = np.where(known, shares, 0.0).sum(axis=1), known.sum(axis=1)
    before = np.exp(parents)
    weight = np.where(np.isnan(before), 0, images)
    total = counts + weight
    means = np.divide(sums + weight * np.nan_to_num(before), total, out=np.zeros(len(sums)), where=total > 0)
    return bias_scores(means[:, None])
