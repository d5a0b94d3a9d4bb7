"""Mann-Whitney: SciPy as the oracle, the paper's printed p-value, and ties."""

import numpy as np
import pytest
from scipy import stats

from c2b_ray.stats import mann_whitney


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_exact_without_ties_is_scipys(alternative):
    random = np.random.default_rng(0)
    for sizes in ((1, 1), (3, 7), (10, 10)):
        x, y = random.random(sizes[0]) + 0.2, random.random(sizes[1])
        expected = stats.mannwhitneyu(x, y, alternative=alternative, method="exact")
        test = mann_whitney(x, y, alternative)
        assert (test.u, test.p_value) == pytest.approx((expected.statistic, expected.pvalue))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_exact_with_ties_is_the_permutation_test(alternative):
    random = np.random.default_rng(1)
    x, y = random.integers(0, 3, 5).astype(float), random.integers(0, 3, 4).astype(float)

    def u(a, b, axis=-1):
        return stats.mannwhitneyu(a, b, axis=axis, method="asymptotic").statistic

    expected = stats.permutation_test((x, y), u, alternative=alternative, n_resamples=np.inf)
    assert mann_whitney(x, y, alternative).p_value == pytest.approx(min(1, expected.pvalue))


def test_the_papers_p_values_are_asymptotic():
    # Table 6: ten baseline runs without any failure, ten of the caption with some, two of those at the same rate.
    runs, baseline = [*range(1, 10), 9], np.zeros(10)
    printed = mann_whitney(runs, baseline, method="asymptotic")
    assert printed.p_value == pytest.approx(6.34e-5, rel=1e-4)
    assert mann_whitney(runs, baseline).p_value == pytest.approx(2 / 184756)  # 2/C(20, 10)
    six_zeros = [0] * 6 + [0.1, 0.2, 0.3, 0.4]
    other = mann_whitney(np.arange(1, 11), six_zeros, method="asymptotic")
    assert round(other.p_value, 5) == 0.00015


def test_all_equal_says_nothing():
    for method in ("exact", "asymptotic"):
        assert mann_whitney([0.0] * 10, [0.0] * 10, method=method)[:2] == (50.0, 1.0)


@pytest.mark.parametrize(("x", "words"), [([], "x must be"), ([np.nan], "x must be"), ([0.0] * 61, "asymptotic")])
def test_bad_values_are_named(x, words):
    with pytest.raises(ValueError, match=words):
        mann_whitney(x, [1.0])
