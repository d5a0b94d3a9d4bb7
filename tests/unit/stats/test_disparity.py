"""KL of group means: its value, what chance gives, its interval, and both of these where images hold several scores."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from fairlearn.metrics import MetricFrame
from scipy.optimize import minimize
from scipy.stats import entropy
from sklearn.metrics import accuracy_score

from c2b_ray.stats import kl_from_uniform
from c2b_ray.stats.disparity import Chance, Scores, disparity, extreme_divergences, kl_of_rates

QUICK = Chance(permutations=300, resamples=50)


def drawn(rates, sizes, models, seed, captions=1, spread=0.0):
    """Right answers of several models on as many images, 1 to `captions` an image, which share its difficulty."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(rates)), sizes)
    chances = np.broadcast_to(np.array(rates)[groups], (models, len(groups)))
    if spread:
        a, b = chances * (1 - spread) / spread, (1 - chances) * (1 - spread) / spread
        chances = random.beta(a, b)
    counts = random.integers(1, captions + 1, chances.shape)
    return Scores(random.binomial(counts, chances).astype(float), counts.astype(float)), groups


def test_value_is_kl_of_the_groups_rates():
    random = np.random.default_rng(3)
    right, groups = random.random(90) < 0.6, random.integers(0, 3, 90)
    result = disparity(Scores(right[None] * 1.0, np.ones((1, 90))), groups, 3, QUICK)
    frame = MetricFrame(
        metrics=accuracy_score, y_true=np.ones(90, bool), y_pred=right, sensitive_features=groups
    ).by_group
    assert np.allclose(result.rates[0], frame.to_numpy(), rtol=0, atol=1e-12)
    assert result.value[0] == pytest.approx(entropy(frame.to_numpy(), np.ones(3)), abs=1e-12)
    assert result.value[0] == pytest.approx(kl_from_uniform(frame.to_numpy()), abs=1e-12)


def test_worked_values():
    assert kl_of_rates([[0.6, 0.4], [1, 0], [0, 0]]) == pytest.approx(
        [0.020135513550688863, np.log(2), np.nan], abs=1e-15, nan_ok=True
    )


def test_groups_alike_are_not_called_biased_though_kl_is_above_0():
    scores, groups = drawn([0.6, 0.6], [150, 40], 400, seed=1, captions=5, spread=0.3)
    result = disparity(scores, groups, 2, QUICK)
    assert (result.value > 0).all()
    assert result.value.mean() == pytest.approx(result.expected.mean(), rel=0.15)
    assert (result.p_value <= 0.05).mean() <= 0.085  # 400 draws of at most 0.05
    assert (result.low == 0).mean() >= 0.915


@pytest.mark.parametrize(
    ("rates", "sizes", "captions", "spread"),
    [([0.6, 0.4], [150, 50], 5, 0.4), ([0.9, 0.5], [30, 30], 1, 0.0), ([0.6, 0.5, 0.4], [100, 50, 30], 3, 0.2)],
)
def test_intervals_hold_the_true_value(rates, sizes, captions, spread):
    scores, groups = drawn(rates, sizes, 400, seed=2, captions=captions, spread=spread)
    result = disparity(scores, groups, len(rates), QUICK)
    true = float(kl_of_rates(rates))
    assert ((result.low <= true) & (true <= result.high)).mean() >= 0.92


@pytest.mark.parametrize(
    ("rates", "sizes"),
    [([0.25, 0.04], [200, 25]), ([0.08, 0.4], [20, 20]), ([0.08, 0.3, 0.2], [20, 60, 100])],
)
def test_a_group_of_few_images_that_are_all_wrong_may_have_a_higher_rate(rates, sizes):
    """Errors of the observed rates alone put the lower limit above the truth in .14 to .23 of samples."""
    scores, groups = drawn(rates, sizes, 400, seed=31)
    result = disparity(scores, groups, len(rates), QUICK)
    assert (result.low > float(kl_of_rates(rates))).mean() <= 0.04
    assert (result.low == 0)[result.p_value > 0.06].all()


def test_the_region_is_that_of_a_general_optimiser():
    random = np.random.default_rng(5)
    for _ in range(6):
        groups = int(random.integers(2, 5))
        rates = random.uniform(0.3, 0.8, groups)
        below, above = random.uniform(0.02, 0.1, (2, groups))
        ends = extreme_divergences(rates[None], (below[None], above[None]), np.array([4.0]))
        for sign, end in zip((1, -1), ends, strict=True):
            found = [
                minimize(
                    lambda t, sign=sign: sign * float(kl_of_rates(np.maximum(t, 0))),
                    rates + below * start,
                    constraints={
                        "type": "ineq",
                        "fun": lambda t, r=rates, e=(below, above): (
                            4.0 - (((t - r) / np.where(t > r, e[1], e[0])) ** 2).sum()
                        ),
                    },
                    bounds=[(0, None)] * groups,
                    options={"maxiter": 300, "ftol": 1e-12},
                ).fun
                * sign
                for start in random.normal(0, 1, (6, groups))
            ]
            best = min(found) if sign > 0 else max(found)
            assert end[0] == pytest.approx(best, abs=2e-4)


def test_images_without_a_value_or_a_score_are_left_out():
    totals, counts = np.array([[1.0, 0, 1, 0, 1, 0]]), np.array([[1.0, 1, 1, 1, 1, 0]])
    groups = np.array([0, 0, 1, 1, -1, 1])
    assert disparity(Scores(totals, counts), groups, 2, QUICK).rates.tolist() == [[0.5, 0.5]]
    absent = disparity(Scores(totals, counts), np.array([0, 0, 0, 0, -1, 0]), 2, QUICK)
    assert np.isnan([absent.value, absent.low, absent.high, absent.p_value]).all()


def test_scores_that_are_all_0_tell_nothing():
    scores = Scores(np.array([[0.0] * 9, [1.0, 2] * 4 + [3]]), np.ones((2, 9)))
    result = disparity(scores, np.array([0, 1, 2] * 3), 3, QUICK)
    assert np.isnan([result.value[0], result.low[0], result.p_value[0]]).all()
    assert np.isfinite([result.value[1], result.low[1], result.p_value[1]]).all()


def test_all_right_has_an_interval_that_is_no_point():
    result = disparity(Scores(np.ones((1, 40)), np.ones((1, 40))), np.repeat([0, 1], [30, 10]), 2, QUICK)
    assert (result.value[0], result.low[0], result.p_value[0]) == (0.0, 0.0, 1.0)
    assert result.high[0] > 0


@pytest.mark.parametrize("answered", [1, 2])
def test_a_p_value_that_permutations_cannot_count_is_not_far_below_the_exact_one(answered):
    """All three images of a small group fail, and so does one of 73 others: of all orders 4 / C(76, 3) are as far."""
    right = np.ones(76)
    right[[0, 73, 74, 75]] = 0
    groups = np.repeat([0, 1], [73, 3])
    scores = Scores(answered * right[None], np.full((1, 76), float(answered)))
    for seed in range(12):
        (p_value,) = disparity(scores, groups, 2, Chance(300, 50, seed)).p_value
        assert comb(4, 3) / comb(76, 3) * (1 - 1e-9) <= p_value < 0.01
