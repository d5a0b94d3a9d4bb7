"""Computes from a budget the least rate at which a failure is likely to be found, before anything is drawn.

A failure that occurs at a rate r on images with a certain content, which a share s of a label's images have, is found
where three conditions hold, each about rare events (Poisson):

    seen         one of the b baseline images that discovery draws of the label fails this way     1 - exp(-b*r*s)
    promising    the caption made from its description fails twice in c draws                      P(Poisson(c*r) >= 2)
    confirmed    its fresh draws, t of the caption, fail as often as the test requires             P(Poisson(t*r) >= k)

k is `costs.expected_draws` at these rates, times r. It is assumed that the captioner describes the failing image
correctly, and that no other failure takes the draws: so this is an upper limit of what a budget achieves. In
simulations, a test decides in time as often as computed where that is four times in five.

It knows rates and numbers of draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import poisson

from c2b_ray.metrics.scores import Floats
from c2b_ray.steps.discovery.costs import baseline_share, expected_draws

__all__ = ["COMMON_RATE", "POWER", "Reach", "least_rate"]

POWER = 0.8
TWICE = 2
COMMON_RATE = 0.01
"""The bare prompt's failure rate for which people are told what a caption of the smallest ratio takes."""
_HALVINGS = 60


@dataclass(frozen=True)
class Reach:
    """A run's draws for one failure of each label.

    seen: baseline images of a label among which discovery looks for failures; None where the config has the captions,
    so that none has to be discovered. screened: draws of one caption in discovery. tested: draws of a caption and its
    baseline together on fresh seeds. hypotheses: the number that share the false discovery rate alpha. worth: the least
    ratio of rates that is searched for.
    """

    seen: float | None
    screened: float
    tested: float
    hypotheses: int
    alpha: float = 0.05
    worth: float = 2.0

    def power(self, rates: ArrayLike, share: float) -> Floats:
        """Returns the probability that a failure is found, float64 of the shape of `rates`, each in (0, 1].

        share, in (0, 1): the share of the label's images that show what the failure needs. The caption then fails
        1/share times as often as the baseline; where that is less than `worth`, it is given up.
        """
        if share * self.worth > 1:
            return np.zeros(np.shape(rates))
        r = np.asarray(rates, np.float64)
        each = baseline_share(1)
        needed = expected_draws(r, r * share, each, self.hypotheses / self.alpha, self.worth) * r
        tested = poisson.sf(np.ceil(np.where(np.isfinite(needed), needed, 0)) - 1, self.tested / (1 + each) * r)
        confirmed = np.where(np.isfinite(needed), tested, 0.0)
        promising = poisson.sf(TWICE - 1, self.screened * r)
        seen = 1.0 if self.seen is None else -np.expm1(-self.seen * r * share)
        probability: Floats = seen * promising * confirmed
        return probability

    def draws_to_confirm(self, baseline_rate: float) -> float:
        """Returns the draws, baseline's included, that are expected to confirm a caption that fails `worth` times as
        often as a baseline with this rate, in (0, 1).

        In simulated races of one caption and of three it takes .7 to 1 times as many on average.
        """
        each = baseline_share(1)
        rate = min(1.0, self.worth * baseline_rate)
        needed = expected_draws([rate], [baseline_rate], each, self.hypotheses / self.alpha, self.worth)
        return float(needed[0] * (1 + each))


def least_rate(reach: Reach, share: float, power: float = POWER) -> float | None:
    """Returns the least rate that is found with probability `power`; None where not even a rate of 1 is.

    share, in (0, 1): as in `Reach.power`. By bisection: the power grows with the rate, except for steps of whole
    failures.
    """
    if reach.power(1.0, share) < power:
        return None
    low, high = -12.0, 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reach.power(10**middle, share) >= power else (middle, high)
    return float(10**high)
