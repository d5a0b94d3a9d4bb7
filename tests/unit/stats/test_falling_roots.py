import numpy as np
import pytest
from scipy.optimize import brentq

from c2b_ray.stats.contrasts import contrast_interval, contrast_p_values
from c2b_ray.stats.roots import falling_root

# Right answers, images and weights of "house by day" in an audit of retrieved images (bench/audits.py).
RIGHT, IMAGES, WEIGHTS = [[382.62372, 234.3536, 378.64732]], [[385.40874, 397.44334, 378.64732]], [[1.0, -0.5, -0.5]]


def test_newton_s_method_that_swings_between_two_points_ends_at_the_root():
    # Of the arc tangent a step of Newton's method from more than 1.39 away leads farther away, to the other side.
    shifts = np.array([-50.0, -3.0, 0.0, 0.7, 20.0])

    def value(x):
        return np.arctan(shifts - x), -1 / (1 + (shifts - x) ** 2)

    assert falling_root(value, np.ones(5)) == pytest.approx(shifts, abs=1e-9)


def test_a_p_value_agrees_with_the_interval_where_the_search_for_accuracies_would_swing():
    # The interval lies .12 beyond τ, but the p-value was .23, and the finding was missed.
    low, high = contrast_interval(RIGHT, IMAGES, WEIGHTS, 0.999)
    assert 0.1 < low[0] < high[0] < 0.3
    assert contrast_p_values(RIGHT, IMAGES, WEIGHTS, 0.05)[0] < 1e-12
    nearby = np.array(RIGHT) + np.linspace(-1, 0.5, 31)[:, None] * [1, 0, 0]
    p = contrast_p_values(nearby, np.array(IMAGES), np.array(WEIGHTS), 0.05)
    assert (np.diff(p) < 0).all()  # the more right answers, the smaller


def test_p_values_reject_what_intervals_exclude_of_many_counts_near_one():
    random = np.random.default_rng(100_999)
    images = random.choice([60, 100, 200, 400, 600], (20_000, 1)) * random.uniform(0.85, 1, (20_000, 3))
    rates = np.where(random.random(images.shape) < 0.5, random.uniform(0.97, 1, images.shape), random.uniform(0.4, 1))
    right = images * np.where(random.random(images.shape) < 0.2, 1.0, rates)
    weights = np.broadcast_to([1.0, -0.5, -0.5], images.shape)
    low, high = contrast_interval(right, images, weights, 0.9)
    p = contrast_p_values(right, images, weights, 0.05)
    is_beyond = (low > 0.05 + 1e-6) | (high < -0.05 - 1e-6)
    assert is_beyond.sum() > 1000
    # 1 - 2 * α of the interval, and what the far end of the null adds
    assert (p[is_beyond] < 0.055).all()
    assert (p[~is_beyond] > 0.049).all()


def test_the_root_is_that_of_a_bracketing_search():
    def value(x):
        return 0.3 - 1 / (1 + np.exp(-x)), -np.exp(-x) / (1 + np.exp(-x)) ** 2

    expected = brentq(lambda x: 0.3 - 1 / (1 + np.exp(-x)), -10, 10)
    assert falling_root(value, np.ones(1)) == pytest.approx([expected], abs=1e-9)
