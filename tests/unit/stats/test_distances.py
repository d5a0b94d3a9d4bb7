"""Distances between sets of features, and similarity of embedding spaces."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import polynomial_kernel

from c2b_ray.stats import frechet_distance, kernel_distance
from c2b_ray.stats.distances import Moments, Sample, clustered_consistency, clustered_rate, space_similarity
from c2b_ray.stats.intervals import wilson_interval
from c2b_ray.stats.paired import error_consistency

RNG = np.random.default_rng(11)


def test_frechet_of_the_worked_example():
    # (0 - 1)^2 + 1 + 4 - 2 * sqrt(1 * 4) = 2
    assert frechet_distance(0, 1, 1, 4) == pytest.approx(2, abs=1e-12)
    assert frechet_distance([0.0], [1.0], [1.0], [[4.0]]) == pytest.approx(2, abs=1e-12)


def test_frechet_is_the_matrix_square_root_and_in_diagonal_case_a_sum():
    a, b = RNG.normal(size=(50, 6)), RNG.normal(size=(60, 6)) @ RNG.normal(size=(6, 6)) + 1
    s1, s2, m1, m2 = np.cov(a.T), np.cov(b.T), a.mean(axis=0), b.mean(axis=0)
    expected = ((m1 - m2) ** 2).sum() + np.trace(s1 + s2 - 2 * sqrtm(s1 @ s2).real)
    assert frechet_distance(m1, s1, m2, s2) == pytest.approx(expected, rel=1e-9)
    # diagonal: the sum of (sd1 - sd2)^2 = (1 - 2)^2 + (3 - 1)^2
    assert frechet_distance([0, 0], np.diag([1, 9]), [0, 0], np.diag([4, 1])) == pytest.approx(5)


def test_frechet_holds_for_singular_covariances():
    # fewer features than dimensions: eigenvalues of the product come out slightly negative or complex
    a = RNG.normal(size=(8, 40))
    s, m = np.cov(a.T), a.mean(axis=0)
    eigenvalues = np.linalg.eigvals(s @ s)
    assert (eigenvalues.real < 0).any() or np.iscomplexobj(eigenvalues)
    assert frechet_distance(m, s, m, s) == pytest.approx(0, abs=1e-5)
    assert frechet_distance(m, s, m + 1, 4 * s) == pytest.approx(40 + np.trace(s), rel=1e-6)  # (2 - 1)^2 tr(S)


def test_frechet_holds_where_a_real_eigenvalue_rounds_below_zero():
    # s = v v' has eigenvalues 0 and |v|^2; for about one v in ten the 0 comes out real and negative
    for v in np.stack(np.meshgrid(np.arange(1, 20), np.arange(1, 10)), axis=-1).reshape(-1, 2) / 10:
        s = np.outer(v, v)
        assert frechet_distance(v, s, 3 * v, 9 * s) == pytest.approx(8 * v @ v)  # |2v|^2 + (3 - 1)^2 |v|^2


@pytest.mark.parametrize(
    "moments", [([0, 0], np.eye(2), [0], [1]), ([0, 0], np.eye(3), [0, 0], np.eye(2)), (0, np.nan, 0, 1)]
)
def test_moments_that_do_not_fit_are_refused(moments):
    with pytest.raises(ValueError, match="mean"):
        frechet_distance(*moments)


def test_kernel_distance_of_the_worked_example_is_negative():
    # within: (0.2/2 + 1)^3 = 1 and (0/2 + 1)^3 = 1; across: (1 + 1 + 8 + 8)/4 = 4.5; 1 + 1 - 9
    assert kernel_distance([[0, 0], [2, 0]], [[1, 1], [1, -1]]) == pytest.approx(-7, abs=1e-12)


def unbiased(x, y):
    kxx, kyy, kxy = (polynomial_kernel(a, b, degree=3) for a, b in ((x, x), (y, y), (x, y)))  # gamma 1/d, coef0 1
    off = ~np.eye(len(x), dtype=bool)
    return kxx[off].mean() + kyy[off].mean() - 2 * kxy.mean()


def test_kernel_distance_is_scikit_learns_kernel_on_the_seeds_subsets():
    x, y = RNG.normal(size=(30, 5)), RNG.normal(size=(30, 5)) + 0.3
    assert kernel_distance(x, y) == pytest.approx(unbiased(x, y), rel=1e-10)
    rng = np.random.default_rng(4)
    subsets = [(rng.choice(30, 8, replace=False), rng.choice(30, 8, replace=False)) for _ in range(3)]
    expected = np.mean([unbiased(x[i], y[j]) for i, j in subsets])
    assert kernel_distance(x, y, subsets=3, subset_size=8, seed=4) == pytest.approx(expected, rel=1e-10)


def test_kernel_distance_cuts_subsets_to_the_smaller_set_and_repeats_itself():
    x, y = RNG.normal(size=(12, 3)), RNG.normal(size=(40, 3))
    assert kernel_distance(x, y) == kernel_distance(x, y, subset_size=12) == kernel_distance(x, y, seed=0)
    assert kernel_distance(x, y) != kernel_distance(x, y, seed=1)


def test_kernel_distance_is_zero_on_average_for_one_distribution():
    values = [kernel_distance(RNG.normal(size=(20, 4)), RNG.normal(size=(20, 4))) for _ in range(400)]
    assert abs(np.mean(values)) < 4 * np.std(values) / 20
    assert min(values) < 0


def test_kernel_distance_without_two_rows_or_with_shapes_that_do_not_fit():
    assert np.isnan(kernel_distance([[1.0, 2.0]], [[1.0, 2.0], [0.0, 1.0]]))
    assert np.isnan(kernel_distance(np.zeros((0, 2)), np.zeros((5, 2))))
    for x, y, more in (
        (np.zeros((5, 2)), np.zeros((5, 3)), {}),
        (np.zeros(5), np.zeros(5), {}),
        (np.zeros((5, 2)), np.zeros((5, 2)), {"subsets": 0}),
        (np.zeros((5, 2)), np.zeros((5, 2)), {"subset_size": 1}),
    ):
        with pytest.raises(ValueError, match=r"features|subset"):
            kernel_distance(x, y, **more)


def test_moments_of_parts_are_those_of_the_whole_far_from_zero():
    rows = np.random.default_rng(0).normal(1e4, 1.0, (500, 6)).astype(np.float32)
    moments = Moments(6)
    for part in np.array_split(rows, [1, 7, 300, 300]):
        moments.add(part)
    assert np.allclose(moments.mean, rows.astype(np.float64).mean(axis=0))
    assert np.allclose(moments.covariance, np.cov(rows.astype(np.float64), rowvar=False), atol=1e-9)


def test_a_sample_does_not_depend_on_order_or_parts():
    random = np.random.default_rng(1)
    rows, marks = random.normal(size=(300, 3)).astype(np.float32), random.permutation(300).astype(np.uint64)
    order = random.permutation(300)
    whole, cut = Sample(50, 3), Sample(50, 3)
    whole.add(rows, marks)
    for part in np.array_split(order, 7):
        cut.add(rows[part], marks[part])
    assert np.array_equal(whole.rows, cut.rows)
    assert np.array_equal(whole.rows, rows[np.argsort(marks)[:50]])


def test_similarity_of_the_vectors_of_all_pairs():
    random = np.random.default_rng(0)
    spaces = [random.normal(size=(50, width)) + 1 for width in (5, 7, 9)]
    vectors = [1 - pdist(space, "cosine") for space in spaces]
    found, centred = space_similarity(spaces), space_similarity(spaces, centred=True)
    for a in range(3):
        for b in range(3):
            lengths = np.linalg.norm(vectors[a]) * np.linalg.norm(vectors[b])
            assert found.value[a, b] == pytest.approx(vectors[a] @ vectors[b] / lengths, abs=1e-12)
            assert centred.value[a, b] == pytest.approx(np.corrcoef(vectors[a], vectors[b])[0, 1], abs=1e-9)


def test_narrow_cones_look_alike_until_they_are_centred():
    random = np.random.default_rng(1)
    cones = [random.normal(size=(80, 6)) * 0.1 + np.eye(6)[0] for _ in range(2)]
    assert space_similarity(cones).value[0, 1] > 0.99
    assert abs(space_similarity(cones, centred=True).value[0, 1]) < 0.2


def test_the_interval_holds_the_similarity_of_many_more_items():
    random = np.random.default_rng(2)

    def spaces(items):
        first = random.normal(size=(items, 4))
        return [first, first + random.normal(size=(items, 4))]

    true = space_similarity(spaces(1500)).value[0, 1]
    found = [space_similarity(spaces(60)) for _ in range(60)]
    assert np.mean([one.low[0, 1] <= true <= one.high[0, 1] for one in found]) >= 0.85


def test_items_without_a_direction_are_refused():
    with pytest.raises(ValueError, match="item 1 has an embedding without length"):
        space_similarity([np.array([[1.0, 0], [0, 0]])])


@pytest.mark.parametrize("mean", [0.3, 0.8])
def test_intervals_hold_the_rate_of_captions_that_differ(mean):
    random = np.random.default_rng(7)
    repeats, captions = 2000, 40
    rates = random.beta(4 * mean, 4 * (1 - mean), (repeats, captions))  # captions differ by .2 and more
    totals = random.integers(5, 60, (repeats, captions))
    estimate = clustered_rate(random.binomial(totals, rates), totals)
    held = (estimate.low <= mean) & (mean <= estimate.high)
    assert 0.93 <= held.mean() <= 0.97
    images = [
        wilson_interval(int(f), int(n))
        for f, n in zip(random.binomial(totals, rates).sum(1), totals.sum(1), strict=True)
    ]
    assert np.mean([low <= mean <= high for low, high in images]) < 0.6  # what taking images for independent would give


@pytest.mark.parametrize(("captions", "mean"), [(10, 0.3), (30, 0.3), (30, 0.05)])
def test_intervals_hold_the_rate_where_a_few_captions_have_most_images(captions, mean):
    """With the linearised variance and K - 1 degrees they held it in .80, .84 and .81."""
    random = np.random.default_rng(11)
    totals = np.maximum(1, 20 * np.exp(random.normal(0, 1.5, (2000, captions)))).astype(int)
    rates = random.beta(9 * mean, 9 * (1 - mean), totals.shape)
    estimate = clustered_rate(random.binomial(totals, rates), totals)
    held = (estimate.low <= mean) & (mean <= estimate.high)
    assert 0.92 <= held.mean() <= 0.98


@pytest.mark.parametrize(("captions", "mean"), [(10, 0.05), (30, 0.02), (30, 0.05), (100, 0.005), (100, 0.02)])
@pytest.mark.parametrize("sigma", [0.0, 1.2])
def test_intervals_hold_the_rate_where_few_captions_make_a_classifier_fail(captions, mean, sigma):
    """With the drawn captions alone they held it in .77 to .91."""
    random = np.random.default_rng(100_013)
    totals = np.maximum(1, 18 * np.exp(random.normal(0, sigma, (2000, captions)))).astype(int)
    rates = random.beta(7 / 3 * mean, 7 / 3 * (1 - mean), totals.shape)  # correlated by .3 within a caption
    failures = random.binomial(totals, rates)
    estimate = clustered_rate(failures, totals)
    held = (estimate.low <= mean) & (mean <= estimate.high)
    assert 0.9 <= held.mean() <= 0.995
    # A classifier that is rarely right is as one that rarely fails.
    mirrored = clustered_rate(totals - failures, totals)
    assert mirrored.low == pytest.approx(1 - estimate.high, abs=1e-9)
    assert mirrored.high == pytest.approx(1 - estimate.low, abs=1e-9)


def test_a_rate_of_images_with_a_caption_each_is_nearly_wilsons():
    failures = np.array([1] * 120 + [0] * 280)
    estimate = clustered_rate(failures, np.ones(400, int))
    assert (estimate.low, estimate.high) == pytest.approx(wilson_interval(120, 400), abs=1e-3)


def test_captions_that_all_agree_count_once_each_and_one_caption_says_nothing_of_others():
    estimate = clustered_rate([[0, 0, 0], [0, 0, 9]], [[100, 100, 100], [0, 0, 30]])
    assert (estimate.low[0], estimate.high[0]) == wilson_interval(0, 3)
    assert (estimate.low[1], estimate.high[1]) == wilson_interval(9, 30)
    assert np.isnan(clustered_rate([0], [0]).value)


def kappa_of(a: float, b: float, both: float, images: float) -> float:
    expected = a * b / images**2 + (1 - a / images) * (1 - b / images)
    return (1 - (a + b - 2 * both) / images - expected) / (1 - expected)


@pytest.mark.parametrize("rate", [0.02, 0.1])
def test_intervals_of_consistency_hold_it_where_few_captions_make_classifiers_fail(rate):
    """Both fail on the same captions, half of the time alike; the jackknife alone held kappa in .30 and .70."""
    random = np.random.default_rng(6)

    def drawn(runs, captions):
        a = random.beta(5 * rate, 5 * (1 - rate), (runs, captions))
        b = np.where(random.random(a.shape) < 0.5, a, random.beta(5 * rate, 5 * (1 - rate), a.shape))
        shares = np.stack([a * b, a * (1 - b), b * (1 - a), (1 - a) * (1 - b)], -1)
        both, one, other, _ = np.moveaxis(random.multinomial(10, shares), -1, 0)
        return both + one, both + other, both, np.full(a.shape, 10)

    kappa = kappa_of(*(counts.sum() for counts in drawn(1, 400_000)))
    estimate = clustered_consistency(*drawn(1000, 15))
    given = np.isfinite(estimate.low)
    assert ((estimate.low <= kappa) & (kappa <= estimate.high))[given].mean() >= 0.93
    assert (estimate.low < estimate.high)[given].all()


def test_consistency_is_that_of_all_images_and_its_interval_is_of_captions():
    random = np.random.default_rng(3)
    captions, images = 30, 40
    hard = random.random((captions, 1)) < 0.5  # captions on which both mostly fail: errors that captions explain
    a, b = (random.random((captions, images)) < np.where(hard, 0.8, 0.1) for _ in range(2))
    counts = [of.sum(axis=1) for of in (a, b, a & b, np.ones_like(a))]
    estimate = clustered_consistency(*counts)
    assert float(estimate.value) == pytest.approx(error_consistency(~a.ravel(), ~b.ravel()))
    whole = float(estimate.value)
    # The jackknife, written out.
    left = np.array(
        [error_consistency(~np.delete(a, k, 0).ravel(), ~np.delete(b, k, 0).ravel()) for k in range(captions)]
    )
    # One caption more of 40 images: with failures of both, and of one, as often as on the caption of a failure.
    of_a, of_b = ((x.mean(axis=1) ** 2).sum() / x.mean(axis=1).sum() * images for x in (a, b))
    least = min(of_a, of_b)
    moves = [
        kappa_of(a.sum() + more_a, b.sum() + more_b, (a & b).sum() + both, a.size + images) - whole
        for more_a, more_b, both in ((least, least, least), (of_a, 0, 0), (0, of_b, 0))
    ]
    unseen = moves[0] ** 2 + max(moves[1] ** 2, moves[2] ** 2)
    error = np.sqrt(29 / 30 * (((left - left.mean()) ** 2).sum() + unseen))
    assert float(estimate.high) == pytest.approx(whole + 2.0452 * error, abs=1e-4)  # t(.975, 29)


def test_intervals_of_consistency_hold_it_where_a_few_captions_have_most_images():
    """Two classifiers that fail independently but for the caption: kappa is known; K - 1 degrees held it in .87."""
    random = np.random.default_rng(5)
    totals = np.maximum(2, 15 * np.exp(random.normal(0, 1.2, (1500, 8)))).astype(int)
    hard = random.beta(1, 2, totals.shape)  # E[p] = 1/3, E[p^2] = 1/6
    both, one, other = random.multinomial(totals, np.stack([hard**2, *[hard * (1 - hard)] * 2, (1 - hard) ** 2], -1)).T[
        :3
    ]
    estimate = clustered_consistency((both + one).T, (both + other).T, both.T, totals)
    expected = 1 / 9 + 4 / 9
    kappa = (1 / 6 + 1 - 2 / 3 + 1 / 6 - expected) / (1 - expected)
    held = (estimate.low <= kappa) & (kappa <= estimate.high)
    assert held.mean() >= 0.94


def test_a_classifier_that_is_always_right_has_no_interval():
    estimate = clustered_consistency([[0, 0]], [[3, 1]], [[0, 0]], [[10, 10]])
    assert estimate.value[0] == 0
    assert np.isnan(estimate.low[0])
