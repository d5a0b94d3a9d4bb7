"""What a verdict takes: by how much, and how surely."""

from typing import NamedTuple


class Thresholds(NamedTuple):
    """`tau`: differences of at most so much do not matter. `alpha`: the false discovery rate, and 1 - the confidence of
    limits."""

    tau: float
    alpha: float

    @property
    def confidence(self) -> float:
        return 1 - self.alpha
