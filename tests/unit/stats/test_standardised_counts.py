import numpy as np
import pytest
from scipy.stats import chi2

from c2b_ray.stats.read_values import StandardisedCount, standardised_count, strata


def test_a_count_is_the_odds_of_each_stratum_times_its_images():
    # 100 images * 2/50 + 30 images * 4/10 = 4 + 12
    found = standardised_count([100, 30], [50, 10], [2, 4])
    assert found.value == pytest.approx(16)
    # (2 * 2 * 2 * (1 + 2/50)) + (3 * 3 * 4 * (1 + 4/10)), the variance of counts of weights 2 and 3
    assert found.variance == pytest.approx(8.32 + 50.4)
    assert found.limits()[0] < 16 < found.limits()[1]
    assert found.weight == 3  # 30 images for each of 10


def test_with_one_stratum_of_weight_one_limits_are_those_of_a_poisson_count():
    many = 1e9  # known images whose own count is certain
    for taken in (0, 1, 7, 40):
        low, high = standardised_count([many], [many], [taken]).limits(confidence=0.9)
        # Garwood (1936): half the 5 and 95 % quantiles of χ² with 2x and 2x + 2 degrees of freedom
        assert low == pytest.approx(chi2.ppf(0.05, 2 * taken) / 2 if taken else 0.0, abs=1e-6)
        assert high == pytest.approx(chi2.ppf(0.95, 2 * taken + 2) / 2, rel=1e-6)


def test_limits_hold_the_expected_count_as_often_as_they_say():
    random = np.random.default_rng(5)
    images, known, rates = np.array([300.0, 200, 100]), np.array([400, 60, 20]), np.array([0.01, 0.1, 0.3])
    expected = float((images * rates / (1 - rates)).sum())
    below = above = 0
    for _ in range(2000):
        taken = random.binomial(known, rates)
        low, high = standardised_count(images, known - taken, taken).limits(confidence=0.9)
        below, above = below + (high < expected), above + (low > expected)
    assert below <= 0.07 * 2000  # a gamma limit errs on the safe side on average, not with every rate
    assert above <= 0.07 * 2000


def test_no_known_image_taken_gives_no_lower_limit_and_an_upper_one():
    found = standardised_count([50.0], [100], [0])
    # -log(0.05) = 3.0 images (the rule of three), each worth 50 / 100
    assert found == pytest.approx((0, 0, 0.5))
    assert found.limits(0.9) == pytest.approx((0, -np.log(0.05) / 2))
    # of four times the known images each is worth a fourth
    assert found.limits(0.9, times=4) == pytest.approx((0, -np.log(0.05) / 8))


def test_limits_with_more_known_images_are_those_of_so_many():
    few, many = standardised_count([50, 20], [100, 10], [4, 1]), standardised_count([50, 20], [500, 50], [20, 5])
    assert few.limits(times=5) == pytest.approx(many.limits())


def test_limits_of_several_counts_are_those_of_each():
    counts = [standardised_count([50, 20], [100, 10], [4, 1]), standardised_count([5], [3], [0])]
    unknown = standardised_count([50, 1], [100, 0], [1, 0])
    nothing = StandardisedCount(*np.full(3, np.nan))
    together = StandardisedCount(*np.array([*counts, unknown, nothing]).T)
    low, high = together.limits(0.8)
    assert low.tolist() == pytest.approx([*(one.limits(0.8)[0] for one in [*counts, unknown]), np.nan], nan_ok=True)
    assert high.tolist() == pytest.approx([*(one.limits(0.8)[1] for one in counts), np.inf, np.nan], nan_ok=True)
    with pytest.raises(ValueError, match="times must be above 0"):
        together.limits(times=0)


def test_images_of_a_stratum_without_known_images_have_no_upper_limit():
    found = standardised_count([50, 1], [100, 0], [1, 0])
    assert found.value == 0.5
    assert found.limits()[1] == np.inf
    assert found.weight == np.inf


def test_nothing_in_question_is_nothing():
    for nothing in (standardised_count([0, 0], [10, 0], [3, 0]), standardised_count([], [], [])):
        assert nothing == (0, 0, 0)
        assert nothing.limits() == (0, 0)


@pytest.mark.parametrize("counts", [([1], [1, 2], [1]), ([-1], [1], [1]), ([1], [1], [-1]), ([[1]], [[1]], [[1]])])
def test_invalid_counts_are_refused(counts):
    with pytest.raises(ValueError, match="0 or more, of one shape"):
        standardised_count(*counts)


def test_strata_are_quantiles_of_the_images_that_leave_enough_known_ones():
    images = np.linspace(0, 1, 101)
    known = np.concatenate([np.linspace(0, 0.5, 100), np.linspace(0.5, 1, 15)[1:]])
    limits = strata(images, known, most=10, least=5)
    at = np.searchsorted(limits, known, side="right")
    assert np.bincount(at).min() >= 5
    # 14 known ones lie above .5, at .5 + k/28: none of the upper limits .9, .7 and .5 leaves 5 on both sides
    assert limits.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.6, 0.8])


def test_few_known_images_are_one_stratum():
    assert strata([0.1, 0.2, 0.3], [0.1] * 9, least=5).size == 0
    assert strata([], [0.1] * 90).size == 0
