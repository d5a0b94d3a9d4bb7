"""The role of a model that guesses groups from texts (LIC): one call trains and applies it, fold by fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class GroupGuesser(Protocol):
    """Guesses the group of texts, after training on texts with known groups."""

    @property
    def name(self) -> str: ...

    def probabilities(
        self, texts: Sequence[str], groups: NDArray[np.int64], others: Sequence[str], number: int, seed: int
    ) -> NDArray[np.float64]:
        """Trains on `texts` of `groups` (0 .. number - 1); returns the probability of each group for each of the
        `others`, float64 (others, number), rows summing to 1."""
        ...
