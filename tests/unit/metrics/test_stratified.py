import math

import numpy as np
import pytest

from c2b_ray.metrics import stratified_differences


def test_worked_values():
    # Stratum 0: 8 of 10 right against 10 of 20; stratum 1: 3 of 30 against 2 of 10.
    #   w = 10*20/30, 30*10/40 = 20/3, 7.5;  gaps = 0.3, -0.1;  (2 - 0.75) / (85/6) = 0.0882
    #   overlap = (20/3 + 7.5) / (40*30/70)
    #   plain: 11/40 - 12/30;  noise: variances of 13/44 and 14/34 (two added to right and wrong), times 1/overlap - 1
    found = stratified_differences([[8, 3], [10, 2]], [[10, 30], [20, 10]])
    overlap = (85 / 6) / (1200 / 70)
    assert found.alike == pytest.approx([1.25 / (85 / 6), -1.25 / (85 / 6)])
    assert found.overlap == pytest.approx([overlap] * 2)
    assert found.plain == pytest.approx([-0.125, 0.125])
    variance = 13 / 44 * 31 / 44 / 40 + 14 / 34 * 20 / 34 / 30
    assert found.noise == pytest.approx([math.sqrt(variance * (1 / overlap - 1))] * 2)


def test_it_is_the_weighted_least_squares_coefficient():
    # An oracle: within strata, the regression of right answers on membership with a term for each stratum.
    random = np.random.default_rng(3)
    cell, stratum = random.integers(0, 3, 900), random.integers(0, 4, 900)
    right = random.random(900) < 0.4 + 0.2 * (cell == 1) + 0.1 * stratum
    total, correct = np.zeros((3, 4), int), np.zeros((3, 4), int)
    np.add.at(total, (cell, stratum), 1)
    np.add.at(correct, (cell, stratum), right)
    differences = stratified_differences(correct, total).alike
    for j in range(3):
        design = np.column_stack([cell == j, *(stratum == u for u in range(4))]).astype(float)
        expected = np.linalg.lstsq(design, right.astype(float), rcond=None)[0][0]
        assert differences[j] == pytest.approx(expected)


def test_what_the_strata_explain_is_gone_and_what_they_do_not_stays():
    total = np.array([[90, 10], [50, 50]])  # the first cell has few of the second stratum, where accuracy is 0.2
    explained = stratified_differences(total * [0.9, 0.2] // 1, total)
    assert explained.plain == pytest.approx([0.28, -0.28])
    assert explained.alike == pytest.approx([0, 0])
    assert (explained.overlap < 1).all()
    alone = stratified_differences(total.sum(1, keepdims=True) * [[0.6], [0.9]], total.sum(1, keepdims=True))
    assert alone.alike == pytest.approx([-0.3, 0.3])
    assert alone.overlap.tolist() == [1, 1]
    assert alone.noise.tolist() == [0, 0]


def test_noise_is_what_strata_that_mean_nothing_add():
    random, moved, noise = np.random.default_rng(1), [], []
    for _ in range(400):
        cell, stratum = random.integers(0, 2, 200), random.integers(0, 3, 200)
        correct, total = np.zeros((2, 3), int), np.zeros((2, 3), int)
        np.add.at(total, (cell, stratum), 1)
        np.add.at(correct, (cell, stratum), random.random(200) < 0.7)
        found = stratified_differences(correct, total)
        moved.append(found.plain[0] - found.alike[0])
        noise.append(found.noise[0])
    assert np.std(moved) == pytest.approx(np.sqrt(np.mean(np.square(noise))), rel=0.15)


def test_nothing_to_compare_with_is_nan_and_no_overlap():
    apart = stratified_differences([[5, 0], [0, 3]], [[10, 0], [0, 10]])
    assert np.isnan(apart.alike).all()
    assert apart.overlap.tolist() == [0, 0]
    assert np.isinf(apart.noise).all()
    one = stratified_differences([[5]], [[10]])
    assert math.isnan(one.alike[0])
    assert math.isnan(one.plain[0])
    assert stratified_differences(np.zeros((0, 2)), np.zeros((0, 2))).alike.shape == (0,)


@pytest.mark.parametrize(("correct", "total"), [([3], [5]), ([[3]], [[2]]), ([[1]], [[1, 2]])])
def test_bad_input_is_named(correct, total):
    with pytest.raises(ValueError, match=r"shape|cell \(0, 0\)"):
        stratified_differences(correct, total)
