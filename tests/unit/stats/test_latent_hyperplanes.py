"""Hyperplanes of labelled latents: their normals, their balanced accuracy, and how far they may be off."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.stats.latent import fit_hyperplane

RNG = np.random.default_rng(3)


def labelled(count: int, noise: float, dimension: int = 6, above: float = 0.0):
    z = RNG.normal(size=(count, dimension))
    return z, z @ np.arange(1.0, dimension + 1) + noise * RNG.normal(size=count) > above


def test_the_normal_is_that_of_the_labels_and_says_on_which_side_they_are():
    z, y = labelled(3000, 1.0)
    plane = fit_hyperplane(z, y, seed=0)
    truth = np.arange(1.0, 7) / np.linalg.norm(np.arange(1.0, 7))
    assert plane.normal @ truth > 0.99
    assert np.linalg.norm(plane.normal) == pytest.approx(1)
    assert plane.accuracy_low <= plane.accuracy <= plane.accuracy_high
    assert plane.accuracy > 0.9
    assert plane.count == 3000
    assert np.arccos(plane.normal @ truth) < plane.angle < 0.1


def test_fewer_latents_leave_more_doubt():
    angles = [fit_hyperplane(*labelled(count, 1.0), seed=0).angle for count in (200, 3000)]
    assert angles[0] > 2 * angles[1]


def test_an_attribute_that_nearly_all_images_have_gets_no_accuracy_for_saying_yes():
    z = RNG.normal(size=(1000, 4))
    y = RNG.random(1000) < 0.95
    assert 0.4 < fit_hyperplane(z, y, seed=0).accuracy < 0.65


def test_a_shifted_latent_space_changes_the_offset_alone():
    z, y = labelled(800, 1.0)
    here, there = fit_hyperplane(z, y, seed=0), fit_hyperplane(z + 100, y, seed=0)
    np.testing.assert_allclose(there.normal, here.normal, atol=1e-6)
    assert there.offset == pytest.approx(here.offset - 100 * here.normal.sum(), abs=1e-3)


@pytest.mark.parametrize(
    ("z", "y", "why"),
    [
        (np.zeros((9, 2)), np.ones(9), "all 9 latents have one value"),
        (RNG.normal(size=(9, 2)), np.arange(9) == 0, "label more"),
        (np.full((9, 2), np.nan), np.arange(9) % 2, "not finite"),
        (np.zeros((30, 2)), np.arange(30) % 2, "alike in every coordinate"),
        (np.zeros((9, 2)), np.ones(8), "belong together"),
    ],
)
def test_what_has_no_hyperplane_says_why(z, y, why):
    with pytest.raises(ValueError, match=why):
        fit_hyperplane(z, y, seed=0)
