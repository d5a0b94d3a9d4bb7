"""Computes from rates how many draws decide a hypothesis: how a race spends its draws, and what a run is expected to
cost.

It knows rates and evidence of hypotheses; not captions' texts, images, or who draws. The formulas are those of rare
failures, where only the ratio of rates and the proportion of draws matter; at high rates fewer draws suffice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats

LARGEST_RATIO = 200.0  # that is bet on
SLACK = 1.0  # of the logarithm of capital: what betting on a ratio costs that is not known beforehand


class Growth(NamedTuple):
    """The logarithm of capital that a draw of the caption, with its share of baseline draws, is expected to add."""

    shown: Floats  # to the evidence that it fails more often
    hopeless: Floats  # to the evidence that it is not worth drawing


def baseline_share(captions: int) -> float:
    """Returns the baseline draws per draw of a caption when `captions` captions of its label are drawn in equal
    numbers.

    For one caption, the total draws of both sides are near their minimum from 1.1 (ratio 2) to 1.7 (unbounded ratio).
    Several captions share their baseline, which makes it cheaper for each; but most captions of a race are given up,
    and their share of the baseline with them: in simulated races, slightly more than the share for one caption found
    more failures than a share that grows with the square root of their number.
    """
    return 1.3 * math.pow(max(captions, 1), 0.1)


def growth(rate: Floats, baseline_rate: Floats, share: Floats, worth: float) -> Growth:
    """Returns the growth for hypotheses with these rates, bet on at their own ratio if that is at least `worth`.

    With c baseline draws for each, and a bet on the ratio r, a failure of the caption multiplies the capital by r*(1 +
    c)/(r + c) and one of the baseline by (1 + c)/(r + c). Against "worth it", the bet is on r = 1: the factors are (w +
    c)/(w*(1 + c)) and (w + c)/(1 + c).
    """
    ratio = np.clip(np.divide(rate, np.maximum(baseline_rate, 1e-300)), worth, LARGEST_RATIO)
    up = rate * np.log(ratio * (1 + share) / (ratio + share))
    up = up + share * baseline_rate * np.log((1 + share) / (ratio + share))
    away = np.log((worth + share) / (1 + share))
    return Growth(up, rate * (away - np.log(worth)) + share * baseline_rate * away)


def draws_to_decide(to_gain: Growth, growing: Growth) -> Floats:
    """Returns the draws of the caption until one of the capitals has grown by `to_gain`; infinite where neither
    grows."""
    needed = [
        np.divide(gain, rate, out=np.full(rate.shape, np.inf), where=rate > 0)
        for gain, rate in zip(to_gain, growing, strict=True)
    ]
    soonest: Floats = np.minimum(*needed)
    return soonest


def expected_draws(
    rates: ArrayLike, baseline_rates: ArrayLike, share: float, threshold: float, worth: float = 2.0, risk: float = 0.05
) -> Floats:
    """Returns the draws of each caption until its hypothesis is decided, if these rates are the true ones.

    Args: rates, baseline_rates: floats in [0, 1] of one shape. share: baseline draws for each (`baseline_share`).
    threshold: the e-value that decides. worth, risk: as in `RaceTerms`.

    Returns: float64 of that shape; infinite where nothing ever fails.
    """
    p1, p0 = np.asarray(rates, dtype=np.float64), np.asarray(baseline_rates, dtype=np.float64)
    to_gain = Growth(np.full(p1.shape, np.log(threshold) + SLACK), np.full(p1.shape, np.log(1 / risk)))
    return draws_to_decide(to_gain, growth(p1, p0, np.full(p1.shape, share), worth))
