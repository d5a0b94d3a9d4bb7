"""Bets on one batch of draws: payoffs under which a caption that fails like its baseline gains nothing on average.

Knows the numbers of draws and failures of one batch; of earlier batches only the capital at stake.

Of a batch with n1 draws of a caption, n0 of its baseline and F failures in all, the caption's share of the failures,
f1, is Fisher's noncentral hypergeometric with w the odds ratio of the two rates: P(f1 = k | F) is in proportion to
C(n1, k) * C(n0, F - k) * w^k. It does not depend on the unknown rates. A payoff g(k) >= 0 that rises with k and has
E[g] = 1 at w = 1 has E[g] <= 1 at every w <= 1, because f1 tends to grow with w (its likelihood ratio is monotone).
Likewise one that falls with k and has E[g] = 1 at w has E[g] <= 1 at every larger w. Exactly, for Bernoulli draws, for
any n1 and n0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from c2b_ray.metrics.rates import Trials
from c2b_ray.metrics.scores import Floats, Ints

NEWTON_STEPS = 20
ENOUGH = 1 + 1e-9
"""The factor by which a capital may exceed its target, so that rounding cannot keep it below."""


@dataclass(frozen=True)
class Outcomes:
    """The possible numbers f1 in one batch of each of H hypotheses, given F: arrays (H, W), W the widest range."""

    failures: Floats
    log_chance: Floats  # of each under equal odds; -inf beyond a hypothesis's range
    observed: Ints  # (H,), which of them came

    @classmethod
    def of(cls, failed: Trials, baseline: Trials) -> Outcomes:
        together = failed.failures + baseline.failures
        low = np.maximum(together - baseline.draws, 0.0)
        high = np.minimum(together, failed.draws)
        ahead = np.arange(int((high - low).max(initial=0)) + 1, dtype=np.float64)
        possible = ahead <= (high - low)[:, None]
        k: Floats = low[:, None] + np.where(possible, ahead, 0.0)
        rest = together[:, None] - k
        sides = (k, failed.draws[:, None] - k, rest, baseline.draws[:, None] - rest)
        log_ways = np.where(possible, -sum(gammaln(side + 1) for side in sides), -np.inf)
        chance = log_ways - logsumexp(log_ways, axis=1, keepdims=True)
        return cls(k, chance, (failed.failures - low).astype(np.int64))

    def log_ratios(self, log_odds: Floats) -> Floats:
        """Returns log of P(k | odds ratio) / P(k | equal odds), (H, ratios, W), for log odds ratios (H, ratios)."""
        tilted = self.failures[:, None, :] * log_odds[:, :, None]
        total = logsumexp(tilted + self.log_chance[:, None, :], axis=2, keepdims=True)
        ratios: Floats = tilted - total
        return ratios

    def taken(self, values: Floats) -> Floats:
        """Returns the values at the observed outcomes: (H,) of (H, W)."""
        of_observed: Floats = np.take_along_axis(values, self.observed[:, None], axis=1)[:, 0]
        return of_observed


def payoffs(chance: Floats, fair: Floats, most: Floats, worthless: NDArray[np.bool_]) -> Floats:
    """Redistributes the payoffs of a fair bet: useless gains are moved to outcomes where gains are useful.

    A gain above `most` is useless, and so is any gain where the outcome is `worthless`. All other payoffs are raised by
    one factor, up to `most`, as far as a mean of 1 allows. Payoffs that rise (or fall) with the outcome still do where
    the worthless outcomes are at the lower (or upper) end.

    Args: chance: of each outcome, rows sum to 1, (H, W). fair: payoffs with mean 1, (H, W). most: (H,).
    Returns: float64 (H, W), with mean 1 at most.
    """
    useful = np.where(worthless, 0.0, fair)
    factor = np.ones(len(fair))
    for _ in range(NEWTON_STEPS):  # from below, of a concave function: it never passes 1
        raised = factor[:, None] * useful
        capped = raised >= most[:, None]
        mean = (chance * np.where(capped, most[:, None], raised)).sum(axis=1)
        slope = (chance * np.where(capped, 0.0, useful)).sum(axis=1)
        room = np.maximum(1 - mean, 0.0)
        factor = factor + np.divide(room, slope, out=np.zeros_like(room), where=(slope > 1e-12) & (room > 1e-12))
    paid: Floats = np.minimum(factor[:, None] * useful, most[:, None])
    return paid
