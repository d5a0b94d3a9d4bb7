import numpy as np
import pytest
from scipy.stats import nbinom

from c2b_ray.stats.read_values import StandardisedCount, rightly_refused, standardised_count, strata


def test_a_count_is_the_odds_of_each_stratum_times_its_images():
    # 100 images * 2/50 + 30 images * 4/10 = 4 + 12
    found = standardised_count([100, 30], [50, 10], [2, 4])
    assert found.value == pytest.approx(16)
    # (2 * 2 * 2 * (1 + 2/50)) + (3 * 3 * 4 * (1 + 4/10)), the variance of counts of weights 2 and 3
    assert found.variance == pytest.approx(8.32 + 50.4)
    # 100 * .04 * 1.04 + 30 * .4 * 1.4, the variance of the numbers themselves
    assert found.chance == pytest.approx(4.16 + 16.8)
    assert found.limits()[0] < 16 < found.limits()[1]
    assert found.weight == 3  # 30 images for each of 10


@pytest.mark.parametrize("images", [500, 5000])
@pytest.mark.parametrize("taken", [0, 1, 3, 10, 40])
def test_limits_of_one_stratum_are_those_of_the_negative_binomial_that_predicts_the_count(images, taken):
    known = 1000  # of a rate that is small: odds and rate are the same
    low, high = standardised_count([images], [known], [taken]).limits(confidence=0.9)
    # Of a Poisson rate that gave `taken` on `known` images, the number on others, by gamma priors of shape 0 and 1.
    each = 1 / (1 + images / known)
    assert low == pytest.approx(nbinom.ppf(0.05, taken, each) if taken else 0, abs=1, rel=0.02)
    assert high == pytest.approx(nbinom.ppf(0.95, taken + 1, each), abs=1, rel=0.02)


@pytest.mark.parametrize("share", [0.3, 1.0, 3.0])
def test_limits_hold_the_count_itself_as_often_as_they_say(share):
    random = np.random.default_rng(5)
    images, known, rates = np.array([300, 200, 100]), np.array([400, 60, 30]), np.array([0.05, 0.2, 0.6])
    below = above = 0
    for _ in range(2000):
        pool = random.binomial((share * images).astype(int), rates)
        taken = random.binomial(known, rates)
        refused = (share * images).astype(int) - pool
        low, high = standardised_count(refused, known - taken, taken).limits(confidence=0.9)
        below, above = below + (high < pool.sum()), above + (low > pool.sum())
    # a gamma limit errs on the safe side on average, not with every rate
    assert 0.01 * 2000 <= below <= 0.065 * 2000
    assert 0.01 * 2000 <= above <= 0.065 * 2000


def test_no_known_image_taken_gives_no_lower_limit_and_an_upper_one():
    found = standardised_count([5000.0], [100], [0])
    assert found == pytest.approx((0, 0, 50, 0))
    # -log(0.05) = 3.0 images (the rule of three), each worth 50
    assert found.limits(0.9) == pytest.approx((0, -np.log(0.05) * 50), rel=0.03)
    # of four times the known images each is worth a fourth
    assert found.limits(0.9, times=4) == pytest.approx((0, -np.log(0.05) * 50 / 4), rel=0.06)


def test_more_known_images_do_not_make_the_count_itself_certain():
    low, high = standardised_count([100], [100], [50]).limits(times=1e9)
    assert low == pytest.approx(50 - 1.96 * np.sqrt(75), abs=2)  # 50 * (1 + 50/100)
    assert high == pytest.approx(50 + 1.96 * np.sqrt(75), abs=2)


def test_missed_images_of_the_class_are_taken_out_of_those_that_were_refused():
    # 200 show the class, of which 160 were accepted and 40 missed; of 150 others 90 were accepted, as 3 of 5 known ones
    assert rightly_refused([60 + 40], [160 + 90], [40], [60], 0.8) == pytest.approx([60])
    # nothing was missed; none of the others was accepted; the class explains all refused images
    assert rightly_refused([100], [250], [40], [60], 1.0) == pytest.approx([100])
    assert rightly_refused([100], [160], [40], [0], 0.8) == pytest.approx([60])
    assert rightly_refused([30], [160], [40], [0], 0.8) == pytest.approx([0])
    # odds of 6 are more than the 4 at which nothing is left to solve; no known image was refused
    assert rightly_refused([100, 100], [160, 160], [10, 0], [60, 0], 0.8) == pytest.approx([100, 100])


def test_limits_with_more_known_images_are_those_of_so_many():
    few, many = standardised_count([50, 20], [100, 10], [4, 1]), standardised_count([50, 20], [500, 50], [20, 5])
    assert few.limits(times=5) == pytest.approx(many.limits())


def test_limits_of_several_counts_are_those_of_each():
    counts = [standardised_count([50, 20], [100, 10], [4, 1]), standardised_count([5], [3], [0])]
    unknown = standardised_count([50, 1], [100, 0], [1, 0])
    nothing = StandardisedCount(*np.full(4, np.nan))
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
        assert nothing == (0, 0, 0, 0)
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
