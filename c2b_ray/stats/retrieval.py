"""Recall of a ranking.

Knows ranked and relevant items by identity; knows nothing of how they were ranked or of what makes one relevant.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["recall_at"]


def recall_at(
    ranked: Sequence[Hashable] | NDArray[Any], relevant: Collection[Hashable] | NDArray[Any], k: int
) -> float:
    """Computes the share of the relevant items that are among the first k of a ranking.

    |top-k of ranked, as a set, and relevant| / |relevant|

    Classifier-to-Bias (CVPR 2025), recall@(A*K) of detected biases: the caller computes k from A and K. Ramos et al.
    2025 average recall@k over images; with several captions right per image that is this share, not "at least one is
    found" (the two agree where one caption is right).

    Args: ranked: items, best first, repeats allowed and counted once; relevant: items, repeats counted once; k: 1 or
    more, may exceed the ranking.
    Returns: float in [0, 1]. 0: none found, or nothing ranked. NaN where nothing is relevant.
    Raises: ValueError for k < 1.
    """
    if k < 1:
        raise ValueError(f"k = {k} must be 1 or more")
    wanted = set(_listed(relevant))
    if not wanted:
        return float("nan")
    return len(wanted.intersection(_listed(ranked)[:k])) / len(wanted)


def _listed(items: Collection[Hashable] | NDArray[Any]) -> list[Any]:
    return items.tolist() if isinstance(items, np.ndarray) else list(items)
