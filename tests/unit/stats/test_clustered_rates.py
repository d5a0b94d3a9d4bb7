"""Failure rates of images in clusters against independent oracles, and by simulation."""

import numpy as np
import pytest
from scipy.stats import ttest_ind

from c2b_ray.stats.clusters import (
    ClusteredSides,
    Correlation,
    clustered_more_p_values,
    clustered_rate_ratios,
    clustered_rates,
)
from c2b_ray.stats.contrasts import contrast_interval
from c2b_ray.stats.rates import Trials, failure_rates, rate_ratios


def singles(own, others):
    """Images that are clusters of their own. `own`, `others`: (failures, images) of each side."""
    images = np.zeros((2, own[1] + others[1]))
    failures = images.copy()
    images[0, : own[1]], images[1, own[1] :] = 1, 1
    failures[0, : own[0]], failures[1, own[1] : own[1] + others[0]] = 1, 1
    return ClusteredSides.of(failures, images)


def test_clusters_of_one_image_are_independent_images():
    sides = singles((30, 200), (40, 400))
    rates, known = clustered_rates(sides), failure_rates([30, 40], [200, 400])
    assert rates.value == pytest.approx(known.value)
    assert np.concatenate(rates[1:]) == pytest.approx(np.concatenate(known[1:]), abs=0.006)
    ratio, expected = clustered_rate_ratios(sides), rate_ratios(Trials.of(30, 200), Trials.of(40, 400))
    assert [float(one) for one in ratio] == pytest.approx([float(one) for one in expected], rel=0.04)


def test_equal_clusters_are_tested_as_by_students_t():
    """Clusters of one side each and of one size: Bell and McCaffrey's variance is that of Welch's test."""
    random = np.random.default_rng(1000)
    own, others = random.binomial(50, random.beta(30, 20, 8)), random.binomial(50, random.beta(20, 30, 9))
    failures, images = np.zeros((2, 17)), np.zeros((2, 17))
    failures[0, :8], failures[1, 8:], images[0, :8], images[1, 8:] = own, others, 50, 50
    p = float(clustered_more_p_values(ClusteredSides.of(failures, images)))
    welch = ttest_ind(own / 50, others / 50, equal_var=False, alternative="greater").pvalue
    assert p == pytest.approx(welch, rel=0.4)
    assert p < 0.05
    assert float(clustered_more_p_values(ClusteredSides.of(failures[::-1], images[::-1]))) == pytest.approx(1 - p)


def test_an_effect_that_cameras_share_on_both_sides_does_not_hide_a_difference():
    """Each camera fails twice as often with the condition as without, whatever the camera."""
    others = np.array([2, 4, 8, 12, 20, 3, 6, 15.0])
    sides = ClusteredSides.of([2 * others, others], np.full((2, 8), 50))
    assert float(clustered_more_p_values(sides)) < 0.01
    assert float(clustered_rate_ratios(sides).low) < 1  # the limits do not know what both sides share


def test_a_side_of_one_cluster_tells_nothing():
    sides = ClusteredSides.of([[20, 0, 0], [0, 1, 2]], [[20, 0, 0], [0, 50, 50]])
    assert float(clustered_more_p_values(sides)) > 0.05
    assert sides.clusters.tolist() == [1, 2]
    rates = clustered_rates(sides)
    assert rates.high[0] - rates.low[0] > 0.6
    assert np.isinf(float(clustered_rate_ratios(sides).high)) or float(clustered_rate_ratios(sides).high) > 1


def test_no_images_on_a_side():
    sides = ClusteredSides.of([[0, 0], [1, 2]], [[0, 0], [10, 10]])
    assert float(clustered_more_p_values(sides)) == 1
    rates = clustered_rates(sides)
    assert np.isnan(rates.value[0])
    assert (rates.low[0], rates.high[0]) == (0, 1)
    ratio = clustered_rate_ratios(sides)
    assert (np.isnan(ratio.value), float(ratio.low), float(ratio.high)) == (True, 0.0, np.inf)


def test_the_correlation_of_more_images_moderates_the_variance():
    """Three cameras without failures say little of how much cameras differ. If 200 others have a correlation of .2, the
    300 images are worth about 3 * 100 / (1 + 99 * .2) = 14."""
    sides = ClusteredSides.of([[0, 0, 0, 0], [0, 0, 0, 9]], [[100, 100, 100, 0], [0, 0, 50, 50]])
    alone, moderated = clustered_rates(sides), clustered_rates(sides, known=Correlation(0.2, 200))
    assert alone.high[0] < 0.05
    few = contrast_interval([[0.0]], [[300 / 20.8]], [[1.0]])[1]
    assert moderated.high[0] == pytest.approx(float(few[0]), rel=0.05)
    # Where other images show no correlation, the 300 are as good as independent ones.
    assert clustered_rates(sides, known=Correlation(-0.1, 200)).high[0] == pytest.approx(
        failure_rates(0, 300).high, abs=0.005
    )


def test_no_difference_is_rejected_at_its_level():
    random = np.random.default_rng(1001)
    rates = random.beta(0.2 * 9, 0.8 * 9, (2000, 1, 12))
    n = np.where(np.arange(12) % 2 == np.arange(2)[:, None], 30, 0)
    p = clustered_more_p_values(ClusteredSides.of(random.binomial(n, rates), np.broadcast_to(n, (2000, 2, 12))))
    assert (p <= 0.05).mean() <= 0.06
    assert (p <= 0.05).mean() >= 0.015


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"one shape \(..., 2, clusters\)"):
        ClusteredSides.of([[1, 2]], [[3, 4]])
    with pytest.raises(ValueError, match="0 <= failures <= images"):
        ClusteredSides.of([[5], [0]], [[4], [4]])
