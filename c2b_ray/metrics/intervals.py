"""Intervals of accuracies and of bias scores, the p-values that belong to them, and the correction for noisy labels.

Knows binomial counts and normal quantiles; knows nothing of many tests at once (`testing`), of images or of tables.
Cells are taken as independent samples.
"""

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from c2b_ray.metrics.levels import MOST_DEVIATIONS, checked_margin, deviations
from c2b_ray.metrics.scores import Floats, Ints, accuracies, checked_cells, checked_counts, mean_of_others

__all__ = ["bias_score_interval", "bias_score_p_values", "p_value_of_limit", "rogan_gladen", "wilson_interval"]

Values = NDArray[Any] | Sequence[float]

HALVINGS = 52  # narrows [0, 40] to 1e-14


@overload
def wilson_interval(correct: int, total: int, confidence: float = ...) -> tuple[float, float]: ...
@overload
def wilson_interval(correct: Values, total: Values, confidence: float = ...) -> tuple[Floats, Floats]: ...
def wilson_interval(
    correct: int | Values, total: int | Values, confidence: float = 0.95
) -> tuple[float, float] | tuple[Floats, Floats]:
    """Wilson's score interval of an accuracy, without continuity correction.

    (p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n),   p = correct/total, n = total, z = normal quantile

    Wilson 1927; the limits are the p0 that a two-sided score test would just not reject.

    Args: correct, total: integers of one shape, or two ints; confidence: in (0, 1).
    Returns: (low, high), float64 of that shape or two floats, 0 <= low <= p <= high <= 1; exactly 0 at correct = 0 and
    exactly 1 at correct = total. NaN where total is 0; empty in, empty out.
    Raises: ValueError where not 0 <= correct <= total in whole numbers, where shapes differ, or for the confidence.
    """
    c, t = checked_counts(correct, total)
    low, high = wilson(c, t, np.float64(deviations(confidence)))
    return (float(low), float(high)) if low.ndim == 0 else (low, high)


def bias_score_interval(correct: ArrayLike, total: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Interval of every bias score of `bias_scores`, built from the Wilson limits [l, u] of the cells' accuracies.

    low_j  = phi_j - sqrt((A_j - l_j)^2 + sum over k != j of (u_k - A_k)^2 / m^2)
    high_j = phi_j + sqrt((u_j - A_j)^2 + sum over k != j of (A_k - l_k)^2 / m^2)

    MOVER (Zou & Donner 2008; Zou, Huang & Zhang 2009 for linear functions of binomial proportions); with two cells it
    is Newcombe's hybrid score interval (Newcombe 1998, method 10). m is the number of other cells that hold data.
    Unlike phi -+ z * standard error it does not shrink to a point when every image was right.

    Args: correct, total: integers of shape (..., n); confidence: in (0, 1).
    Returns: (low, high), float64 of shape (..., n), clipped to [-1, 1], low <= phi <= high. NaN where phi is NaN; no
    classes in, none out. Each interval stands alone: they are not simultaneous over the classes.
    Raises: ValueError as `bias_scores` does, or for the confidence.
    """
    c, t = checked_cells(correct, total)
    phi, weights = _score_and_weights(c, t)
    below, above = _reach(c, t, weights, np.full(c.shape, deviations(confidence)))
    return np.clip(phi - below, -1.0, 1.0), np.clip(phi + above, -1.0, 1.0)


def bias_score_p_values(correct: ArrayLike, total: ArrayLike, tau: float = 0.0) -> Floats:
    """p-value of every bias score for the interval null |phi| <= tau.

    p_j = the smallest alpha at which the 1-alpha interval of `bias_score_interval` lies wholly above tau or wholly
    below -tau. So p <= alpha exactly when that interval excludes [-tau, tau], and a report's test and interval cannot
    disagree. Found by bisection on the normal deviate; both tails are counted, so for tau > 0, where only one tail can
    reject, the test is conservative (size near alpha/2 at |phi| = tau); at tau = 0 it is Newcombe's two-sided test of
    no difference.

    Args: correct, total: integers of shape (..., n); tau: finite, 0 or more.
    Returns: float64 of shape (..., n) in [0, 1]; 1 where |phi| <= tau, 0 only where the true value underflows. NaN
    where phi is NaN; no classes in, none out.
    Raises: ValueError as `bias_scores` does, or for tau.
    """
    c, t = checked_cells(correct, total)
    checked_margin(tau)
    phi, weights = _score_and_weights(c, t)

    def limits(z: Floats) -> tuple[Floats, Floats]:
        return _reach(c, t, weights, z)

    return np.where(np.isnan(phi), np.nan, smallest_excluding(phi, limits, tau))


def p_value_of_limit(difference: float, reach: float, confidence: float, tau: float = 0.0) -> float:
    """p-value of "|difference| <= tau" that belongs to an interval which reaches `reach` from it towards 0.

    Phi(-z * (|d| - tau) / reach) + Phi(-z * (|d| + tau) / reach), z the normal quantile of `confidence`: the chance, at
    a true difference of tau, of one as far out on either side. At tau = 0 it is two-sided: p < 1 - confidence exactly
    where the interval excludes 0. For intervals whose reach is near proportional to z.

    Returns: float in [0, 1]; NaN for NaN; 1 where |difference| <= tau, 0 for a larger one without any reach.
    """
    checked_margin(tau)
    if np.isnan(difference) or np.isnan(reach):
        return float("nan")
    size = abs(difference)
    if size <= tau:
        return 1.0
    scale = np.inf if reach == 0 else deviations(confidence) / reach
    return float(ndtr(-scale * (size - tau)) + ndtr(-scale * (size + tau)))


def smallest_excluding(phi: Floats, limits: Callable[[Floats], tuple[Floats, Floats]], tau: float) -> Floats:
    """The smallest alpha, of phi's shape, at which an interval lies wholly above tau or below -tau; 1 if |phi| <= tau.

    limits: how far below and above phi the interval reaches, for a normal deviate of each.
    """
    excluded, included = np.zeros(phi.shape), np.full(phi.shape, MOST_DEVIATIONS)
    for _ in range(HALVINGS):
        middle = (excluded + included) / 2
        below, above = limits(middle)
        beyond = np.where(phi > 0, phi - below > tau, phi + above < -tau)
        excluded, included = np.where(beyond, middle, excluded), np.where(beyond, included, middle)
    found: Floats = np.where(np.abs(phi) <= tau, 1.0, 2.0 * ndtr(-excluded))
    return found


@overload
def rogan_gladen(observed: float, sensitivity: float, specificity: float) -> float: ...
@overload
def rogan_gladen(observed: Values, sensitivity: float | Values, specificity: float | Values) -> Floats: ...
def rogan_gladen(observed: float | Values, sensitivity: float | Values, specificity: float | Values) -> float | Floats:
    """True share of positives behind an observed share, when the labels come from an imperfect test.

    (observed + specificity - 1) / (sensitivity + specificity - 1), clipped to [0, 1]

    Rogan & Gladen 1978. Applied to both ends of an interval of `observed` it gives the interval of the true share, with
    sensitivity and specificity taken as known.

    Args: rates in [0, 1], floats or arrays that broadcast; sensitivity = P(labelled positive | positive), specificity =
    P(labelled negative | negative).
    Returns: float, or float64 of the broadcast shape, in [0, 1]. 0: everything observed is explained by false
    positives. NaN where sensitivity + specificity <= 1 (the test tells nothing) or any input is NaN; empty in, empty
    out.
    Raises: ValueError for a rate outside [0, 1].
    """
    named = {"observed": observed, "sensitivity": sensitivity, "specificity": specificity}
    rates = {name: np.asarray(values, dtype=np.float64) for name, values in named.items()}
    for name, rate in rates.items():
        for value in rate[(rate < 0) | (rate > 1)]:
            raise ValueError(f"{name} = {value} lies outside [0, 1]")
    share, sens, spec = np.broadcast_arrays(*rates.values())
    true = np.divide(share + spec - 1, sens + spec - 1, out=np.full(share.shape, np.nan), where=sens + spec > 1)
    true = np.clip(true, 0.0, 1.0)
    return float(true) if true.ndim == 0 else true


def wilson(correct: Ints | Floats, total: Ints | Floats, z: Floats | np.float64) -> tuple[Floats, Floats]:
    n = np.where(total > 0, total, np.nan)
    p, square = np.minimum(correct / n, 1.0), z * z / n
    centre = (p + square / 2) / (1 + square)
    half = np.sqrt(p * (1 - p) * square + square * square / 4) / (1 + square)
    low = np.where((correct == 0) & (total > 0), 0.0, np.clip(centre - half, 0.0, p))
    high = np.where((correct == total) & (total > 0), 1.0, np.clip(centre + half, p, 1.0))
    return low, high


def _score_and_weights(correct: Ints, total: Ints) -> tuple[Floats, Floats]:
    """phi, and the unsigned weights (..., j, k) of the cells' accuracies in phi_j: 1, 1/m, or 0 without data."""
    accuracy, held = accuracies(correct, total)
    others = np.maximum(held.sum(axis=-1) - 1, 1)[..., None, None]
    weights = np.where(np.eye(correct.shape[-1], dtype=bool), 1.0, 1.0 / others)
    return accuracy - mean_of_others(accuracy, held), np.where(held[..., None, :], weights, 0.0)


def _reach(correct: Ints, total: Ints, weights: Floats, z: Floats) -> tuple[Floats, Floats]:
    """How far below and above phi_j its limits lie; class j's limits take every cell's Wilson limits at its own z_j."""
    return reach(correct[..., None, :], np.maximum(total, 1)[..., None, :], weights, z)


def reach(
    correct: Ints | Floats, total: Ints | Floats, weights: Floats, z: Floats, own: int | None = None
) -> tuple[Floats, Floats]:
    """How far below and above a weighted sum of accuracies its MOVER limits lie.

    correct, total, weights (unsigned): (..., j, k), numbers that need not be whole; z: (..., j). The sum's positive
    term is k = j, or k = `own`; the others are subtracted.
    """
    low, high = wilson(correct, total, z[..., :, None])
    seen = np.where(total > 0, total, 1.0)
    accuracy = correct / seen
    size = weights.shape[-1]
    positive = np.eye(size, dtype=bool) if own is None else np.arange(size) == own
    with np.errstate(invalid="ignore"):
        down = np.nan_to_num((accuracy - low) * weights) ** 2
        up = np.nan_to_num((high - accuracy) * weights) ** 2
    return np.sqrt(np.where(positive, down, up).sum(axis=-1)), np.sqrt(np.where(positive, up, down).sum(axis=-1))
