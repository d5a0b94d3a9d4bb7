"""Error-aware mixtures, against scikit-learn's Gaussian mixture and planted slices."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from c2b_ray.stats.clustering import error_mixture


def blobs(random: np.random.Generator, centres: np.ndarray, each: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    of = np.repeat(np.arange(len(centres)), each)
    return centres[of] + random.normal(0, width, (len(of), centres.shape[1])), of


def test_without_weight_it_is_a_gaussian_mixture():
    random = np.random.default_rng(0)
    x, _ = blobs(random, random.normal(0, 3, (3, 5)), 80, 0.6)
    ours = error_mixture(x, np.zeros(240, bool), 3, weight=0.0)
    theirs = GaussianMixture(3, covariance_type="diag", random_state=0).fit(x)
    assert adjusted_rand_score(ours.assigned(x), theirs.predict(x)) > 0.98
    assert np.sort(ours.shares) == pytest.approx(np.sort(theirs.weights_), abs=0.02)


def test_answers_split_what_vectors_alone_do_not():
    """Two halves of a cloud, of which one fails: k-means would cut it along its longest axis, which is another."""
    random = np.random.default_rng(1)
    x = random.normal(0, 1, (400, 4)) * np.array([2.5, 1.0, 0.3, 0.3])
    fails = x[:, 1] > 0.6
    wrong = np.where(fails, random.random(400) < 0.8, random.random(400) < 0.05)
    aware, blind = (error_mixture(x, wrong, 2, weight=weight).assigned(x) for weight in (10.0, 0.0))
    assert max(np.mean((aware == k) == fails) for k in (0, 1)) > 0.8
    assert max(np.mean((blind == k) == fails) for k in (0, 1)) < 0.7


def test_images_are_assigned_by_their_vectors_alone():
    random = np.random.default_rng(2)
    x, _ = blobs(random, np.array([[0.0, 0], [4, 0]]), 50, 0.5)
    found = error_mixture(x, random.random(100) < 0.3, 2)
    new = np.array([[0.1, 0.1], [3.9, -0.1], [0.1, 0.1]])
    assert found.assigned(new)[0] == found.assigned(new)[2] != found.assigned(new)[1]


@pytest.mark.parametrize(
    ("vectors", "wrong", "more", "match"),
    [
        (np.zeros((3, 2)), [True, False], {"k": 1}, "must be finite"),
        (np.full((2, 2), np.nan), [True, False], {"k": 1}, "must be finite"),
        (np.zeros((2, 2)), [True, False], {"k": 3}, "k = 3"),
        (np.zeros((2, 2)), [True, False], {"k": 1, "weight": -1.0}, "weight"),
        (np.zeros((2, 2)), [True, False], {"k": 1, "axes": 0}, "axes"),
    ],
)
def test_wrong_input_is_refused(vectors, wrong, more, match):
    with pytest.raises(ValueError, match=match):
        error_mixture(vectors, wrong, **more)
