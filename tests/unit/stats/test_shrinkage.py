import numpy as np
import pytest

from c2b_ray.stats import shrunken


def test_shrunken_estimates_of_the_selected_are_right_on_average_where_plain_ones_exceed():
    rng = np.random.default_rng(6)
    plain, drawn_in = [], []
    for _ in range(60):
        truth = np.where(rng.random(200) < 0.1, rng.normal(0, 0.2, 200), 0.0)
        error = rng.uniform(0.03, 0.08, 200)
        phi = truth + error * rng.standard_normal(200)
        estimate = shrunken(phi, error)
        assert (np.abs(estimate) <= np.abs(phi)).all()
        assert (estimate * phi >= 0).all()
        assert np.mean((estimate - truth) ** 2) < 0.5 * np.mean((phi - truth) ** 2)
        top = np.argsort(-np.abs(phi))[:10]
        plain.append(np.mean((np.abs(phi) - np.abs(truth))[top]))
        drawn_in.append(np.mean((np.sign(phi) * (estimate - truth))[top]))
    assert np.mean(plain) > 0.015
    assert abs(np.mean(drawn_in)) < 0.008


def test_a_large_effect_among_many_of_none_is_kept():
    phi = np.r_[0.4, np.random.default_rng(1).normal(0, 0.04, 99)]
    estimate = shrunken(phi, np.full(100, 0.04))
    assert estimate[0] > 0.36
    assert np.abs(estimate[1:]).max() < 0.06


def test_what_is_not_known_stays_so():
    np.testing.assert_array_equal(shrunken([np.nan, 0.2], [0.1, np.nan]), [np.nan, np.nan])
    assert shrunken([0.2], [0.0]).tolist() == [0.2]
    assert shrunken([], []).size == 0
    assert np.isfinite(shrunken([1.0, 0.0], [1e-4, 0.5])).all()
    with pytest.raises(ValueError, match="shape"):
        shrunken([0.1], [0.1, 0.2])
