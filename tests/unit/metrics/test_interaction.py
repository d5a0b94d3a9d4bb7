import numpy as np
import pytest

from c2b_ray.metrics import bias_score_interval, interaction_interval, interaction_p_values, interactions

# Snow and rain down, day and night across, 10 images each: 0.9, 0.8 / 0.9, 0.3 right.
# Of snow at night the other three predict 0.8 + 0.9 - 0.9 = 0.8, so the interaction is 0.3 - 0.8 = -0.5; with two
# values each it is the difference of differences, and each cell's is that or its negative.
WORKED = [[9, 8], [9, 3]]
TEN = [[10, 10], [10, 10]]


def test_two_by_two_is_the_difference_of_differences():
    assert interactions(WORKED, TEN) == pytest.approx(np.array([[-0.5, 0.5], [0.5, -0.5]]))


def test_attributes_that_only_add_up_do_not_interact():
    additive = np.array([[90, 70, 50], [80, 60, 40]])
    found = interactions(additive, np.full((2, 3), 100))
    assert found == pytest.approx(np.zeros((2, 3)), abs=1e-12)
    assert interaction_p_values(additive, np.full((2, 3), 100)) == pytest.approx(np.ones((2, 3)))


def test_a_cell_alone_in_going_wrong_is_told_by_how_much():
    correct = np.full((3, 4), 90)
    correct[1, 2] = 40  # 0.9 is predicted for it from every other cell
    assert interactions(correct, np.full((3, 4), 100))[1, 2] == pytest.approx(-0.5)


def frame(correct, total):
    pandas = pytest.importorskip("pandas")
    rows = [
        {"a": i, "b": j, "right": float(k < correct[i, j])}
        for i, j in np.ndindex(correct.shape)
        for k in range(total[i, j])
    ]
    return pandas.DataFrame(rows)


def test_against_least_squares_with_an_interaction():
    """statsmodels' saturated model with sum contrasts has Scheffe's gamma as its interaction coefficients, also where
    the cells differ in size; its additive model over the other cells predicts the cell itself."""
    smf = pytest.importorskip("statsmodels.formula.api")
    rng = np.random.default_rng(3)
    total = rng.integers(5, 40, (3, 4))
    correct = rng.binomial(total, rng.uniform(0.2, 0.95, total.shape))
    found = interactions(correct, total)
    fitted = smf.ols("right ~ C(a, Sum) * C(b, Sum)", frame(correct, total)).fit()
    scale = 3 * 4 / (2 * 3)
    for i, j in np.ndindex(2, 3):  # the last row and column are what the others leave
        gamma = fitted.params[f"C(a, Sum)[S.{i}]:C(b, Sum)[S.{j}]"]
        assert found[i, j] == pytest.approx(gamma * scale)
    pandas = pytest.importorskip("pandas")
    means = pandas.DataFrame([{"a": i, "b": j, "A": correct[i, j] / total[i, j]} for i, j in np.ndindex(3, 4)])
    for i, j in np.ndindex(3, 4):
        own = (means.a == i) & (means.b == j)
        predicted = smf.ols("A ~ C(a) + C(b)", means[~own]).fit().predict(means[own]).item()
        assert found[i, j] == pytest.approx(means[own].A.item() - predicted)


def test_an_empty_cell_is_unknown_and_the_others_do_without_it():
    smf, pandas = pytest.importorskip("statsmodels.formula.api"), pytest.importorskip("pandas")
    correct, total = np.array([[9, 8, 7], [9, 3, 0], [5, 5, 5]]), np.array([[10, 10, 10], [10, 10, 0], [10, 10, 10]])
    found = interactions(correct, total)
    assert np.isnan(found[1, 2])
    assert np.isfinite(found).sum() == 8
    held = [{"a": i, "b": j, "A": correct[i, j] / 10} for i, j in np.ndindex(3, 3) if total[i, j]]
    means = pandas.DataFrame(held)
    own = (means.a == 1) & (means.b == 1)
    predicted = smf.ols("A ~ C(a) + C(b)", means[~own]).fit().predict(means[own]).item()
    assert found[1, 1] == pytest.approx(0.3 - predicted)


@pytest.mark.parametrize(
    "total",
    [[[10, 10], [10, 0]], [[10, 10]], [[0, 0], [0, 0]], [[10, 0], [0, 10]]],
    ids=["three cells", "one row", "nothing", "a diagonal"],
)
def test_where_nothing_says_what_to_expect_nothing_is_said(total):
    counts = np.array(total)
    for found in (
        interactions(counts, counts),
        interaction_p_values(counts, counts),
        *interaction_interval(counts, counts),
    ):
        assert found.shape == counts.shape
        assert np.isnan(found).all()
    assert interactions(np.zeros((0, 0)), np.zeros((0, 0))).shape == (0, 0)


def test_the_interval_s_large_sample_limit_is_the_binomial_variance():
    total = np.full((2, 3), 400_000)
    correct = np.array([[300_000, 200_000, 360_000], [240_000, 120_000, 100_000]])
    accuracy = correct / total
    low, high = interaction_interval(correct, total)
    gamma = np.array([[(k == 0) - 1 / 2] for k in range(2)]) * np.array([(j == 0) - 1 / 3 for j in range(3)])
    weights = gamma * 6 / 2  # a*b / ((a-1)(b-1)); gamma's own weights are a product of two centred indicators
    error = np.sqrt((weights**2 * accuracy * (1 - accuracy) / total).sum())
    assert (high - low)[0, 0] / 2 == pytest.approx(1.959964 * error, rel=1e-3)


def test_the_interval_has_its_coverage_and_excludes_tau_as_the_test_does():
    rng = np.random.default_rng(0)
    truth = np.array([[0.9, 0.8], [0.85, 0.35]])
    true, covered = 0.35 - (0.8 + 0.85 - 0.9), 0
    total = np.full((2, 2), 60)
    for _ in range(600):
        correct = rng.binomial(total, truth)
        low, high = interaction_interval(correct, total)
        covered += low[1, 1] <= true <= high[1, 1]
        beyond = (low > 0.05) | (high < -0.05)
        assert ((interaction_p_values(correct, total, 0.05) <= 0.05) == beyond).all()
    assert 0.93 <= covered / 600 <= 0.98


def test_every_image_right_is_no_certainty():
    low, high = interaction_interval([[5, 5], [5, 5]], [[5, 5], [5, 5]])
    assert (low < -0.2).all()
    assert (high > 0.2).all()
    assert (np.abs([low, high]) <= 2).all()


def test_with_a_second_attribute_that_does_nothing_it_is_wider_than_phi():
    low, high = interaction_interval(WORKED, TEN)
    phi_low, phi_high = bias_score_interval([9, 3], [10, 10])
    assert (high - low)[1, 1] > (phi_high - phi_low)[1]


def test_bad_counts_are_refused():
    with pytest.raises(ValueError, match="two axes"):
        interactions([1, 2], [3, 4])
    with pytest.raises(ValueError, match="cell"):
        interactions([[5]], [[4]])
    with pytest.raises(ValueError, match="tau"):
        interaction_p_values(WORKED, TEN, -1)
    with pytest.raises(ValueError, match="confidence"):
        interaction_interval(WORKED, TEN, 1.0)
