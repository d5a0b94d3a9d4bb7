from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from c2b_ray.stats.clustering import kmeans


def test_clusters_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    vectors = np.concatenate([random.normal(at, 0.3, (60, 5)) for at in (0, 1, 2.5)])
    ours, theirs = kmeans(vectors, 3), KMeans(3, n_init=10, random_state=0).fit_predict(vectors)
    assert adjusted_rand_score(ours, theirs) == 1.0
    assert (kmeans(vectors, 3) == ours).all()


def test_copies_and_edges():
    assert set(kmeans(np.ones((5, 2)), 2).tolist()) <= {0, 1}
    assert kmeans(np.zeros((0, 2)), 3).tolist() == []
    with pytest.raises(ValueError, match="2 items cannot make 3 clusters"):
        kmeans(np.zeros((2, 2)), 3)
