"""Thresholds that several steps take together."""

from typing import NamedTuple


class Thresholds(NamedTuple):
    """`tau`: differences of at most so much do not matter. `alpha`: the false discovery rate, and 1 - the confidence of
    limits."""

    tau: float
    alpha: float

    @property
    def confidence(self) -> float:
        return 1 - self.alpha


class Limit(NamedTuple):
    """`most`: as many images of a cell; None: all of them. `seed`: which ones are drawn."""

    most: int | None
    seed: int
