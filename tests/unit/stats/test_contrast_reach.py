import numpy as np
import pytest
from scipy.stats import chi2

from c2b_ray.stats import contrast_reach


def test_squares_of_deviations_add_each_end_from_the_ends_of_the_estimates():
    # φ_0 = a_0 - (a_1 + a_2)/2: below it lie a_0 below and the others above
    below, above = contrast_reach([[1, -0.5, -0.5]], [0.1, 0.2, 0.0], [0.3, 0.04, 0.06])
    assert below == pytest.approx([np.sqrt(0.1**2 + 0.02**2 + 0.03**2)])
    assert above == pytest.approx([np.sqrt(0.3**2 + 0.1**2 + 0.0**2)])
    assert [side.tolist() for side in contrast_reach([[np.nan, 1.0]], [0.5, 0.0], [0.5, 0.0])] == [[0.0], [0.0]]


def test_limits_hold_a_difference_of_skewed_estimates_as_often_as_they_say():
    """Rates of rare events, whose limits (Garwood's) lie far from the middle: λ_0 - λ_1 from one count each."""
    random, true = np.random.default_rng(4), np.array([3.0, 8.0])
    counts = random.poisson(true, (4000, 2))
    low, high = chi2.ppf(0.05, 2 * np.maximum(counts, 1e-9)) / 2, chi2.ppf(0.95, 2 * counts + 2) / 2
    below, above = contrast_reach([[1.0, -1.0]], counts - low, high - counts)
    estimate = (counts @ np.array([[1.0], [-1.0]]))[:, 0]
    held = (estimate - below[:, 0] <= -5) & (estimate + above[:, 0] >= -5)
    assert 0.89 <= held.mean() <= 0.96  # Garwood's limits are on the safe side
