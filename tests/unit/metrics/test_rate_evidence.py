"""E-values of rates: exactly valid whatever decides the next batch, and worked by hand."""

import numpy as np
import pytest
from scipy.stats import binom

from c2b_ray.metrics import RateBatch, more_evidence, no_evidence


def every(n1, n0):
    """All outcomes of a batch: failures on either side."""
    return [side.ravel() for side in np.meshgrid(np.arange(n1 + 1), np.arange(n0 + 1))]


def chance(f1, n1, f0, n0, p1, p0):
    return binom.pmf(f1, n1, p1) * binom.pmf(f0, n0, p0)


def after_two(worth, p1, p0):
    """Expected e-values after two batches, the second one's sizes chosen by looking at the first, by enumeration."""
    f1, f0 = every(5, 7)
    of_first = chance(f1, 5, f0, 7, p1, p0)
    first = more_evidence(no_evidence(len(f1), worth), RateBatch.of(f1, f1 * 0 + 5, f0, f0 * 0 + 7))
    n1, n0 = np.where(f1 > 0, 6, 1), np.where(f0 > 0, 2, 5)  # more draws where it looks like a failure
    expected = np.zeros(2)
    for g1, g0 in zip(*every(6, 5), strict=True):
        possible = (g1 <= n1) & (g0 <= n0)
        batch = RateBatch.of(np.minimum(g1, n1), n1, np.minimum(g0, n0), n0)
        second = more_evidence(first, batch)
        weights = np.where(possible, of_first * chance(g1, n1, g0, n0, p1, p0), 0.0)
        expected += [weights @ second.e_values, weights @ second.hopeless_e_values]
    return expected


@pytest.mark.parametrize("p0", [1e-5, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_no_caption_as_good_as_its_baseline_is_expected_to_gain(p0, share):
    assert after_two(2.0, share * p0, p0)[0] <= 1 + 1e-12


@pytest.mark.parametrize(("p0", "p1"), [(1e-5, 2e-5), (0.01, 0.02), (0.3, 0.6), (0.4, 0.9), (0.0, 0.5)])
def test_no_caption_that_is_worth_it_is_expected_to_look_hopeless(p0, p1):
    assert after_two(2.0, p1, p0)[1] <= 1 + 1e-12
