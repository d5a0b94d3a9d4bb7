"""Skew of a ranking: whether some groups are over-represented near its top.

Knows the groups of ranked items, best first; knows nothing of how they were ranked or of the items themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from c2b_ray.stats.disparity import Chance
from c2b_ray.stats.resampling import LEAST_SAMPLED, bootstrap_weights, upper_tail
from c2b_ray.stats.scores import Floats, Ints

Groups = Sequence[Hashable] | NDArray[Any]

SUM_TOLERANCE = 1e-6

SkewRule = Literal["formula", "from_zero", "absent_share", "ties", "usual"]
"""`formula`: Eq. 2. In the code in common use the maximum starts at 0 (`from_zero`), an absent group has the share 1/k
(`absent_share`), and all items tied with the k-th are counted while shares are still divided by k (`ties`); `usual`:
all three."""


def max_skew(groups: Groups, k: int, ideal: Mapping[Any, float] | None = None) -> float:
    """Computes MaxSkew@k: the log ratio of the most over-represented group's share in the top k to its ideal share.

    max over groups a of log(f_a / f'_a),   f_a = share of a in the first k, f'_a = ideal share, natural logarithm

    Social bias transfer in CLIP (Ramos et al. 2025), Eq. 2, with the share over all ranked items as f'; after Geyik et
    al. 2019. A group that is absent from the top k contributes log 0 = -inf, so it never makes the maximum. This is the
    formula; `scored_max_skew` has the variants of the code in common use.

    Args: groups: the group of every item, best first, shape (items,), no None or NaN; k: rows looked at, 1 to items;
    ideal: group -> share, summing to 1, every group of the ranking named. Default: the shares over all of `groups`.
    Returns: float, 0 or more because both sets of shares sum to 1. 0: the top k has the ideal shares. inf where a group
    of ideal share 0 is in the top k. NaN for an empty ranking.
    Raises: ValueError for k out of range, for a missing group label, for shares that are negative or do not sum to 1,
    and for a group without an ideal share.
    """
    codes, shares = _coded(groups, ideal)
    if codes.size == 0:
        return float("nan")
    if not 1 <= k <= codes.size:
        raise ValueError(f"k = {k} must lie in 1 to {codes.size}, the number of ranked items")
    counts = np.bincount(codes[:k], minlength=shares.size)
    present = counts > 0
    with np.errstate(divide="ignore"):
        return float(np.log(counts[present] / k / shares[present]).max())


def scored_max_skew(
    scores: ArrayLike, groups: Groups, k: int, rule: SkewRule = "formula", ideal: Mapping[Any, float] | None = None
) -> float:
    """Computes MaxSkew@k of items with scores, by the formula or by a named variant of the code in common use
    (`SkewRule`).

    `formula`: items of equal score in the order that they are in, then `max_skew`. The variants are those of the code
    that debiasing papers pass on (Berg et al. 2022 and after): the skew of each group is log(share / ideal share), its
    maximum starting at 0; an absent group counts as one item of k; `nlargest(k, keep="all")` returns every item that
    ties with the k-th, and shares are these counts over k, so that they may sum to more than 1.

    Args: scores: shape (items,), highest first; groups: of every item; k, ideal: as for `max_skew`.
    Returns: float as `max_skew`; the variants may give a positive skew to a ranking that has none.
    Raises: ValueError as `max_skew`, or for scores that are NaN or of another number.
    """
    values = np.asarray(scores, np.float64)
    codes, shares = _coded(groups, ideal)
    if values.shape != codes.shape or np.isnan(values).any():
        raise ValueError(f"need a score, not NaN, of each of the {codes.size} items; got {values.shape}")
    if codes.size == 0:
        return float("nan")
    if not 1 <= k <= codes.size:
        raise ValueError(f"k = {k} must lie in 1 to {codes.size}, the number of ranked items")
    order = np.argsort(-values, kind="stable")
    tied = rule in ("ties", "usual")
    top = codes[values >= values[order[k - 1]]] if tied else codes[order[:k]]
    share = np.bincount(top, minlength=shares.size) / k
    if rule in ("absent_share", "usual"):
        share = np.where(share == 0, 1 / k, share)
    with np.errstate(divide="ignore"):
        largest = float(np.log(share[share > 0] / shares[share > 0]).max())
    return max(largest, 0.0) if rule in ("from_zero", "usual") else largest


def ndkl(groups: Groups, ideal: Mapping[Any, float] | None = None) -> float:
    """Computes the normalised discounted cumulative KL divergence of a ranking from the ideal shares.

    1/Z * sum over i = 1..N of KL(D_top_i || D) / log2(i+1),   Z = sum over i of 1/log2(i+1), KL in natural logarithm

    Geyik et al. 2019, section 3 (NDKL); D_top_i are the groups' shares in the first i items. Some code adds an epsilon
    to both shares; here an absent group contributes 0, which is the limit, and no epsilon is needed.

    Args: groups, ideal: as for `max_skew`.
    Returns: float, 0 or more. 0: every prefix has the ideal shares (with the default ideal, one group only); a fair
    ranking of several groups is near 0 but above it, as its first items cannot hold every share. inf where a group of
    ideal share 0 is ranked. NaN for an empty ranking.
    Raises: ValueError as `max_skew` does, except for k.
    """
    codes, shares = _coded(groups, ideal)
    if codes.size == 0:
        return float("nan")
    ranks = np.arange(1, codes.size + 1)
    prefixes = np.cumsum(codes[:, None] == np.arange(shares.size), axis=0) / ranks[:, None]
    divergences = np.maximum(rel_entr(prefixes, shares).sum(axis=1), 0.0)
    discounts = 1 / np.log2(ranks + 1)
    return float((discounts * divergences).sum() / discounts.sum())


def _coded(groups: Groups, ideal: Mapping[Any, float] | None) -> tuple[Ints, Floats]:
    """Returns each item's group as a number, and each number's ideal share."""
    labels = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    for rank, label in enumerate(labels):
        if label is None or label != label:
            raise ValueError(f"the item at rank {rank} has no group ({label!r}); leave it out of the ranking first")
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels) if ideal is None else ideal)}
    for label in labels:
        if label not in numbers:
            raise ValueError(f"group {label!r} has no ideal share; shares are given for {list(numbers)}")
    codes = np.array([numbers[label] for label in labels], dtype=np.int64)
    if ideal is None:
        return codes, np.bincount(codes, minlength=len(numbers)) / max(codes.size, 1)
    shares = np.array([float(share) for share in ideal.values()])
    if not (shares >= 0).all() or not abs(shares.sum() - 1) <= SUM_TOLERANCE:
        raise ValueError(f"ideal shares must be 0 or more and sum to 1, got {dict(ideal)}")
    return codes, shares


# Limits of MaxSkew where a group has few items, which resampling these few does not show.


FEW = LEAST_SAMPLED
"""With fewer items in a group, its limits are widened."""


def with_few(
    limits: tuple[float, float], ratios: Floats, groups: tuple[Floats, Floats], part: float, confidence: float
) -> tuple[float, float]:
    """Widens the limits of a mean MaxSkew to what few items leave open about their group's ratios.

    A group's ratio f/f' is p/s, p the chance that one of its items is in the top k, s = k over all items. By Clopper &
    Pearson 1934, m items that are in a share x of the top k's have p between the quantiles of

        Beta(m * x, m - m * x + 1) and Beta(m * x + 1, m - m * x),   at (1 - confidence) / 2 over the number of groups

    with fewer than `FEW` items; x is a mean over rankings, which varies no more than a single one does. The lower limit
    has these groups' ratios as near to 1 as p allows, the same in all rankings, and the others' shares fill up what is
    left; the upper limit has them as large as possible, or the p spread over rankings so that the mean log is largest:
    log(p/s), or from 0 to p' = e * s in a share p/p' of them. No limit is above log(1/s).

    Args: limits: by resampling; ratios: (rankings, groups); of: each group's number of items, at least 1 (of different
    pictures, where items are copies), and its share of all items; part: k over all items; confidence.
    Returns: (low, high), low >= 0; the limits as they are where no group has few items.
    """
    counts, ideal = groups
    few = counts < FEW
    if not few.any():
        return limits
    low, high = _chances(ratios[:, few].mean(axis=0) * part * counts[few], counts[few], confidence)
    lowest = _lowest(ratios, ideal, few, np.clip(1.0, low / part, high / part))
    largest = np.minimum(high / part, 1 / ideal[few])
    top = min(np.e * part, 1.0)
    spread = float(np.max(high / top * np.log(top / part), where=high < top, initial=0.0))
    highest = max(_mean_log(ratios[:, ~few], largest), spread)
    upper = max(float(-np.log(part)), _mean_log(ratios, np.zeros(1)))  # the value itself may be larger by a last digit
    return max(0.0, min(limits[0], lowest)), min(max(limits[1], highest), upper)


def _lowest(ratios: Floats, ideal: Floats, few: NDArray[np.bool_], nearest: Floats) -> float:
    """Returns the skew where groups of few items have the ratios `nearest`, and the others share what is left as they
    do."""
    remainder = max(0.0, 1 - float((nearest * ideal[few]).sum()))
    shares = ratios[:, ~few] * ideal[~few]
    totals = shares.sum(axis=1, keepdims=True)
    parts = np.where(totals > 0, shares, ideal[~few]) / np.where(totals > 0, totals, max(ideal[~few].sum(), 1e-12))
    return _mean_log(parts * remainder / ideal[~few], nearest)


def _chances(shown: Floats, counts: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Returns the limits of the chance of each group's items, of which `shown` are in the top k on average."""
    edge, shown = (1 - confidence) / 2 / len(counts), np.clip(shown, 0, counts)
    is_none, is_all = shown < 1e-9, shown > counts - 1e-9
    low = np.where(is_none, 0.0, scipy.stats.beta.ppf(edge, np.where(is_none, 1, shown), counts - shown + 1))
    high = np.where(is_all, 1.0, scipy.stats.beta.ppf(1 - edge, shown + 1, np.where(is_all, 1, counts - shown)))
    return low, high


def _mean_log(ratios: Floats, other_ratios: Floats) -> float:
    """Averages over rankings the log of the largest ratio: of groups; ratios: (rankings, groups)."""
    largest = np.maximum(ratios.max(axis=1, initial=0.0), other_ratios.max())
    return float(np.log(np.maximum(largest, 1e-12)).mean())


# What shuffled groups and bootstrap samples of a ranking's items show of its shares.
#
# A picture may be several items: copies of one picture move together.


CELLS_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class Pictures:
    """Different pictures in rankings. `order` (rankings, pictures): their numbers, best first; `groups` (pictures,) in
    0 .. number - 1; `sizes` (pictures,): how many items each of them is."""

    order: Ints
    groups: Ints
    sizes: Ints
    number: int

    @staticmethod
    def of(order: Ints, groups: Ints, number: int, copies: Ints | None) -> Pictures:
        """`copies` (items,): items with equal numbers and groups are one picture, at the place of the first of them;
        None: every item is a picture of its own."""
        if copies is None:
            return Pictures(order, groups, np.ones(len(groups), np.int64), number)
        kinds, picture_of_item, sizes = np.unique(
            np.stack([copies, groups]), axis=1, return_inverse=True, return_counts=True
        )
        ranked = picture_of_item.ravel()[order]
        first_positions = [np.sort(np.unique(row, return_index=True)[1]) for row in ranked]
        rankings = np.array([row[first] for row, first in zip(ranked, first_positions, strict=True)], np.int64)
        return Pictures(rankings.reshape(len(order), kinds.shape[1]), kinds[1], sizes, number)

    @property
    def single(self) -> bool:
        return bool((self.sizes == 1).all())

    @property
    def items(self) -> int:
        return int(self.sizes.sum())

    @property
    def ideal(self) -> Floats:
        """The share of each group among all items."""
        return np.bincount(self.groups, self.sizes, self.number) / self.items

    @property
    def counts(self) -> Floats:
        """The number of pictures of each group; of unequal sizes, the number of equal ones that vary as much
        (Kish 1965)."""
        result: Floats = np.bincount(self.groups, self.sizes, self.number) ** 2 / np.bincount(
            self.groups, self.sizes**2, self.number
        )
        return result


def mean_max(ratios: Floats) -> Floats:
    """Averages the largest log ratio over rankings, from (..., rankings, groups) to (...,)."""
    result: Floats = largest_log(ratios).mean(axis=-1)
    return result


def largest_log(ratios: Floats) -> Floats:
    """Returns the log of the largest ratio, from (..., groups) to (...,)."""
    result: Floats = np.log(np.maximum(ratios.max(axis=-1), 1e-12))
    return result


def shuffled(pictures: Pictures, k: int, chance: Chance) -> Floats:
    """Returns the mean skew where pictures change places with one another, in all rankings alike, (permutations,).

    A picture takes its group and its copies along, so the shares of all items stay as they are.
    """
    random = np.random.default_rng(chance.seed)
    kinds, kind_of_picture = np.unique(np.stack([pictures.groups, pictures.sizes]), axis=1, return_inverse=True)
    kind, top = kind_of_picture.ravel().astype(np.int16), pictures.order[:, :k]  # k items are at most k pictures
    size = max(1, CELLS_AT_ONCE // max(top.size, len(kind)))
    parts = []
    for start in range(0, chance.permutations, size):
        permuted = random.permuted(np.tile(kind, (min(size, chance.permutations - start), 1)), axis=1)
        top_kinds = permuted[:, top]  # (permutations, rankings, pictures)
        groups = top_kinds if pictures.single else kinds[0].astype(np.int16)[top_kinds]
        counts = None if pictures.single else _kept(kinds[1][top_kinds], k)
        shares = np.stack([_share(groups == group, counts) for group in range(pictures.number)], axis=-1)
        parts.append(mean_max(shares / pictures.ideal))
    return np.concatenate(parts)


def resampled(pictures: Pictures, k: int, chance: Chance) -> Floats:
    """Computes the ratios f/f' of bootstrap samples of pictures, (resamples, rankings, groups)."""
    first = pictures.order[:, : _reach(pictures, k)]
    member, sizes = np.eye(pictures.number)[pictures.groups], pictures.sizes
    weights = bootstrap_weights(len(sizes), chance.resamples, chance.seed)
    ideal = weights @ (member * sizes[:, None]) / (weights @ sizes)[:, None]
    result = np.empty((len(weights), len(first), pictures.number))
    for row, ranked in enumerate(first):
        counts = _kept(weights[:, ranked] * sizes[ranked], k)
        result[:, row] = counts @ member[ranked] / counts.sum(axis=1, keepdims=True)
    return result / np.maximum(ideal, 0.5 / pictures.items)[:, None, :]


def _reach(pictures: Pictures, k: int) -> int:
    """Returns how many first pictures suffice for a sample's top k. Where they do not, its shares are of fewer."""
    if pictures.single:
        return min(len(pictures.sizes), int(k + 8 * np.sqrt(k) + 20))
    reached = np.cumsum(pictures.sizes[pictures.order], axis=1) >= k
    deepest = int(reached.argmax(axis=1).max(initial=0)) + 1
    return min(len(pictures.sizes), int(2 * deepest + 8 * np.sqrt(deepest) + 20))


def _kept(sizes: Floats | Ints, k: int) -> Floats:
    """Returns how many items of each picture are among the first k, from sizes (..., pictures) in the order of
    ranks."""
    preceding = np.cumsum(sizes, axis=-1) - sizes
    result: Floats = np.clip(k - preceding, 0, sizes)
    return result


def _share(is_member: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], counts: Floats | None) -> Floats:
    result: Floats = (
        is_member.mean(axis=-1) if counts is None else (is_member * counts).sum(axis=-1) / counts.sum(axis=-1)
    )
    return result


# MaxSkew@k averaged over several rankings of the same items, with its mean under chance, an interval and a p-value.
#
# The largest of several log ratios is above 0 on average in a ranking that ignores groups: an average over texts of
# such maxima is no evidence by itself.


LARGEST, HALVINGS = 64.0, 12
CAUTION = 0.5
"""The factor on the nominal error, so an interval of .95 is computed as one of .975: the deviations d that it scales
are themselves estimates, which the method ignores. Made as one of .95 it held the truth in .91 of samples where texts'
skews are near chance's (`bench/clip_bias_chance.py coverage`)."""


@dataclass(frozen=True)
class MeanSkew:
    """The mean skew with limits. `expected`: its mean where groups are shuffled; `expected_high`: the 95th percentile
    of shuffles; `p_value`: one-sided. `leads` (groups,): the number of rankings in which each group has the largest
    ratio, since rankings that lean in different directions have a positive mean too. `replicates` (resamples,): of
    bootstrap samples of items and of rankings; NaN where a group has few items, of which samples say nothing."""

    value: float
    low: float
    high: float
    expected: float
    expected_high: float
    p_value: float
    leads: Ints
    replicates: Floats


def mean_max_skew(
    order: Ints, groups: Ints, number: int, k: int, chance: Chance, copies: Ints | None = None
) -> MeanSkew:
    """Computes the mean over rankings of max over groups a of log(f_a / f'_a), f' the share over all items
    (`max_skew`).

    The p-value comes from shuffling groups over items, for all rankings together. For the interval, items are
    resampled, each with its place in every ranking; the deviations e* of the ratios f/f' from the observed ones, d, are
    the sampling error. Were the truth 1 + s * (d - 1), samples would show mean log max(1 + s * (d - 1) + e*): the
    interval has the s for which the observed mean is neither among the largest nor the smallest (1 - confidence)/2 of
    these, wider where a group has few items (`with_few`). Its lower end is 0 where s = 0 already explains it; its upper
    end is at least the observed mean, and what texts that all lean alike leave possible (`_if_all_lean_alike`). An
    image's places in several rankings are never taken for independent. It is the interval for these rankings;
    replicates, by which two models are compared on the same items, resample the rankings too (texts are a sample as
    items are: two trainings on data of one skew differ most by which text leans how far). Copies of a picture count in
    the shares, but are shuffled and resampled as one: ten copies are no more evidence than one.

    Args: order: (rankings, items) item numbers, best first; groups: (items,) in 0 .. number - 1, all items with one;
    k: 1 to items; chance; copies: (items,), equal numbers for copies of a picture. None: there are no copies.
    Returns: `MeanSkew`; NaN where a group has no item, or there is no ranking. 0: every top k has the ideal shares.
    Raises: ValueError for k out of range or shapes that do not fit.
    """
    _check(order, groups, k)
    counts = np.bincount(groups, minlength=number)
    if not len(order) or (counts == 0).any():
        return MeanSkew(*(np.nan,) * 6, np.zeros(number, np.int64), np.full(chance.resamples, np.nan))
    pictures = Pictures.of(order, groups, number, copies)
    ratios = np.eye(number)[groups][order[:, :k]].mean(axis=1) / pictures.ideal
    value = float(mean_max(ratios))
    null, samples = shuffled(pictures, k, chance), resampled(pictures, k, chance)
    limits = _interval(value, ratios, samples - ratios, null, chance.confidence)
    alike = _if_all_lean_alike(value, ratios, samples - ratios, pictures.ideal, chance.confidence)
    limits = limits[0], max(limits[1], alike)
    low, high = with_few(limits, ratios, (pictures.counts, pictures.ideal), k / len(groups), chance.confidence)
    p_value = float(upper_tail(np.array([value]), null[:, None])[0])
    times = bootstrap_weights(len(order), chance.resamples, chance.seed + 1)
    enough_items = bool((pictures.counts >= FEW).all())
    replicates = (
        (times * largest_log(samples)).sum(axis=-1) / len(order) if enough_items else np.full(len(times), np.nan)
    )
    leads = np.bincount(ratios.argmax(axis=1), minlength=number)
    return MeanSkew(
        value, low, high, float(null.mean()), float(np.quantile(null, 0.95)), p_value, leads, replicates
    )  # fmt: skip


def _check(order: Ints, groups: Ints, k: int) -> None:
    if order.ndim != 2 or order.shape[1] != len(groups):
        raise ValueError(f"order {order.shape} needs the {len(groups)} items of groups on its last axis")
    if len(groups) and not 1 <= k <= len(groups):
        raise ValueError(f"k = {k} must lie in 1 to {len(groups)}, the number of ranked items")


def _interval(value: float, ratios: Floats, noise: Floats, null: Floats, confidence: float) -> tuple[float, float]:
    edge = CAUTION * (1 - confidence) / 2

    def true(size: float) -> float:
        return float(mean_max(1 + size * (ratios - 1)))

    def above(size: float) -> float:
        simulated = mean_max(1 + size * (ratios - 1) + noise) if size else null
        return float((simulated >= value - 1e-12).mean())

    def below(size: float) -> float:
        simulated = mean_max(1 + size * (ratios - 1) + noise) if size else null
        return float((simulated <= value + 1e-12).mean())

    low = 0.0 if above(0.0) > edge else true(_crossing(lambda size: above(size) > edge))
    high = 0.0 if below(0.0) <= edge else true(_crossing(lambda size: below(size) <= edge))
    return min(low, value), max(high, value)


def _if_all_lean_alike(value: float, ratios: Floats, noise: Floats, ideal: Floats, confidence: float) -> float:
    """Returns the largest mean skew that could be, were one group as large at the top of every ranking.

    Few items in several rankings lean to and fro by chance. Scaled, such ratios vary less in the mean than ratios that
    all lean towards one group, and they never lean towards a group that chance has made rare at the top. So this truth,
    too, is refuted only where it makes a mean as small as the observed one unlikely, or a mean ratio of that group as
    small as the observed one.
    """
    edge, highest = CAUTION * (1 - confidence) / 2, 0.0
    means, observed = noise.mean(axis=1), ratios.mean(axis=0)
    for group, share in enumerate(ideal):
        direction = np.where(np.arange(len(ideal)) == group, 1.0, -share / (1 - share))

        def refuted(size: float, group: int = group, direction: Floats = direction) -> bool:
            skews = mean_max(1 + size * direction + noise)
            is_rarely_as_small = (skews <= value + 1e-12).mean() <= edge
            return bool(is_rarely_as_small or (1 + size + means[:, group] <= observed[group] + 1e-12).mean() <= edge)

        highest = max(highest, float(np.log(min(1 + _crossing(refuted), 1 / share))))
    return highest


def _crossing(reaches: Callable[[float], bool]) -> float:
    """Finds where `reaches`, false at 0, becomes true; at most `LARGEST`."""
    low, high = 0.0, 1.0
    while high < LARGEST and not reaches(high):
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return (low + high) / 2
