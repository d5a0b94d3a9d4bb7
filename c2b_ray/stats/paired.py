"""Two classifiers on identical images: the difference of their accuracies and of their bias scores, tested on pairs.

Knows counts per cell: how many images both classifiers answered, and how many only one of them got right. An image that
both get right, or both wrong, says nothing about which is better, so comparing on pairs needs far fewer images than
comparing two separate samples. Counts need not be whole: where a few captions drew the images, they are of an effective
number of pairs (`clusters.effective_pairs`). Knows nothing of images, tables or many tests at once. Cells
are taken as independent samples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, ndtr

from c2b_ray.stats.roots import MOST_DEVIATIONS, checked_margin, deviations
from c2b_ray.stats.scores import Floats, accuracies, checked_pairs, mean_of_others

STEPS, PRECISION = 80, 1e-13  # of a search; about ten steps are taken


def paired_difference(only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike) -> Floats:
    """Computes the accuracy of B minus that of A on the same images.

    d = (only_b - only_a) / total

    Args: only_a, only_b: images that A alone, B alone got right; total: images that both answered; one shape.
    Returns: float64 of that shape in [-1, 1]. 0: as many right. NaN where total is 0; empty in, empty out.
    Raises: ValueError where counts are negative or only_a + only_b > total, or where shapes differ.
    """
    a, b, n = checked_pairs(only_a, only_b, total)
    return accuracies(b - a, n)[0]


def paired_difference_interval(
    only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Computes Tango's score interval of `paired_difference`.

    The limits are the D that satisfy  (b - c - n*D)^2 = z^2 * n * (2q + D(1 - D)),   b = only_b, c = only_a, n = total,
    with q the maximum-likelihood estimate, under difference D, of the share of images that A alone gets right:
      q = (sqrt(B^2 - 8n*C) - B) / 4n,   B = (2n - b + c)*D - b - c,   C = -c*D(1 - D)

    Tango 1998 (Statistics in Medicine 17: 891-908). They are the differences that a two-sided
    score test would just not reject, and that test is McNemar's where D = 0. Without any image on which the two differ
    the limits are -+ z^2/(n + z^2): never a point.

    Args: as for `paired_difference`; confidence: in (0, 1).
    Returns: (low, high), float64 of that shape, -1 <= low <= d <= high <= 1. NaN where total is 0; empty in, empty out.
    Raises: ValueError as `paired_difference` does, or for the confidence.
    """
    a, b, n = checked_pairs(only_a, only_b, total)
    return _tango(a, b, n, np.asarray(deviations(confidence)))


def paired_difference_p_values(only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, tau: float = 0.0) -> Floats:
    """Computes the p-value of every `paired_difference` for the interval null |d| <= tau.

    p = Phi(-z_tau) + Phi(-z_-tau),   z_D = |b - c - n*D| / sqrt(n * (2q + D(1 - D))),   d beyond D on its side of 0

    Tango 1998, as a test against both ends of a margin: the chance of a difference so far out on its side were the true
    one at the near end of the null, and were it at the far end, which counts for little but at tau near 0. So p <=
    alpha where the 1-alpha interval of `paired_difference_interval` lies beyond tau or -tau, and only where that of
    1 - 2*alpha does, as for `bias_score_p_values`. At tau = 0 it is McNemar's test without continuity correction.

    Args: as for `paired_difference`; tau: finite, 0 or more.
    Returns: float64 of that shape in [0, 1]; 1 where |d| <= tau. NaN where total is 0; empty in, empty out.
    Raises: ValueError as `paired_difference` does, or for tau.
    """
    a, b, n = checked_pairs(only_a, only_b, total)
    margin = checked_margin(tau)
    d, _ = accuracies(b - a, n)
    tails = [ndtr(-_deviate(a, b, n, np.copysign(end, np.nan_to_num(d) * end))) for end in (margin, -margin)]
    exceeds = np.abs(d) > margin
    return np.where(np.isnan(d), np.nan, np.where(exceeds, np.minimum(tails[0] + tails[1], 1.0), 1.0))


def paired_equivalence_p_values(only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, tau: float) -> Floats:
    """Computes the p-value of every `paired_difference` for the null |d| >= tau: small where A and B are certainly as
    accurate.

    p = max(Phi(-z_tau), Phi(-z_-tau)),   two one-sided tests (Schuirmann 1987) with Tango's z, as above

    Args: as for `paired_difference`; tau: finite, 0 or more.
    Returns: float64 of that shape in [0, 1]; 1 where |d| >= tau. NaN where total is 0; empty in, empty out.
    Raises: ValueError as `paired_difference` does, or for tau.
    """
    a, b, n = checked_pairs(only_a, only_b, total)
    margin = checked_margin(tau)
    d, _ = accuracies(b - a, n)
    z = np.minimum(*(_deviate(a, b, n, np.full(d.shape, end)) for end in (margin, -margin)))
    return np.where(np.isnan(d), np.nan, np.where(np.abs(d) < margin, ndtr(-z), 1.0))


def _deviate(a: Floats, b: Floats, n: Floats, difference: Floats) -> Floats:
    """Computes how many standard deviations the difference lies from a true difference of `difference`."""
    gap, variance = _score(a, b, n, difference)
    z: Floats = np.divide(np.abs(gap), np.sqrt(variance), out=np.zeros(gap.shape), where=variance > 0)
    return z


def mcnemar_p_values(only_a: ArrayLike, only_b: ArrayLike) -> Floats:
    """Computes the exact p-value of McNemar's test that A and B are equally accurate.

    p = min(1, 2 * P(X <= min(only_a, only_b))),   X ~ Binomial(only_a + only_b, 1/2)

    McNemar 1947, in its exact conditional form: two-sided binomial test of the images on which the two differ. It
    keeps its level at any number of images and is conservative at few. Between whole numbers P is the incomplete beta
    function that it is at whole ones.

    Args: only_a, only_b: counts of one shape, 0 or more.
    Returns: float64 of that shape in [0, 1]. 1 where only_a = only_b; empty in, empty out.
    Raises: ValueError for negative counts, or where shapes differ.
    """
    a, b = np.asarray(only_a, dtype=np.float64), np.asarray(only_b, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"only_a has shape {a.shape}, only_b has shape {b.shape}")
    fewer, more, _ = checked_pairs(np.minimum(a, b), np.maximum(a, b), a + b)
    # P(X <= k) as the incomplete beta function. scipy.stats has it by name, and takes a second of a core to import.
    p: Floats = 2.0 * betainc(np.maximum(more, PRECISION), fewer + 1, 0.5)
    return np.minimum(p, 1.0)


def phi_difference(only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike) -> Floats:
    """Computes the bias score of B minus that of A on the same images, for the cells of one attribute.

    phi_j(B) - phi_j(A) = d_j - 1/m * sum of d_k over k != j,   d of `paired_difference`, m other cells that hold data

    phi of `bias_scores` (Classifier-to-Bias, CVPR 2025, Eq. 1) is linear in the accuracies, so its difference is the
    same contrast of their differences.

    Args: only_a, only_b, total: as for `paired_difference`, of shape (..., n), the attribute's cells on the last axis.
    Returns: float64 of shape (..., n) in [-2, 2], summing to 0 over a row. 0: B is as biased on the cell as A is. NaN
    where total is 0, and everywhere in a row with fewer than two cells that hold data. No cells in, none out.
    Raises: ValueError as `paired_difference` does, or for scalars.
    """
    a, b, n = _checked_cells(only_a, only_b, total)
    d, nonempty = accuracies(b - a, n)
    return d - mean_of_others(d, nonempty)


def phi_difference_interval(
    only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Computes the interval of every `phi_difference`, built from Tango's limits [l, u] of the cells' paired
    differences.

    low_j  = phi_difference_j - sqrt((d_j - l_j)^2 + sum over k != j of (u_k - d_k)^2 / m^2)
    high_j = phi_difference_j + sqrt((u_j - d_j)^2 + sum over k != j of (d_k - l_k)^2 / m^2)

    MOVER (Zou & Donner 2008; Zou, Huang & Zhang 2009, for linear functions of independent estimates), as
    `bias_score_interval` has it for one classifier: the variance of the contrast, recovered from limits that know the
    pairing and do not shrink to a point where the two classifiers never differ.

    Args: as for `phi_difference`; confidence: in (0, 1).
    Returns: (low, high), float64 of shape (..., n), clipped to [-2, 2]. NaN where `phi_difference` is NaN.
    Raises: ValueError as `phi_difference` does, or for the confidence.
    """
    difference = phi_difference(only_a, only_b, total)
    a, b, n = checked_pairs(only_a, only_b, total)
    z = np.asarray(deviations(confidence))
    cell = np.broadcast_to(np.arange(n.shape[-1]), n.shape)
    shape = (*n.shape, n.shape[-1])
    a, b, n = (np.broadcast_to(counts[..., None, :], shape) for counts in (a, b, n))
    below, above = _reach(a, b, n, cell, z)
    return np.clip(difference - below, -2.0, 2.0), np.clip(difference + above, -2.0, 2.0)


def phi_difference_p_values(only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, tau: float = 0.0) -> Floats:
    """Computes the p-value of every `phi_difference` for the interval null |phi_difference| <= tau.

    p_j = Phi(-z_tau) + Phi(-z_-tau),   z_D the deviate at which the limit of `phi_difference_interval` towards 0 is D

    on phi_difference_j's side of 0, found by a search: the interval null as `paired_difference_p_values` has it.

    Args: as for `phi_difference`; tau: finite, 0 or more.
    Returns: float64 of shape (..., n) in [0, 1]; 1 where |phi_difference| <= tau. NaN where `phi_difference` is NaN.
    Raises: ValueError as `phi_difference` does, or for tau.
    """
    difference = phi_difference(only_a, only_b, total)
    margin = checked_margin(tau)
    p = np.where(np.isnan(difference), np.nan, 1.0)
    # Only what lies beyond the margin needs a search.
    index = np.nonzero(np.abs(difference) > margin)
    a, b, n = (counts[index[:-1]] for counts in checked_pairs(only_a, only_b, total))
    exceeding = difference[index]

    def excess(end: float) -> Callable[[Floats], Floats]:
        def clear(z: Floats) -> Floats:
            """Returns the distance of the interval at that deviate from one end of the null."""
            below, above = _reach(a, b, n, index[-1], z[:, None])
            return np.abs(exceeding) - np.where(exceeding > 0, below, above) - end

        return clear

    limit = np.full(exceeding.shape, MOST_DEVIATIONS)
    near_end = ndtr(-_crossing(excess(margin), np.zeros(exceeding.shape), limit))
    far_end = ndtr(-_crossing(excess(-margin), np.zeros(exceeding.shape), limit)) if margin else near_end
    p[index] = np.minimum(near_end + far_end, 1.0)
    return p


def _checked_cells(only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike) -> tuple[Floats, Floats, Floats]:
    counts = checked_pairs(only_a, only_b, total)
    if counts[0].ndim == 0:
        raise ValueError("the counts need an axis of bias classes; got scalars")
    return counts


def _score(a: Floats, b: Floats, n: Floats, difference: Floats) -> tuple[Floats, Floats]:
    """Returns the distance of b - a from n*at, and the variance of b - a where the true difference is `difference`."""
    linear, constant = (2 * n - b + a) * difference - b - a, a * difference * (1 - difference)
    # (sqrt(B^2 + 8nc) - B) loses digits where B > 0: its conjugate does not.
    root = np.sqrt(np.maximum(linear * linear + 8 * n * constant, 0.0))
    conjugate = np.divide(2 * constant, root + linear, out=np.zeros(root.shape), where=(linear > 0) & (root > 0))
    share = np.where(linear > 0, conjugate, (root - linear) / (4 * np.where(n > 0, n, 1.0)))
    return b - a - n * difference, np.maximum(n * (2 * share + difference * (1 - difference)), 0.0)


def _tango(a: Floats, b: Floats, n: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Computes Tango's limits at the normal deviates `z`; NaN without data."""
    d, _ = accuracies(b - a, n)
    shape = np.broadcast_shapes(d.shape, z.shape)
    centre, images = np.broadcast_to(np.where(np.isnan(d), 0.0, d), shape), np.where(n > 0, n, 1.0)

    def room(difference: Floats) -> Floats:
        """Returns how much further from d the score test would allow a difference to be, per image."""
        gap, variance = _score(a, b, n, difference)
        return (z * np.sqrt(variance) - np.abs(gap)) / images

    low, high = (np.where(np.isnan(d), np.nan, _crossing(room, centre, np.full(shape, end))) for end in (-1.0, 1.0))
    return low, high


def _crossing(function: Callable[[Floats], Floats], inside: Floats, outside: Floats) -> Floats:
    """Finds, element by element, the zero of a function that is 0 or more at `inside` and below 0 at `outside`; returns
    `outside` where there is none. Uses false position with the weight of a repeated end halved (Illinois: Dowell &
    Jarratt 1971), and bisection while the function is 0 at `inside`, as it is where the classifiers never differ."""
    value_in, value_out = function(inside), function(outside)
    point, last_side = np.where(value_out >= 0, outside, inside), np.zeros(inside.shape)
    open_ = value_out < 0
    for _ in range(STEPS):
        if not open_.any():
            break
        share = np.divide(value_in, value_in - value_out, out=np.full(point.shape, 0.5), where=open_ & (value_in > 0))
        point = np.where(open_, inside + share * (outside - inside), point)
        value = function(point)
        is_inside = value >= 0
        value_out = np.where(is_inside, np.where(last_side > 0, value_out / 2, value_out), value)
        value_in = np.where(is_inside, value, np.where(last_side < 0, value_in / 2, value_in))
        inside, outside = np.where(is_inside, point, inside), np.where(is_inside, outside, point)
        last_side = np.where(is_inside, 1.0, -1.0)
        open_ &= (np.abs(value) > PRECISION) & (inside != outside)
    return point


def _reach(a: Floats, b: Floats, n: Floats, cell: NDArray[np.intp], z: Floats) -> tuple[Floats, Floats]:
    """Returns how far below and above a row's contrast its limits lie; cells are on the last axis, and `cell` is the
    row's cell."""
    d, nonempty = accuracies(b - a, n)
    low, high = _tango(a, b, n, z)
    itself = np.arange(n.shape[-1]) == cell[..., None]
    others = np.maximum(nonempty.sum(axis=-1, keepdims=True) - 1, 1)
    weight = np.where(itself, 1.0, 1.0 / others)
    squares_below, squares_above = (np.where(nonempty, ((limit - d) * weight) ** 2, 0.0) for limit in (low, high))
    return np.sqrt(np.where(itself, squares_below, squares_above).sum(axis=-1)), np.sqrt(
        np.where(itself, squares_above, squares_below).sum(axis=-1)
    )


# Error consistency: whether two classifiers fail on the same images more often than their accuracies alone explain.


def error_consistency(correct_a: ArrayLike, correct_b: ArrayLike) -> float:
    """Computes Cohen's kappa of two classifiers' correctness.

    kappa = (c_obs - c_exp) / (1 - c_exp),   c_exp = p_a p_b + (1 - p_a)(1 - p_b), c_obs = share of images on which both
    are right or both wrong, p = accuracies

    Geirhos et al. 2020 (error consistency), Eqs. 1 to 3; used by Wiles et al. 2022, Fig. 8. Where c_obs = 1 the value
    is 1 by convention, also for two classifiers that are always right or always wrong, for which the formula is 0/0.

    Args: correct_a, correct_b: shape (images,), 0/1 or bool.
    Returns: float in [-1, 1]. 1: the same images are right; 0: as independent errors would agree; below 0: they avoid
    each other's errors. NaN for no images.
    Raises: ValueError for lengths that differ, for other values than 0 and 1, or for more than one axis.
    """
    a, b = np.asarray(correct_a), np.asarray(correct_b)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"both must have the same shape (images,), got {a.shape} and {b.shape}")
    if not np.isin(a, (0, 1)).all() or not np.isin(b, (0, 1)).all():
        raise ValueError("correctness must be 0 or 1")
    if a.size == 0:
        return float("nan")
    agreements = int((a == b).sum())
    if agreements == a.size:
        return 1.0
    p, q = float(a.mean()), float(b.mean())
    expected = p * q + (1 - p) * (1 - q)
    return (agreements / a.size - expected) / (1 - expected)
