"""How well detected biases agree with ground truth: outcomes of matching, their shares, and agreement of verdicts.

Works on similarities, signs and counts alone. Classifier-to-Bias (CVPR 2025), sections 4.2 and 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from c2b_ray.stats.scores import Floats, Ints

Many = Literal["nearest", "any", "majority"]
"""The rule that decides where one bias matches several others."""

SAME = 1e-12
"""Similarities that differ by less than this count as equal."""

ABOVE = 1e-9
"""How far a threshold lies above the similarities that it excludes."""


def bias_outcomes(
    similarity: ArrayLike, sign: ArrayLike, other_sign: ArrayLike, threshold: float, many: Many = "nearest"
) -> Ints:
    """Returns for each bias of one side 1 (hit), −1 (false hit: detected in the other direction) or 0 (miss).

    A bias matches those of the other side whose similarity is at least `threshold` and that have a direction. Without a
    match it is a miss. `nearest`: the direction of the most similar match decides; of several equally similar ones that
    disagree it is a false hit. `any`: a hit where one match has the direction. `majority`: a hit where more matches
    have the direction than the other; half of them is a false hit.

    Classifier-to-Bias, section 4.2.1: "detected with the same bias direction (HIT), detected with the opposite
    direction (false hit, FH), or not detected (MISS)". It does not say what several matches come to; `any` favours
    whoever proposes much, so it is not the default.

    Args: similarity: floats (m, n), cosine; sign: (m,), each 1 or −1; other_sign: (n,), 1, −1 or 0 (not detected).
    Returns: int64 (m,). Nothing on the other side: all misses. NaN similarities match nothing.
    Raises: ValueError for other shapes, other signs, or an unknown `many`.
    """
    similar, first, second = np.asarray(similarity, np.float64), np.asarray(sign), np.asarray(other_sign)
    if similar.shape != (len(first), len(second)):
        raise ValueError(f"similarity has shape {similar.shape}, expected ({len(first)}, {len(second)})")
    if not np.isin(first, (-1, 1)).all() or not np.isin(second, (-1, 0, 1)).all():
        raise ValueError("sign must be 1 or -1, other_sign 1, -1 or 0")
    if many not in get_args(Many):
        raise ValueError(f"many is {many!r}, expected one of {', '.join(get_args(Many))}")
    matched = (similar >= threshold - SAME) & (second != 0)
    same = matched & (first[:, None] == second)
    opposite = matched & ~same
    if many == "nearest":
        best = np.where(matched, similar, -np.inf).max(axis=1, initial=-np.inf)[:, None]
        hit = same.any(axis=1) & ~(opposite & (similar >= best - SAME)).any(axis=1)
    elif many == "any":
        hit = same.any(axis=1)
    else:
        hit = same.sum(axis=1) > opposite.sum(axis=1)
    return np.where(hit, 1, np.where(matched.any(axis=1), -1, 0)).astype(np.int64)


class Shares(NamedTuple):
    """Shares of outcomes: `hit`, `false_hit` and `miss` sum to 1; all are NaN where there are no biases."""

    hit: float
    false_hit: float
    miss: float


def outcome_shares(outcomes: ArrayLike) -> Shares:
    """Returns the shares of HIT, FH and MISS among outcomes 1, −1 and 0 (Tables 1 and 2 of Classifier-to-Bias); NaN for
    no outcomes."""
    values = np.asarray(outcomes)
    if values.size == 0:
        return Shares(float("nan"), float("nan"), float("nan"))
    return Shares(*(float((values == outcome).mean()) for outcome in (1, -1, 0)))


@dataclass(frozen=True)
class Agreement:
    """Agreement of two sets of verdicts. `score`: the mean of +1 (the same verdict), −1 (opposite directions), 0
    (else), in [−1, 1]. `table`: int64 (3, 3), rows the first side's cases against, none, for; columns the second's.
    `score_of_biased`: the mean over those that either side calls biased, since two methods that find nothing agree
    trivially. NaN where there are none."""

    score: float
    table: NDArray[np.int64]
    score_of_biased: float


def verdict_agreement(first: ArrayLike, second: ArrayLike) -> Agreement:
    """Measures the agreement of two verdicts (1, 0, −1) on the same biases: Classifier-to-Bias, section 4.2.2 (Tables 3
    and 4)."""
    a, b = np.asarray(first, np.int64), np.asarray(second, np.int64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"expected two lists of one length, got shapes {a.shape} and {b.shape}")
    if not np.isin(a, (-1, 0, 1)).all() or not np.isin(b, (-1, 0, 1)).all():
        raise ValueError("signs must be 1, 0 or -1")
    points = np.where(a == b, 1, np.where(a * b < 0, -1, 0))
    table = np.bincount(3 * (a + 1) + b + 1, minlength=9).reshape(3, 3).astype(np.int64)
    biased = (a != 0) | (b != 0)
    score = float(points.mean()) if points.size else float("nan")
    return Agreement(score, table, float(points[biased].mean()) if biased.any() else float("nan"))


def match_threshold(similarity: ArrayLike, rate: float = 0.01) -> float:
    """Returns the least threshold that at most a share `rate` of pairs known to differ reaches.

    Names of one ground truth mean different things, so the similarity of two of them must not count as a match: the
    threshold lies `ABOVE` the similarity of the first pair that would exceed the share. NaN without pairs.
    """
    values = np.asarray(similarity, np.float64).ravel()
    if not 0 < rate < 1:
        raise ValueError(f"rate = {rate} must lie in (0, 1)")
    if not values.size:
        return float("nan")
    reaching = int(np.floor(rate * values.size + 1e-9))
    return float(np.sort(values)[::-1][reaching]) + ABOVE


class KeywordScores(NamedTuple):
    """Scores of keywords. `score`: in CLIP's points (cosine × 100), (keywords,); `p_value`: Welch's, two-sided; NaN
    with fewer than two images on a side."""

    score: Floats
    p_value: Floats


def keyword_scores(wrong: ArrayLike, right: ArrayLike) -> KeywordScores:
    """Computes how much more similar each keyword is to wrongly classified images than to correctly classified ones.

    s(w) = 100 · (mean over wrong images of cos(image, w) − mean over right ones)

    Bias-to-Text (Kim et al. 2024), the CLIP score: positive where the keyword goes with mistakes. The p-value (Welch
    1947) is ours.

    Args: wrong, right: cosines, (images, keywords), of as many keywords.
    Returns: score NaN where a side has no images.
    """
    a, b = np.asarray(wrong, np.float64), np.asarray(right, np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"expected (images, keywords) of as many keywords, got shapes {a.shape} and {b.shape}")
    undefined = np.full(a.shape[1], np.nan)
    if not len(a) or not len(b):
        return KeywordScores(undefined, undefined.copy())
    score: Floats = 100 * (a.mean(axis=0) - b.mean(axis=0))
    if min(len(a), len(b)) < 2 or not a.shape[1]:
        return KeywordScores(score, undefined)
    error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
    sound = error > 0
    p = np.where(score == 0, 1.0, 0.0)  # of keywords that are as similar to every image of a side
    p[sound] = scipy.stats.ttest_ind(a[:, sound], b[:, sound], equal_var=False).pvalue
    return KeywordScores(score, p)


def _hits(is_relevant: NDArray[np.bool_], score: Floats, k: int) -> float:
    if score.shape != is_relevant.shape or (np.diff(score) > 0).any():
        raise ValueError("score must be as long as relevant, and not increasing")
    above, tied = score > score[k - 1], score == score[k - 1]
    return float(is_relevant[above].sum() + (k - above.sum()) * is_relevant[tied].mean())


class Recall(NamedTuple):
    """Recall of the first `k` items of a ranking. `recall`: hits / relevant; `reachable`: hits / min(k, relevant)."""

    k: int
    recall: float
    reachable: float


def recall_of_matches(relevant: ArrayLike, share: float, score: ArrayLike | None = None) -> Recall:
    """recall@A·K of a ranking in which K items are relevant: Classifier-to-Bias, section 4.4 and Figure 6.

    k = max(1, ceil(A · K)). `recall` divides by all K, so it is at most A. The values in Figure 6 grow as A falls, so
    they must be relative to the number that A · K items can hold: `reachable`.

    Args: relevant: booleans in the order of the ranking, best first, every relevant item among them; share: A, in (0,
    1]; score: the score of each item, not increasing. Where items tie with the last one considered, hits are the mean
    over all orders of the tied items, because their order carries no information.
    Returns: NaN where nothing is relevant (k is 0 then).
    """
    is_relevant = np.asarray(relevant, bool)
    if not 0 < share <= 1:
        raise ValueError(f"share = {share} must lie in (0, 1]")
    total = int(is_relevant.sum())
    if total == 0:
        return Recall(0, float("nan"), float("nan"))
    k = max(1, int(np.ceil(share * total - 1e-9)))
    hits = float(is_relevant[:k].sum()) if score is None else _hits(is_relevant, np.asarray(score, np.float64), k)
    return Recall(k, hits / total, hits / min(k, total))


# How certain HIT − FH is, and its difference between two methods: intervals and p-values over clusters of outcomes.


AT_ONCE = 4_000_000
"""The most bootstrap weights that are held in memory at a time."""

ALIKE = 1e-9
"""Draws that differ by less are all one value."""


class Difference(NamedTuple):
    """A difference of two methods: `value` in [−2, 2] with its limits, and the two-sided p-value of the null that both
    are alike; NaN where a side has no biases."""

    value: float
    low: float
    high: float
    p_value: float


def outcome_difference(
    outcomes: tuple[ArrayLike, ArrayLike],
    clusters: tuple[ArrayLike, ArrayLike],
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
    most: float = 2.0,
) -> Difference:
    """(HIT − FH of the first) − (HIT − FH of the second), with a percentile bootstrap over clusters.

    HIT − FH is the mean of outcomes. Clusters (a classifier and a class, say) are drawn with replacement, the same for
    both sides, for biases of one cluster share images and mistakes: Efron & Tibshirani 1993, section 8. Percentiles
    are expanded for few clusters (`_of_draws`).

    Where all clusters differ alike, by v, so do all draws, which shows nothing of clusters that were not seen. By
    Clopper & Pearson 1934, at most a share u of them differs otherwise, by anything in [−most, most]:

        [v − u * (most + v), v + u * (most − v)],   u = 1 − ((1 − confidence) / 2)^(1/m),   m = (Σn)² / Σn²

    where m, the number of clusters of n biases each, is smaller for unequal ones (Kish 1965). Draws that differ know
    only clusters that were seen, too: the limits hold those of `_with_unseen`.

    Args: outcomes: of the two sides, each (m,) of 1, −1, 0; clusters: the cluster of each, whole numbers ≥ 0; most: the
    largest difference of a cluster: 2, but 1 where the second side is always 0, for the interval of one HIT − FH.
    Where so few clusters differ that flipping their signs gives no p-value below 1 - confidence, the limits reach to 0.
    p is the level at which the interval reaches 0, and at least 2^(1 − m) where m clusters differ, as of sign flips.
    Returns: limits and p NaN where fewer than two clusters hold biases, or where the draws leave a side empty.
    """
    sides = _Sides.of(outcomes, clusters)
    differences = sides.drawn(draws, seed)
    if not len(differences):
        return Difference(sides.value, np.nan, np.nan, np.nan)
    smallest_p = 2.0 ** (1 - sides.differ)
    if np.ptp(differences) < ALIKE:
        low, high, p_value = _of_equal_draws(sides.value, sides.worth, most, confidence)
    else:
        low, high, p_value = _of_unequal_draws(sides, differences, most, confidence)
    if smallest_p > 1 - confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    return Difference(sides.value, float(low), float(high), float(min(1.0, max(p_value, smallest_p))))


Limits = tuple[float, float, float]
"""Low, high, and the p-value."""


def _of_unequal_draws(sides: _Sides, differences: Floats, bound: float, confidence: float) -> Limits:
    """Returns the wider of two intervals: by the draws, and with clusters that were not seen."""
    by_draws, with_unseen = _of_draws(differences, sides.worth, confidence), _with_unseen(sides, bound, confidence)
    return min(by_draws[0], with_unseen[0]), max(by_draws[1], with_unseen[1]), max(by_draws[2], with_unseen[2])


def _with_unseen(sides: _Sides, bound: float, confidence: float) -> Limits:
    """Returns Student's limits and p with two more clusters: one that does not differ, and one that differs half for
    and half against, by the largest difference seen. Agresti & Min 2005 do so for a difference of paired rates.

    Percentiles alone held the truth in .71 to .88 of samples of 4 and 8 clusters of rare outcomes; both together in .92
    or more of 4 to 40 clusters.
    """
    m, (contributions, residual) = sides.worth, sides.apart()
    clusters, freedom = m + 2, m + 1
    middle = m * sides.value / clusters
    variance = (
        m * (residual**2).mean() + m * sides.value**2 + (contributions[contributions != 0] ** 2).mean()
    ) / clusters - middle**2
    error = float(np.sqrt(variance / clusters))
    margin = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    p_value = float(2 * stdtr(freedom, -abs(middle) / error))
    return max(-bound, middle - margin), min(bound, middle + margin), p_value


def _of_draws(differences: Floats, effective: float, confidence: float) -> Limits:
    """Returns limits and p by percentiles that are expanded as Student's t is wider than the normal distribution
    (Hesterberg 2015, section 5.3): at Φ(−sqrt(m/(m − 1)) * t of m − 1 degrees of freedom at (1 − confidence)/2).

    Of 4 to 12 clusters plain ones held the truth in as little as .76 of samples, these in .87 or more.
    """
    wider = float(np.sqrt(effective / (effective - 1)))
    edge = float(ndtr(wider * stdtrit(effective - 1, (1 - confidence) / 2)))
    low, high = np.quantile(differences, [edge, 1 - edge])
    tail = (min((differences <= 0).sum(), (differences >= 0).sum()) + 1) / (len(differences) + 1)
    return float(low), float(high), float(2 * stdtr(effective - 1, ndtri(min(tail, 0.5)) / wider))


def _of_equal_draws(value: float, effective: float, bound: float, confidence: float) -> Limits:
    unseen = 1 - ((1 - confidence) / 2) ** (1 / effective)
    p_value = 2 * (bound / (bound + abs(value))) ** effective
    return value - unseen * (bound + value), value + unseen * (bound - value), p_value


@dataclass(frozen=True)
class _Sides:
    """By cluster and side, the sum of outcomes and their number: floats (2, clusters), of clusters that hold any."""

    sums: Floats
    sizes: Floats

    @classmethod
    def of(cls, outcomes: tuple[ArrayLike, ArrayLike], clusters: tuple[ArrayLike, ArrayLike]) -> _Sides:
        numbers = [np.asarray(c, np.int64) for c in clusters]
        count = 1 + max(int(np.max(c, initial=-1)) for c in numbers)
        sums = np.stack(
            [
                np.bincount(number, np.asarray(values, np.float64), minlength=count)
                for values, number in zip(outcomes, numbers, strict=True)
            ]
        )
        sizes = np.stack([np.bincount(number, minlength=count).astype(np.float64) for number in numbers])
        nonempty = sizes.sum(axis=0) > 0
        return cls(np.asarray(sums[:, nonempty], np.float64), sizes[:, nonempty])

    @cached_property
    def value(self) -> float:
        first, second = _ratio(self.sums.sum(axis=1), self.sizes.sum(axis=1))
        return float(first - second)

    @cached_property
    def differ(self) -> int:
        """The number of clusters that differ between the sides."""
        return int(((self.sums[0] != self.sums[1]) | (self.sizes[0] != self.sizes[1])).sum())

    @cached_property
    def worth(self) -> float:
        """How many clusters of equal size they are worth."""
        sizes = self.sizes.sum(axis=0)
        return float(_ratio(sizes.sum() ** 2, (sizes**2).sum()))

    def apart(self) -> tuple[Floats, Floats]:
        """Returns how much each cluster contributes to the difference, whose mean the difference is; and the rest that
        the sides' means leave of it. Both are scaled to `worth` clusters."""
        totals = self.sizes.sum(axis=1, keepdims=True)
        means = self.sums.sum(axis=1, keepdims=True) / totals
        scale = np.sqrt(self.worth * self.sums.shape[1])
        first, second = self.sums / totals
        residual, other_residual = (self.sums - means * self.sizes) / totals
        return scale * (first - second), scale * (residual - other_residual)

    def drawn(self, draws: int, seed: int) -> Floats:
        """Returns the differences in bootstrap samples of clusters: none where fewer than two clusters hold biases, or
        a side is empty."""
        clusters = self.sums.shape[1]
        if clusters < 2 or np.isnan(self.value):
            return np.zeros(0)
        random = np.random.default_rng(seed)
        differences = []
        for start in range(0, draws, batch := max(1, AT_ONCE // clusters)):
            weights = random.multinomial(clusters, np.full(clusters, 1 / clusters), size=min(batch, draws - start))
            first, second = (_ratio(weights @ s, weights @ n) for s, n in zip(self.sums, self.sizes, strict=True))
            differences.append(first - second)
        sampled = np.concatenate(differences)
        finite: Floats = sampled[~np.isnan(sampled)]
        return finite


def _ratio(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    top, bottom = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    ratio: Floats = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return ratio
