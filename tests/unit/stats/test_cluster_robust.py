from itertools import combinations

import numpy as np
import pytest
from scipy.stats import f_oneway

from c2b_ray.stats.clusters import (
    LEAST_DEGREES,
    _chi_squared_variance,
    cluster_correlation,
    cluster_design,
    with_other_variance,
)
from c2b_ray.stats.contrasts import Design, contrast_interval, contrast_none_p_values, contrast_p_values
from c2b_ray.stats.pooled import pooled_bias_scores

CONTRAST = np.array([[1.0, -1.0]])


def images(seed=0, n=200, clusters=8):
    """Cluster, cell and answer of each image."""
    random = np.random.default_rng(seed)
    return random.integers(0, clusters, n), random.integers(0, 2, n), (random.random(n) < 0.7).astype(float)


def by_cluster(cluster, cell, answer):
    cells = [[(cell == k) & (cluster == g) for g in range(cluster.max() + 1)] for k in range(2)]
    return [np.array([[f(at) for at in row] for row in cells]) for f in (lambda at: answer[at].sum(), np.sum)]


def dense(cluster, cell, answer):
    """Bell and McCaffrey's variance and degrees by the matrices of the regression on cells."""
    x = np.eye(2)[cell]
    inverse = np.linalg.inv(x.T @ x)
    hat, residual = x @ inverse @ x.T, answer - x @ inverse @ x.T @ answer
    adjusted = np.zeros((len(answer), cluster.max() + 1))
    for g in range(adjusted.shape[1]):
        at = cluster == g
        values, vectors = np.linalg.eigh(np.eye(at.sum()) - hat[np.ix_(at, at)])
        adjusted[at, g] = vectors @ np.diag(values**-0.5) @ vectors.T @ x[at] @ inverse @ CONTRAST[0]
    covariance = adjusted.T @ (np.eye(len(answer)) - hat) @ adjusted
    return ((adjusted.T @ residual) ** 2).sum(), np.trace(covariance) ** 2 / np.trace(covariance @ covariance)


def test_variance_and_degrees_are_those_of_the_regression_on_cells() -> None:
    sample = images()
    sums, n = by_cluster(*sample)
    design = cluster_design(sums, n, np.ones(2), CONTRAST)
    variance, degrees = dense(*sample)
    assert design.factor[0] * (1 / n.sum(axis=1)).sum() == pytest.approx(variance)
    assert design.degrees[0] == pytest.approx(degrees)


def test_with_many_clusters_the_variance_is_that_of_statsmodels() -> None:
    api = pytest.importorskip("statsmodels.api")
    cluster, cell, answer = images(n=40_000, clusters=2_000)
    fit = api.OLS(answer, np.eye(2)[cell]).fit(cov_type="cluster", cov_kwds={"groups": cluster})
    expected = float(fit.t_test(CONTRAST).sd[0, 0]) ** 2
    sums, n = by_cluster(cluster, cell, answer)
    design = cluster_design(sums, n, np.ones(2), CONTRAST)
    assert design.factor[0] * (1 / n.sum(axis=1)).sum() == pytest.approx(expected, rel=2e-3)


def test_each_image_as_its_own_cluster_is_an_independent_sample() -> None:
    answers = np.repeat([[1.0, 0.0]], 100, axis=0).ravel()
    sums, n = np.zeros((2, 400)), np.zeros((2, 400))
    sums[0, :200] = sums[1, 200:] = answers
    n[0, :200] = n[1, 200:] = 1
    design = cluster_design(sums, n, np.full(2, 0.25), CONTRAST)
    assert design.factor[0] == pytest.approx(200 / 199)
    assert design.degrees[0] == pytest.approx(398)  # of two samples of 200


def test_a_cell_of_one_cluster_tells_nothing() -> None:
    design = cluster_design([[5, 0, 0], [0, 5, 5]], [[10, 0, 0], [0, 10, 10]], np.full(2, 0.25), CONTRAST)
    assert design.degrees[0] == LEAST_DEGREES
    low, high = contrast_interval([5, 10], [10, 20], CONTRAST, design=design)
    assert low[0] < -0.9
    assert high[0] > 0.9
    assert contrast_p_values([10, 0], [10, 20], CONTRAST, design=design)[0] > 0.05


def test_a_design_never_makes_a_result_surer() -> None:
    counts = np.array([80.0, 60.0]), np.array([100.0, 100.0]), CONTRAST
    agreeing = Design(np.array([0.1]), np.array([30.0]))
    for test in (contrast_p_values, contrast_none_p_values):
        assert test(*counts, 0.05, agreeing) >= test(*counts, 0.05)
    assert contrast_interval(*counts, design=agreeing)[0] <= contrast_interval(*counts)[0]
    differing = Design(np.array([4.0]), np.array([6.0]))
    assert contrast_interval(*counts, design=differing)[1] > contrast_interval(*counts)[1] + 0.05


def test_the_test_and_the_interval_of_a_design_agree() -> None:
    design = Design(np.array([3.0]), np.array([5.0]))
    counts = np.array([85.0, 60.0]), np.array([100.0, 100.0]), CONTRAST
    p = float(contrast_p_values(*counts, design=design)[0])
    low, _ = contrast_interval(*counts, confidence=1 - p, design=design)
    assert low[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("clusters", "shown"), [(6, "one"), (20, "one"), (20, "both")])
def test_intervals_hold_where_clusters_differ(clusters: int, shown: str) -> None:
    """Ten images a cluster at an intraclass correlation of .2: images taken as independent hold .70 to .85 where each
    cluster shows one value."""
    random, runs = np.random.default_rng(1000), 1500
    rates = random.beta(0.8 * 4, 0.2 * 4, (runs, 1, clusters))
    value = np.arange(clusters) % 2 == np.arange(2)[:, None]
    n = np.broadcast_to(np.where(value, 20, 0) if shown == "one" else np.full(value.shape, 10), (runs, *value.shape))
    right = random.binomial(n, rates).astype(float)
    correct, total = right.sum(axis=2), n.sum(axis=2).astype(float)
    smooth = (correct + 0.5) / (total + 1)
    weights = np.broadcast_to(CONTRAST, (runs, 1, 2))
    design = cluster_design(right, n, smooth * (1 - smooth), weights)
    low, high = contrast_interval(correct[:, None], total[:, None], weights, design=design)
    assert 0.93 <= ((low <= 0) & (high >= 0)).mean() <= 0.985
    low, high = contrast_interval(correct[:, None], total[:, None], weights)
    if shown == "one":
        assert ((low <= 0) & (high >= 0)).mean() < 0.85


def test_pooling_sees_that_classes_share_clusters() -> None:
    """A cluster that does badly does so in all classes: four classes of the same images tell no more than one."""
    random = np.random.default_rng(1001)
    rates = random.beta(4, 1, 20)
    value = (np.arange(20) % 2 == np.arange(2)[:, None])[None]
    n = np.where(value, 10, 0) * np.ones((4, 1, 1), int)
    right = np.where(value, np.round(rates * 10), 0) * np.ones((4, 1, 1))
    rate, total = right.sum(axis=2) / n.sum(axis=2), n.sum(axis=2)
    shared = pooled_bias_scores(rate, total, clusters=(right, n))
    one = pooled_bias_scores(rate[:1], total[:1], clusters=(right[:1], n[:1]))
    assert shared.high - shared.low == pytest.approx(one.high - one.low, rel=0.05)
    assert (
        shared.high - shared.low > 1.5 * (pooled_bias_scores(rate, total).high - pooled_bias_scores(rate, total).low)
    ).all()


def test_other_parts_of_the_variance_are_added_once() -> None:
    """Clusters treble the variance of 1; captions make it 2 without them: 3 + 2 - 1 = 4 is twice the 2."""
    added = with_other_variance(Design(np.array([3.0]), np.array([5.0])), [1.0], [2.0])
    assert added.factor == pytest.approx(2.0)
    # Satterthwaite: 4^2 / (3^2 / 5), the captions' part taken as known
    assert added.degrees == pytest.approx(5 * (4 / 3) ** 2)


def test_without_other_parts_the_design_is_the_same() -> None:
    design = Design(np.array([0.3, 7.123, np.nan]), np.array([0.5, 11.7, np.nan]))
    same = with_other_variance(design, [0.1, 0.2, np.nan], [0.1, 0.2, np.nan])
    np.testing.assert_array_equal(same.factor, design.factor)
    np.testing.assert_array_equal(same.degrees, design.degrees)


def test_the_correlation_is_that_of_the_analysis_of_variance() -> None:
    random = np.random.default_rng(1002)
    answers = [(random.random(12) < rate).astype(float) for rate in random.beta(4, 1, 15)]
    rho, p = cluster_correlation([0] * 15, [a.sum() for a in answers], [12] * 15)
    expected = f_oneway(*answers)
    assert rho == pytest.approx((expected.statistic - 1) / (expected.statistic + 11))
    assert p == pytest.approx(expected.pvalue, rel=0.2)


def test_the_correlation_is_about_that_of_the_clusters() -> None:
    random = np.random.default_rng(1003)
    right = random.binomial(20, random.beta(0.7 * 9, 0.3 * 9, 4000))
    assert cluster_correlation(np.arange(4000) % 2, right, np.full(4000, 20))[0] == pytest.approx(0.1, abs=0.015)
    assert np.isnan(cluster_correlation([0], [5], [10])[0])


@pytest.mark.parametrize(("sizes", "right"), [((3, 1, 5, 4), 3), ((2, 2, 2, 6), 1), ((1, 9, 3), 5)])
def test_the_variance_is_that_of_all_ways_to_place_the_right_answers(sizes: tuple[int, ...], right: int) -> None:
    n, whole = np.array(sizes, float), sum(sizes)
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    ways = [np.bincount(cluster[list(at)], minlength=len(n)) for at in combinations(range(whole), right)]
    statistic = ((np.array(ways) ** 2 / n).sum(axis=1) - right**2 / whole) * whole**2 / (right * (whole - right))
    margins = (np.array([float(one)]) for one in (len(n), whole, right, (1 / n).sum()))
    assert _chi_squared_variance(*margins) == pytest.approx(statistic.var())


@pytest.mark.parametrize("accuracy", [(0.7, 0.7), (0.98, 0.98), (0.5, 0.99)])
def test_no_correlation_is_found_where_there_is_none(accuracy: tuple[float, float]) -> None:
    """Nor where clusters are small in the cell whose answers vary most: a pooled F test then finds one always."""
    random = np.random.default_rng(1004)
    cell, n = np.repeat([0, 1], 10), np.repeat([2, 100], 10)
    found = [cluster_correlation(cell, random.binomial(n, np.repeat(accuracy, 10)), n) for _ in range(4000)]
    rho, p = np.transpose(found)
    assert (p < 0.05).mean() <= 0.06
    assert (p < 0.01).mean() <= 0.02
    assert abs(np.nanmean(rho)) < 0.02


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"need sums and images \(..., cells, clusters\)"):
        cluster_design([[1, 2]], [[3, 4]], np.ones(2), CONTRAST)
    with pytest.raises(ValueError, match="need one shape"):
        cluster_correlation([0, 0], [1, 2], [3])
