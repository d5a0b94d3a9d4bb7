"""MaxSkew@k averaged over several rankings of the same items, with its mean under chance, an interval and a p-value.

Knows rankings and the groups of ranked items; knows nothing of texts or images. The largest of several log ratios is
above 0 on average in a ranking that ignores groups: an average over texts of such maxima is no evidence by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from c2b_ray.metrics.disparity import Chance
from c2b_ray.metrics.resampling import bootstrap_weights, upper_tail
from c2b_ray.metrics.scores import Floats, Ints
from c2b_ray.metrics.skew_few import FEW, with_few
from c2b_ray.metrics.skew_samples import Pictures, largest_log, mean_max, resampled, shuffled

__all__ = ["MeanSkew", "mean_max_skew"]

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
    these, wider where a group has few items (`with_few`). Its lower end is 0 where s = 0 already explains it; where
    chance alone gives more than is observed, its upper end is what is observed. An image's places in several rankings
    are never taken for independent. It is the interval for these rankings; replicates, by which two models are compared
    on the same items, resample the rankings too (texts are a sample as items are: two trainings on data of one skew
    differ most by which text leans how far). Copies of a picture count in the shares, but are shuffled and resampled
    as one: ten copies are no more evidence than one.

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
    null, drawn = shuffled(pictures, k, chance), resampled(pictures, k, chance)
    limits = _interval(value, ratios, drawn - ratios, null, chance.confidence)
    low, high = with_few(limits, ratios, (pictures.held, pictures.ideal), k / len(groups), chance.confidence)
    p_value = float(upper_tail(np.array([value]), null[:, None])[0])
    times = bootstrap_weights(len(order), chance.resamples, chance.seed + 1)
    told = bool((pictures.held >= FEW).all())
    replicates = (times * largest_log(drawn)).sum(axis=-1) / len(order) if told else np.full(len(times), np.nan)
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
        shown = mean_max(1 + size * (ratios - 1) + noise) if size else null
        return float((shown >= value - 1e-12).mean())

    def below(size: float) -> float:
        shown = mean_max(1 + size * (ratios - 1) + noise) if size else null
        return float((shown <= value + 1e-12).mean())

    low = 0.0 if above(0.0) > edge else true(_crossing(lambda size: above(size) > edge))
    high = 0.0 if below(0.0) <= edge else true(_crossing(lambda size: below(size) <= edge))
    return min(low, value), max(high, value)


def _crossing(reached: Callable[[float], bool]) -> float:
    """Finds where `reached`, false at 0, becomes true; at most `LARGEST`."""
    least, most = 0.0, 1.0
    while most < LARGEST and not reached(most):
        least, most = most, 2 * most
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (least, middle) if reached(middle) else (middle, most)
    return (least + most) / 2
