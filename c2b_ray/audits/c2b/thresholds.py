"""Thresholds that several steps share."""

from typing import NamedTuple


class Thresholds(NamedTuple):
    """`tau`: differences up to this do not matter. `alpha`: the false discovery rate, and 1 - the confidence of
    limits."""

    tau: float
    alpha: float

    @property
    def confidence(self) -> float:
        return 1 - self.alpha


class Limit(NamedTuple):
    """`most`: the most images of a cell; None: all of them. `seed`: decides which ones are drawn."""

    most: int | None
    seed: int
