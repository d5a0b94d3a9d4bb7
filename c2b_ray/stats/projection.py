"""Projects vectors of many dimensions onto a plane, to look at them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def principal_plane(vectors: ArrayLike) -> Floats:
    """Returns the coordinates of vectors on their first two principal components: float64, shape (n, 2).

    `vectors`: shape (n, dimensions), finite. They are centred, not scaled (Pearson 1901). The sign of each component is
    the one that makes its largest loading positive, so that equal input gives equal output. A component without any
    variance, or of fewer than two vectors, is 0. No vectors give shape (0, 2).
    """
    rows = np.asarray(vectors, np.float64)
    plane = np.zeros((len(rows), 2))
    if len(rows) < 2 or rows.shape[1] == 0:
        return plane
    centred = rows - rows.mean(axis=0)
    _, sizes, loadings = np.linalg.svd(centred, full_matrices=False)
    for axis in range(min(2, len(sizes))):
        if sizes[axis] > 1e-9 * max(sizes[0], 1e-300):
            loading = loadings[axis]
            plane[:, axis] = centred @ (loading * np.sign(loading[np.argmax(np.abs(loading))]))
    return plane
