"""Computes functions of arrays a block of rows at a time, so that temporary arrays do not grow with the number of
rows."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats

BLOCK = 2**20
"""Numbers in a block of one array: 8 MiB."""


def by_blocks(function: Callable[..., Floats], *arrays: ArrayLike) -> Floats:
    """Returns `function` of the arrays, broadcast to one shape, in blocks along the first axis.

    Args: function: of float64 arrays of one shape, along whose first axis it computes each row by itself; arrays: as
    `numpy.broadcast_arrays` takes them.
    Returns: what `function` returns, the blocks' results one after the other.
    """
    whole = np.broadcast_arrays(*(np.asarray(array, np.float64) for array in arrays))
    shape = whole[0].shape
    size = max(1, BLOCK // max(1, prod(shape[1:])))
    if len(shape) < 2 or shape[0] <= size:
        return function(*whole)
    return np.concatenate(
        [function(*(array[start : start + size] for array in whole)) for start in range(0, shape[0], size)]
    )
