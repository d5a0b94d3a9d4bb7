"""budget → the least rate at which a failure is likely to be found, said before anything is drawn.

A failure that happens at a rate r on images that show something, which a share s of a label's images show, is found
where three things come true, of which each is about rare events (Poisson):

    seen        one of the b baseline images that discovery draws of the label fails so       1 - exp(-b*r*s)
    promising   the caption that its description makes fails twice in c draws                 P(Poisson(c*r) >= 2)
    confirmed   its fresh draws, t of the caption, fail as often as the test requires         P(Poisson(t*r) >= k)

k is what `costs.expected_draws` takes at these rates, times r. That the captioner describes the failing image rightly,
and that no other failure takes the draws, is taken for granted: so this is the most that a budget promises. Simulated,
a test decides in time as often as is said where that is four times in five.
It knows rates and numbers of draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import poisson

from c2b_ray.metrics.scores import Floats
from c2b_ray.steps.discovery.costs import baseline_share, expected_draws

__all__ = ["POWER", "Reach", "least_rate"]

POWER = 0.8
TWICE = 2
_HALVINGS = 60


@dataclass(frozen=True)
class Reach:
    """Draws of a run for one failure of each label.

    seen: baseline images of a label that discovery looks for failures among; None where the config has the captions, so
    that none has to be discovered. screened: of one caption in discovery. tested: of a caption and its baseline
    together on fresh seeds. hypotheses: that share the false discovery rate alpha.
    """

    seen: float | None
    screened: float
    tested: float
    hypotheses: int
    alpha: float = 0.05

    def power(self, rates: ArrayLike, share: float) -> Floats:
        """The probability that a failure is found, float64 of the shape of `rates`, each in (0, 1].

        share: in (0, 1), of the label's images show what the failure needs.
        """
        r = np.asarray(rates, np.float64)
        each = baseline_share(1)
        needed = expected_draws(r, r * share, each, self.hypotheses / self.alpha) * r
        tested = poisson.sf(np.ceil(np.where(np.isfinite(needed), needed, 0)) - 1, self.tested / (1 + each) * r)
        confirmed = np.where(np.isfinite(needed), tested, 0.0)
        promising = poisson.sf(TWICE - 1, self.screened * r)
        seen = 1.0 if self.seen is None else -np.expm1(-self.seen * r * share)
        probability: Floats = seen * promising * confirmed
        return probability


def least_rate(reach: Reach, share: float, power: float = POWER) -> float | None:
    """The least rate that is found with probability `power`; None where even what always fails is not.

    share, in (0, 1): as `Reach.power`. By bisection: the power grows with the rate, but for steps of whole failures.
    """
    if reach.power(1.0, share) < power:
        return None
    low, high = -12.0, 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reach.power(10**middle, share) >= power else (middle, high)
    return float(10**high)
