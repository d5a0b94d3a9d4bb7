"""Whether two estimates differ: by their bootstrap samples, or by their intervals where samples say little.

Knows estimates; knows nothing of what they measure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from c2b_ray.metrics.resampling import difference_of, independent_difference_of, normal_difference
from c2b_ray.metrics.scores import Floats

__all__ = ["SampledEstimate", "difference_of_estimates"]


@dataclass(frozen=True)
class SampledEstimate:
    """A statistic, its interval, and its values in bootstrap samples: all NaN where these say little of it."""

    value: float
    low: float
    high: float
    replicates: Floats

    @property
    def told(self) -> bool:
        return bool(np.isfinite(self.replicates).any())


def difference_of_estimates(
    a: SampledEstimate, b: SampledEstimate, confidence: float, margin: float = 0.0, *, paired: bool = True
) -> tuple[float, float, float]:
    """Computes the interval and two-sided p-value of a - b.

    By bootstrap samples (`resampling.difference_of`; of independent samples where not `paired`). Where those of either
    say little, by both intervals:

    low = a - b - sqrt((a - a_low)^2 + (b_high - b)^2),   high = a - b + sqrt((a_high - a)^2 + (b - b_low)^2)

    Zou & Donner 2008 (MOVER), for independent estimates; conservative for two that err alike, such as those of the same
    items. p is the normal one with the half-width towards the other estimate.

    Args: both estimates, with intervals of this confidence in (0, 1); margin: at least 0. p is of the hypothesis that
    they differ by no more than this.
    Returns: (low, high, p_value); NaN where either value is NaN.
    """
    values = (a.value, b.value)
    if a.told and b.told:
        difference = difference_of if paired else independent_difference_of
        return difference(a.replicates, b.replicates, values, confidence, margin)
    gap = a.value - b.value
    below = float(np.hypot(a.value - a.low, b.high - b.value))
    above = float(np.hypot(a.high - a.value, b.value - b.low))
    spread = (below if gap > 0 else above) / float(norm.ppf((1 + confidence) / 2))
    p_value = normal_difference(gap, spread, confidence, margin)[2]
    return (gap - below, gap + above, p_value) if np.isfinite(p_value) else (p_value, p_value, p_value)
