"""Clusters of embeddings that fail alike, found on one half of the images."""

from __future__ import annotations

import numpy as np

from c2b_ray.audits.c2b.finding import slices_of


def planted(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    fog = random.random(500) < 0.25
    vectors = random.normal(0, 1, (500, 12)).astype(np.float32)
    vectors[:, 0] += 4 * fog
    wrong = np.where(fog, random.random(500) < 0.6, random.random(500) < 0.07)
    return vectors, random.random(500) < 0.5, wrong, fog


def test_the_failing_cluster_is_the_first_and_holds_the_other_halfs_images():
    vectors, finding, wrong, fog = planted(0)
    places = slices_of(vectors, finding, wrong, "bus", 0)
    first = (places == 0) & ~finding
    assert first.sum() > 12  # a twentieth of the half
    assert fog[first].mean() > 0.9


def test_answers_of_the_tested_half_change_nothing():
    vectors, finding, wrong, _ = planted(1)
    turned = np.where(finding, wrong, ~wrong)
    assert (slices_of(vectors, finding, wrong, "bus", 0) == slices_of(vectors, finding, turned, "bus", 0)).all()


def test_tested_vectors_change_no_cluster_of_the_finding_half():
    vectors, finding, wrong, _ = planted(2)
    moved = vectors.copy()
    moved[np.flatnonzero(~finding)[:5]] += 3
    before, after = (slices_of(one, finding, wrong, "bus", 0)[finding] for one in (vectors, moved))
    assert (before == after).mean() > 0.95  # a cluster may fall below a twentieth of the tested half


def test_too_few_images_have_no_clusters():
    vectors, _, wrong, _ = planted(3)
    finding = np.zeros(500, bool)
    finding[:30] = True
    assert (slices_of(vectors, finding, wrong, "bus", 0) == -1).all()
