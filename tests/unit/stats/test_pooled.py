import math

import numpy as np
import pytest

from c2b_ray.stats import bias_score_interval, bias_scores, pooled_bias_scores


def test_one_class_is_its_own_phi_and_interval():
    found = pooled_bias_scores([[0.9, 0.6, 0.3]], [[50, 40, 60]], 0.0)
    assert found.phi == pytest.approx(bias_scores([45, 24, 18], [50, 40, 60]))
    low, high = bias_score_interval([45, 24, 18], [50, 40, 60])
    assert found.low == pytest.approx(low, abs=0.03)
    assert found.high == pytest.approx(high, abs=0.03)
    assert found.classes.tolist() == [1, 1, 1]


def test_a_hard_class_with_more_images_of_a_value_feigns_no_effect():
    # Within each class the two values are level; over the sums of both, .9*10+.5*90 against .9*90+.5*10.
    found = pooled_bias_scores([[0.9, 0.9], [0.5, 0.5]], [[10, 90], [90, 10]], 0.0)
    assert found.phi == pytest.approx([0.0, 0.0])


def test_weights_of_two_values_are_mantel_and_haenszels():
    # w = n1*n2/(n1+n2): 10*90/100 = 9 and 50*50/100 = 25; (9*.2 + 25*.4)/34
    found = pooled_bias_scores([[0.8, 0.6], [0.9, 0.5]], [[10, 90], [50, 50]], 0.0)
    assert found.phi == pytest.approx([(9 * 0.2 + 25 * 0.4) / 34, -(9 * 0.2 + 25 * 0.4) / 34])


def test_missing_cells_are_left_out_and_nothing_gives_nothing():
    found = pooled_bias_scores([[0.8, np.nan, 0.6], [np.nan, 0.5, np.nan]], [[10, 0, 10], [0, 10, 0]], 0.05)
    assert found.classes.tolist() == [1, 0, 1]
    assert found.phi[0] == pytest.approx(0.2)
    assert math.isnan(found.phi[1])
    assert math.isnan(found.p_value[1])
    assert np.isnan(pooled_bias_scores(np.zeros((0, 2)), np.zeros((0, 2))).phi).all()


@pytest.mark.long
def test_the_interval_covers_and_the_test_keeps_its_size():
    random = np.random.default_rng(11)
    truth, n = np.array([0.85, 0.80, 0.80]), random.integers(20, 80, (10, 3))
    base = random.uniform(-0.1, 0.1, (10, 1))
    inside, rejected = [], []
    for _ in range(300):
        found = pooled_bias_scores(random.binomial(n, truth + base) / n, n, 0.05)
        inside.append((found.low[0] <= 0.05) & (found.high[0] >= 0.05))
        rejected.append(found.p_value[0] <= 0.05)
    assert 0.93 <= np.mean(inside) <= 0.975
    assert np.mean(rejected) <= 0.075


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        pooled_bias_scores([[0.5, 0.5]], [[1, 2], [3, 4]])


def test_an_error_that_classes_share_does_not_average_out():
    # Ten classes of 400 images a value at .9: Var(phi_c) = 2 * .09/400 = .00045, of which the verifier's part is .0004.
    # Independent: SD = sqrt(.00045/10) = .0067. Shared: sqrt(.00005/10 + .0004) = .0201, three times as much.
    accuracy, images = np.full((10, 2), 0.9), np.full((10, 2), 400)
    apart = pooled_bias_scores(accuracy, images)
    shared = pooled_bias_scores(accuracy, images, shared=np.full((10, 2), 0.02))
    assert shared.phi == pytest.approx(apart.phi)
    assert (apart.high - apart.low)[0] == pytest.approx(2 * 1.96 * 0.0067, rel=0.03)
    assert (shared.high - shared.low)[0] == pytest.approx(2 * 1.96 * 0.0201, rel=0.05)


def test_weights_follow_the_images_counted_and_not_what_they_are_worth():
    # The second class's accuracies are worth a tenth of its images: the mean of .2 and .4 stays .3.
    accuracy, worth = [[0.9, 0.7], [0.8, 0.4]], [[100, 100], [10, 10]]
    assert pooled_bias_scores(accuracy, worth, counted=np.full((2, 2), 100)).phi[0] == pytest.approx(0.3)
    assert pooled_bias_scores(accuracy, worth).phi[0] == pytest.approx((0.2 * 10 + 0.4) / 11)
