"""Arguments of tests and intervals: margins and levels, checked, and levels as normal deviates."""

import numpy as np
from scipy.special import ndtri

MOST_DEVIATIONS = 40.0  # 2 * ndtr(-40) is 0 in float64: no p-value lies further out


def checked_margin(tau: float) -> float:
    if not 0 <= tau < np.inf:
        raise ValueError(f"tau = {tau} must be finite and 0 or more")
    return float(tau)


def checked_levels(**levels: float) -> None:
    for name, level in levels.items():
        if not 0 < level < 1:
            raise ValueError(f"{name} = {level} must lie strictly between 0 and 1")


def deviations(confidence: float) -> float:
    """Returns how many standard deviations an interval of that confidence reaches to either side."""
    checked_levels(confidence=confidence)
    return float(-ndtri((1 - confidence) / 2))
