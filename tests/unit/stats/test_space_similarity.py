from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from c2b_ray.stats.distances import space_similarity


def test_similarity_of_the_vectors_of_all_pairs():
    random = np.random.default_rng(0)
    spaces = [random.normal(size=(50, width)) + 1 for width in (5, 7, 9)]
    vectors = [1 - pdist(space, "cosine") for space in spaces]
    found, centred = space_similarity(spaces), space_similarity(spaces, centred=True)
    for a in range(3):
        for b in range(3):
            lengths = np.linalg.norm(vectors[a]) * np.linalg.norm(vectors[b])
            assert found.value[a, b] == pytest.approx(vectors[a] @ vectors[b] / lengths, abs=1e-12)
            assert centred.value[a, b] == pytest.approx(np.corrcoef(vectors[a], vectors[b])[0, 1], abs=1e-9)


def test_narrow_cones_look_alike_until_they_are_centred():
    random = np.random.default_rng(1)
    cones = [random.normal(size=(80, 6)) * 0.1 + np.eye(6)[0] for _ in range(2)]
    assert space_similarity(cones).value[0, 1] > 0.99
    assert abs(space_similarity(cones, centred=True).value[0, 1]) < 0.2


def test_the_interval_holds_the_similarity_of_many_more_items():
    random = np.random.default_rng(2)

    def spaces(items):
        first = random.normal(size=(items, 4))
        return [first, first + random.normal(size=(items, 4))]

    true = space_similarity(spaces(1500)).value[0, 1]
    found = [space_similarity(spaces(60)) for _ in range(60)]
    assert np.mean([one.low[0, 1] <= true <= one.high[0, 1] for one in found]) >= 0.85


def test_items_without_a_direction_are_refused():
    with pytest.raises(ValueError, match="item 1 has an embedding without length"):
        space_similarity([np.array([[1.0, 0], [0, 0]])])
