import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.metrics.pairwise import polynomial_kernel

from c2b_ray.stats import frechet_distance, kernel_distance

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
