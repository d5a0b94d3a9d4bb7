"""Intervals and p-values of accuracies and bias scores, corrections for multiple tests, and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from c2b_ray.stats.contrasts import contrast_counts, contrast_interval, contrast_none_p_values, contrast_p_values
from c2b_ray.stats.roots import checked_levels, checked_margin, deviations
from c2b_ray.stats.scores import Floats, Ints, checked_cells, checked_counts, mean_of_others

Values = NDArray[Any] | Sequence[float]


@overload
def wilson_interval(correct: int, total: int, confidence: float = ...) -> tuple[float, float]: ...
@overload
def wilson_interval(correct: Values, total: Values, confidence: float = ...) -> tuple[Floats, Floats]: ...
def wilson_interval(
    correct: int | Values, total: int | Values, confidence: float = 0.95
) -> tuple[float, float] | tuple[Floats, Floats]:
    """Computes Wilson's score interval of an accuracy, without continuity correction.

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


def share_interval(share: float, effective: float, confidence: float = 0.95) -> tuple[float, float]:
    """Computes Wilson's interval (`wilson_interval`) of a share that tells as much as `effective` independent images.

    Args: share: in [0, 1], NaN without images; effective: 0 or more, need not be whole; confidence: in (0, 1).
    Returns: (low, high) in [0, 1]; NaN where `effective` is 0.
    """
    right, images = (np.array(number, np.float64) for number in (np.nan_to_num(share) * effective, effective))
    low, high = wilson(right, images, np.float64(deviations(confidence)))
    return float(low), float(high)


@dataclass(frozen=True)
class ContrastTest:
    """Bias scores of n cells with limits and p-values; every array is float64 (..., n), NaN where phi is.

    `phi`: the score, in [-1, 1]. `phi_low`, `phi_high`: as `bias_score_interval`. `p_value`: as `bias_score_p_values`.
    `none_p_value`: as `equivalence_p_values`.
    """

    phi: Floats
    phi_low: Floats
    phi_high: Floats
    p_value: Floats
    none_p_value: Floats


def contrast_test(
    accuracy: ArrayLike,
    effective: ArrayLike,
    tau: float,
    confidence: float = 0.95,
    covariance: ArrayLike | None = None,
) -> ContrastTest:
    """Computes bias scores with limits and p-values, where each cell is worth `effective` independent images.

    Args: accuracy: in [0, 1], NaN where nothing is known; effective: numbers of images, 0 or more, not necessarily
    whole: the number of images where these are independent, fewer where they share captions or may show something else
    (`effective_images`). Both of shape (..., n), an attribute's cells on the last axis. tau: finite, 0 or more.
    confidence: in (0, 1). covariance: (..., n, n), of accuracies that are not independent (`contrast_counts`).
    Returns: `ContrastTest`. A cell of NaN or of no images is left out of the others' mean.
    Raises: ValueError for accuracies outside [0, 1], negative numbers, unequal shapes, or for tau or the confidence.
    """
    rate, images = np.asarray(accuracy, dtype=np.float64), np.asarray(effective, dtype=np.float64)
    if rate.shape != images.shape or rate.ndim == 0:
        raise ValueError(f"accuracy and effective need one shape (..., cells), got {rate.shape} and {images.shape}")
    for index in np.argwhere((rate < 0) | (rate > 1) | (images < 0) | np.isinf(images)):
        i = tuple(index.tolist())
        raise ValueError(
            f"cell {i}: accuracy={rate[i]}, effective={images[i]}; need 0 <= accuracy <= 1 and effective >= 0"
        )
    total = np.where(np.isnan(rate) | np.isnan(images), 0.0, images)
    cells = contrast_counts(rate, total, _weights(total), covariance)
    low, high = contrast_interval(*cells, confidence)
    has_images = total > 0
    phi = np.where(has_images, rate, np.nan) - mean_of_others(np.where(has_images, rate, np.nan), has_images)
    return ContrastTest(phi, low, high, contrast_p_values(*cells, tau), contrast_none_p_values(*cells, tau))


def bias_score_interval(correct: ArrayLike, total: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Computes the interval of every bias score of `bias_scores`: the scores that neither of two one-sided tests
    rejects.

    [low, high] = the phi0 at which P(estimate >= phi_j | phi0) and P(estimate <= phi_j | phi0) are (1-confidence)/2,

    each at the accuracies that are most likely under phi0, by the saddlepoint approximation (`contrasts` has formulas
    and sources). By exact enumeration of two cells of 20 to 200 images, equal or not, at true accuracies from 0 to 1
    (`bench/size.py`), an interval of .95 holds the true score in no less than .94. It does not shrink to a point when
    every image was right.

    Args: correct, total: integers of shape (..., n); confidence: in (0, 1).
    Returns: (low, high), float64 of shape (..., n) in [-1, 1], low <= phi <= high. NaN where phi is NaN; no classes in,
    none out. Each interval stands alone: they are not simultaneous over the classes.
    Raises: ValueError as `bias_scores` does, or for the confidence.
    """
    return contrast_interval(*_contrasts(*checked_cells(correct, total)), confidence)


def bias_score_p_values(correct: ArrayLike, total: ArrayLike, tau: float = 0.0) -> Floats:
    """Computes the p-value of every bias score for the interval null |phi| <= tau.

    p_j = P(an estimate beyond phi_j, on its side of 0, were the true score at either end of the null):
          P(estimate >= phi_j | tau) + P(estimate >= phi_j | -tau) for phi_j > 0,

    of which the second is next to nothing where 2 * tau is beyond chance's reach: near one-sided there, two-sided at
    tau = 0, continuous between (Hodges & Lehmann 1954). The probabilities are those of `bias_score_interval`. So p <=
    alpha where the interval of 1-alpha excludes [-tau, tau], and only where that of 1 - 2*alpha does; at tau = 0
    exactly where that of 1-alpha does. By exact enumeration (`bench/size.py`) of two cells at |phi| = tau, P(p <= a)/a
    is at most 1.2, 1.35 and 1.4 at a = .05, .001 and 1e-4.

    Args: correct, total: integers of shape (..., n); tau: finite, 0 or more.
    Returns: float64 of shape (..., n) in [0, 1]; 1 where |phi| <= tau, 0 only where the true value underflows. NaN
    where phi is NaN; no classes in, none out.
    Raises: ValueError as `bias_scores` does, or for tau.
    """
    return contrast_p_values(*_contrasts(*checked_cells(correct, total)), tau)


def equivalence_p_values(correct: ArrayLike, total: ArrayLike, tau: float) -> Floats:
    """Computes the p-value of every bias score for the null |phi| >= tau: small where the cell is certainly not biased
    beyond tau.

    p_j = max(P(estimate <= phi_j | tau), P(estimate >= phi_j | -tau)), two one-sided tests (Schuirmann 1987)

    with the probabilities of `bias_score_interval`: p < alpha exactly where the interval of 1 - 2*alpha lies within
    (-tau, tau). This makes "none" a finding whose errors over a family can be controlled like those of a bias.

    Args: correct, total: integers of shape (..., n); tau: finite, 0 or more; at 0 nothing is ever shown.
    Returns: float64 of shape (..., n) in [0, 1]; 1 where |phi| >= tau. NaN where phi is NaN; no classes in, none out.
    Raises: ValueError as `bias_scores` does, or for tau.
    """
    return contrast_none_p_values(*_contrasts(*checked_cells(correct, total)), tau)


def p_value_of_limit(difference: float, reach: float, confidence: float, tau: float = 0.0) -> float:
    """Computes the p-value of "|difference| <= tau" that corresponds to an interval reaching from the difference
    towards 0 by `reach`.

    Phi(-z * (|d| - tau) / reach) + Phi(-z * (|d| + tau) / reach), z the normal quantile of `confidence`: the chance, at
    a true difference of tau, of one as far out on either side. At tau = 0 it is two-sided: p < 1 - confidence exactly
    where the interval excludes 0. Suits intervals whose reach is nearly proportional to z.

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


@overload
def rogan_gladen(observed: float, sensitivity: float, specificity: float) -> float: ...
@overload
def rogan_gladen(observed: Values, sensitivity: float | Values, specificity: float | Values) -> Floats: ...
def rogan_gladen(observed: float | Values, sensitivity: float | Values, specificity: float | Values) -> float | Floats:
    """Estimates the true share of positives from an observed share, where the labels come from an imperfect test.

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
    arguments = {"observed": observed, "sensitivity": sensitivity, "specificity": specificity}
    rates = {name: np.asarray(values, dtype=np.float64) for name, values in arguments.items()}
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


def _contrasts(correct: Ints | Floats, total: Ints | Floats) -> tuple[Floats, Floats, Floats]:
    """Returns counts (..., 1, k) and the weights (..., j, k) of the cells' accuracies in phi_j: 1, -1/m, or 0 without
    data."""
    return np.asarray(correct, np.float64)[..., None, :], np.asarray(total, np.float64)[..., None, :], _weights(total)


def _weights(total: Ints | Floats) -> Floats:
    has_images = total > 0
    n_others = has_images.sum(axis=-1, keepdims=True) - 1
    weights = np.where(np.eye(has_images.shape[-1], dtype=bool), 1.0, -1.0 / np.maximum(n_others, 1)[..., None])
    weights = np.where(has_images[..., None, :], weights, 0.0)
    return np.where((has_images & (n_others > 0))[..., :, None], weights, np.nan)


# Decisions: corrections for multiple tests, and a verdict per cell.


Verdict = Literal["for", "against", "none", "undetermined"]


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Computes false-discovery-rate-adjusted p-values (Benjamini & Hochberg).

    q of the i-th smallest of m p-values = the least of p_(j) * m / j over j >= i

    Benjamini & Hochberg 1995, section 2, as step-up adjusted p-values: rejecting where q <= alpha keeps the expected
    share of false rejections at most alpha for independent (or positively dependent) tests.

    Args: p_values: floats in [0, 1] of any shape, all of it one family. NaN: no test was made.
    Returns: float64 of that shape in [0, 1], q >= p. NaN stays NaN and does not count in m; empty in, empty out.
    Raises: ValueError for a value outside [0, 1].
    """
    p = np.asarray(p_values, dtype=np.float64)
    for index in np.argwhere((p < 0) | (p > 1)):
        raise ValueError(f"p_values{index.tolist()} = {p[tuple(index)]} lies outside [0, 1]")
    q = np.full(p.shape, np.nan)
    tested = ~np.isnan(p)
    family = p[tested]
    order = np.argsort(family)
    stepped = family[order] * family.size / np.arange(1, family.size + 1)
    adjusted = np.empty_like(family)
    adjusted[order] = np.minimum.accumulate(stepped[::-1])[::-1]
    q[tested] = np.minimum(adjusted, 1.0)
    return q


def verdicts(phi: ArrayLike, q_values: ArrayLike, none_q_values: ArrayLike, tau: float, alpha: float) -> list[Verdict]:
    """Returns the four-valued verdict on every cell.

    "for" (phi > 0) or "against" (phi < 0) where |phi| > tau and q <= alpha; else "none" where none_q <= alpha; else
    "undetermined". This project's rule, not the paper's (`paper_verdicts`): a small sample is "undetermined", and
    "none" is a finding that needs as much evidence as a bias, with a false discovery rate of its own.

    Args: three arrays of shape (cells,); phi from `bias_scores`, q from `benjamini_hochberg` of `bias_score_p_values`,
    none_q of `equivalence_p_values`; tau: 0 or more; alpha: in (0, 1).
    Returns: one string per cell. A NaN in phi gives "undetermined", a NaN q no "for" or "against", a NaN none_q no
    "none". No cells in, [] out.
    Raises: ValueError where shapes differ or are not one-dimensional, or for tau or alpha.
    """
    score, q, none_q = (np.asarray(values, dtype=np.float64) for values in (phi, q_values, none_q_values))
    if score.ndim != 1 or not score.shape == q.shape == none_q.shape:
        raise ValueError(f"need three arrays of one shape (cells,), got {score.shape, q.shape, none_q.shape}")
    checked_margin(tau)
    checked_levels(alpha=alpha)
    is_finding = (np.abs(score) > tau) & (q <= alpha)
    small = (np.abs(score) <= tau) & (none_q <= alpha)
    answers: list[Verdict] = []
    for finding, is_for, is_small in zip(is_finding.tolist(), (score > 0).tolist(), small.tolist(), strict=True):
        if finding:
            answers.append("for" if is_for else "against")
        else:
            answers.append("none" if is_small else "undetermined")
    return answers


def selected_confidence(selected: int, tested: int, alpha: float) -> float:
    """Returns the confidence level for the intervals of R selected of m tests, so that their false coverage rate is at
    most alpha.

    1 - alpha * R / m,   R = max(selected, 1), m = tested

    Benjamini & Yekutieli 2005, procedure 1: among the intervals of selected parameters, the expected share that miss is
    at most alpha, for independent (and positively dependent) estimates and selection by Benjamini & Hochberg. An
    interval of 1 - alpha that was picked because it lies far out misses more often.

    Args: selected, tested: whole numbers, 0 <= selected <= tested; alpha: in (0, 1).
    Returns: float in [1 - alpha, 1); 1 - alpha without tests.
    Raises: ValueError for the numbers or alpha.
    """
    checked_levels(alpha=alpha)
    if not 0 <= selected <= tested:
        raise ValueError(f"selected = {selected}, tested = {tested}; need 0 <= selected <= tested")
    return 1 - alpha * max(selected, 1) / tested if tested else 1 - alpha
