"""Says which link of a word and a value an experiment as made would have found: the least effect that passes its looks.

An estimate of one look scatters about the true effect d with the error s/sqrt(n), s the standard deviation over
contexts, n their number. Without a second look a link is found where Student's t of (estimate - least effect) passes
the level at which Benjamini & Hochberg's procedure reports one more pair: alpha*(R + 1)/m, R of m decided pairs
reported. With one, the first look must estimate it above the least effect, and then sets the contexts of the second,
whose t has to pass. s is the median over the words of the first look, of each value.

These are upper limits: a word is compared with other words too, and both comparisons must pass. It knows findings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import nct, norm
from scipy.stats import t as student

from c2b_ray.metrics.scores import Floats
from c2b_ray.steps.prompts.association import Finding, contexts_of_count

POWER = 0.8
_QUANTILES = 200
_HALVINGS = 30


@dataclass(frozen=True)
class LooksMade:
    """`decided`: pairs of a word and a value that were decided, `raising` of them reported; `least`, `alpha`: of the
    test. `most`: the most contexts of a word in the second look; 0: there was none."""

    decided: int
    raising: int
    least: float
    alpha: float
    most: int

    def power(self, effect: float, deviation: float, contexts: int) -> float:
        """Returns the probability that a word with this effect on a value is reported. `deviation`: the standard
        deviation of its differences over contexts; `contexts`: of the first look."""
        level = min(self.alpha * (self.raising + 1) / max(self.decided + 1, 1), 0.5)
        if not self.most:
            return float(_passes(effect - self.least, deviation, np.array([contexts]), level)[0])
        noise = norm.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        ahead = (effect - self.least) / (deviation / np.sqrt(contexts)) + noise
        second = np.array([contexts_of_count(contexts, one, self.most) if one > 0 else 0 for one in ahead.tolist()])
        passes = np.zeros(_QUANTILES)
        passes[second > 0] = _passes(effect - self.least, deviation, second[second > 0], level)
        return float(passes.mean())


def _passes(over: float, deviation: float, contexts: NDArray[np.int64], level: float) -> Floats:
    # The exact distribution of Student's t around a mean that is not that of the hypothesis.
    shift = over / (deviation / np.sqrt(contexts))
    return np.asarray(nct.sf(student.isf(level, contexts - 1), contexts - 1, shift))


def least_effects(first: Sequence[Finding], made: LooksMade) -> dict[tuple[str, str], float | None]:
    """Returns (attribute, value) → the least effect in (least, 1] that is found with probability `POWER`; None where
    none is. `first`: the findings of the first look."""
    result: dict[tuple[str, str], float | None] = {}
    for key in dict.fromkeys((one.attribute, one.value) for one in first):
        of_value = [one for one in first if (one.attribute, one.value) == key]
        deviation = float(np.median([_deviation(one, made.alpha) for one in of_value]))
        contexts = int(np.median([one.contexts for one in of_value]))
        low, high = made.least, 1.0
        if made.power(high, deviation, contexts) < POWER:
            result[key] = None
            continue
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if made.power(middle, deviation, contexts) >= POWER else (middle, high)
        result[key] = high
    return result


def _deviation(one: Finding, alpha: float) -> float:
    """Returns the standard deviation over contexts from the interval, whose sides may be cut at -1 and 1."""
    reach = max(one.high - one.effect, one.effect - one.low)
    return reach / float(student.ppf(1 - alpha / 2, one.contexts - 1)) * float(np.sqrt(one.contexts))
