"""The plane against scikit-learn's."""

import numpy as np
from sklearn.decomposition import PCA

from c2b_ray.stats.clustering import principal_plane


def test_the_plane_is_that_of_principal_components():
    vectors = np.random.default_rng(2).normal(size=(50, 7)) * np.arange(1, 8)
    plane = principal_plane(vectors)
    expected = PCA(2).fit_transform(vectors)
    np.testing.assert_allclose(np.abs(plane), np.abs(expected), atol=1e-9)
    np.testing.assert_array_equal(plane, principal_plane(vectors))
    assert principal_plane(np.ones((3, 4))).tolist() == [[0, 0]] * 3
    assert principal_plane(np.zeros((0, 4))).shape == (0, 2)
