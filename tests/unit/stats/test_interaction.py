import numpy as np
import pytest

from c2b_ray.stats import (
    bias_score_interval,
    crossed,
    expected_accuracies,
    interaction_interval,
    interaction_none_p_values,
    interaction_p_values,
    interactions,
)

# Snow and rain down, day and night across, 10 images each: 0.9, 0.8 / 0.9, 0.3 right.
# Of snow at night the other three predict 0.8 + 0.9 - 0.9 = 0.8, so the interaction is 0.3 - 0.8 = -0.5; with two
# values each it is the difference of differences, and each cell's is that or its negative.
WORKED = [[9, 8], [9, 3]]
TEN = [[10, 10], [10, 10]]


def test_two_by_two_is_the_difference_of_differences():
    # Of rain by day they predict 0.8 + 0.9 - 0.3 = 1.4, which leaves 1.
    assert interactions(crossed(WORKED, TEN)) == pytest.approx(np.array([[0.9 - 1.0, 0.5], [0.5, -0.5]]))
    assert expected_accuracies(crossed(WORKED, TEN)) == pytest.approx(np.array([[1.0, 0.3], [0.4, 0.8]]))


def test_attributes_that_only_add_up_do_not_interact():
    additive = np.array([[90, 70, 50], [80, 60, 40]])
    found = interactions(crossed(additive, np.full((2, 3), 100)))
    assert found == pytest.approx(np.zeros((2, 3)), abs=1e-12)
    assert interaction_p_values(crossed(additive, np.full((2, 3), 100))) == pytest.approx(np.ones((2, 3)), abs=0.01)


def test_a_cell_alone_in_going_wrong_is_told_by_how_much():
    correct = np.full((3, 4), 90)
    correct[1, 2] = 40  # 0.9 is predicted for it from every other cell
    assert interactions(crossed(correct, np.full((3, 4), 100)))[1, 2] == pytest.approx(-0.5)


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
    correct = rng.binomial(total, rng.uniform(0.45, 0.65, total.shape))
    found = interactions(crossed(correct, total))
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
    found = interactions(crossed(correct, total))
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
        interactions(crossed(counts, counts)),
        interaction_p_values(crossed(counts, counts)),
        *interaction_interval(crossed(counts, counts)),
    ):
        assert found.shape == counts.shape
        assert np.isnan(found).all()
    assert interactions(crossed(np.zeros((0, 0)), np.zeros((0, 0)))).shape == (0, 0)


def test_the_interval_s_large_sample_limit_is_the_binomial_variance():
    total = np.full((2, 3), 400_000)
    correct = np.array([[300_000, 200_000, 280_000], [240_000, 120_000, 200_000]])
    accuracy = correct / total
    low, high = interaction_interval(crossed(correct, total))
    gamma = np.array([[(k == 0) - 1 / 2] for k in range(2)]) * np.array([(j == 0) - 1 / 3 for j in range(3)])
    weights = gamma * 6 / 2  # a*b / ((a-1)(b-1)); gamma's own weights are a product of two centred indicators
    error = np.sqrt((weights**2 * accuracy * (1 - accuracy) / total).sum())
    assert (high - low)[0, 0] / 2 == pytest.approx(1.959964 * error, rel=1e-3)


def test_the_interval_has_its_coverage_and_excludes_tau_as_the_test_does():
    rng = np.random.default_rng(1)
    truth = np.array([[0.9, 0.8], [0.85, 0.35]])
    true, covered = 0.35 - (0.8 + 0.85 - 0.9), 0
    total = np.full((2, 2), 60)
    for _ in range(60):
        correct = rng.binomial(total, truth)
        table = crossed(correct, total)
        low, high = interaction_interval(table)
        covered += low[1, 1] <= true <= high[1, 1]
        assert ((interaction_p_values(table) <= 0.05) == ((low > 0) | (high < 0))).all()
        within = interaction_none_p_values(table, 0.7)[1, 1] <= 0.025
        assert within == (low[1, 1] >= -0.7 and high[1, 1] <= 0.7)
    assert covered >= 52  # binomial: 1 in 200 below, were it 95 %


def test_every_image_right_is_no_certainty():
    low, high = interaction_interval(crossed([[5, 5], [5, 5]], [[5, 5], [5, 5]]))
    assert (low < -0.2).all()
    assert (high > 0.2).all()
    assert (np.abs([low, high]) <= 2).all()


def test_with_a_second_attribute_that_does_nothing_it_is_wider_than_phi():
    low, high = interaction_interval(crossed(WORKED, TEN))
    phi_low, phi_high = bias_score_interval([9, 3], [10, 10])
    assert (high - low)[1, 1] > (phi_high - phi_low)[1]


def test_bad_counts_are_refused():
    with pytest.raises(ValueError, match="two axes"):
        crossed([1, 2], [3, 4])
    with pytest.raises(ValueError, match="cell"):
        crossed([[5]], [[4]])
    with pytest.raises(ValueError, match="tau"):
        interaction_p_values(crossed(WORKED, TEN), -1)
    with pytest.raises(ValueError, match="confidence"):
        interaction_interval(crossed(WORKED, TEN), 1.0)


def test_a_cell_that_is_nearly_always_right_is_not_unfair_because_effects_add_up_beyond_one():
    """Both values are far better than the other two, and together they cannot be better still."""
    correct, total = np.array([[60, 198], [198, 199]]), np.full((2, 2), 200)
    table = crossed(correct, total)
    assert expected_accuracies(table)[1, 1] == 1.0  # 0.99 + 0.99 - 0.3 = 1.68
    assert interactions(table)[1, 1] == pytest.approx(-0.005)
    assert interaction_p_values(table, 0.05)[1, 1] == 1.0
    low, high = interaction_interval(table)
    assert -0.05 < low[1, 1] < -0.005 < high[1, 1] < 0
    assert interaction_p_values(table, 0.05)[0, 0] < 1e-9  # 30 % where 99 % is expected


def test_an_accuracy_within_tau_of_one_must_be_refuted_too():
    """18 of 20 right is no evidence of less than 95 %, though the rest of the table predicts 160 %."""
    p = interaction_p_values(crossed([[40, 190], [190, 18]], [[200, 200], [200, 20]]), 0.05)
    assert p[1, 1] > 0.1


def test_a_cell_aside_is_predicted_and_predicts_nothing():
    correct = np.full((3, 4), 90)
    correct[1, 2], correct[0, 2] = 40, 80
    aside = np.zeros((3, 4), bool)
    aside[1, 2] = True
    found = interactions(crossed(correct, np.full((3, 4), 100), aside))
    alone = interactions(crossed(correct, np.full((3, 4), 100)))
    assert found[1, 2] == pytest.approx(alone[1, 2])  # nor does it predict itself where it is not aside
    assert abs(found[0, 0]) < abs(alone[0, 0])
    pandas, smf = pytest.importorskip("pandas"), pytest.importorskip("statsmodels.formula.api")
    rows = [{"a": i, "b": j, "A": correct[i, j] / 100} for i, j in np.ndindex(3, 4) if not aside[i, j]]
    means = pandas.DataFrame([row for row in rows if (row["a"], row["b"]) != (0, 2)])
    predicted = smf.ols("A ~ C(a) + C(b)", means).fit().predict(pandas.DataFrame([{"a": 0, "b": 2}])).item()
    assert found[0, 2] == pytest.approx(0.8 - predicted)


def test_accuracies_that_err_together_count_as_fewer_images():
    total = np.full((2, 2), 100.0)
    apart = crossed(total * 0.8, total)
    variance = 0.8 * 0.2 / 100
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    together = crossed(total * 0.8, total, covariance=variance * (0.4 * np.outer(signs, signs) + 0.6 * np.eye(4)))
    fewer = crossed(total * 0.8 / 2.2, total / 2.2)  # the variance of the sum is 4 * 0.6 + 16 * 0.4 = 2.2 times 4
    low = interaction_interval(together)[0]
    assert low == pytest.approx(interaction_interval(fewer)[0])
    assert (low < interaction_interval(apart)[0]).all()


def test_the_size_of_the_test_at_the_edge_of_its_null():
    """One cell of 20 images against three of 200, exactly tau below what they predict: by simulation."""
    rng, tau, accuracy, images = np.random.default_rng(5), 0.05, 0.95, 20
    truth = np.array([[accuracy, accuracy], [accuracy, accuracy - tau]])
    total = np.array([[200, 200], [200, images]])
    tables = [crossed(rng.binomial(total, truth), total) for _ in range(400)]
    p = np.array([interaction_p_values(table, tau)[1, 1] for table in tables])
    assert (p <= 0.05).mean() <= 0.05 * 1.2 + 2 * np.sqrt(0.05 * 0.95 / 400)
    assert (p <= 0.001).sum() <= 2
