"""Decisions: corrections for multiple tests, a verdict per cell, and the number of images that would settle it.

Knows numbers only: p-values, scores, limits and counts. Which cells form one family of tests, and what is drawn next,
is the caller's business.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from c2b_ray.metrics.levels import checked_levels, checked_margin
from c2b_ray.metrics.scores import Floats, Ints, accuracies, checked_cells, mean_of_others

__all__ = [
    "MOST_IMAGES",
    "Verdict",
    "benjamini_hochberg",
    "images_to_settle",
    "selected_confidence",
    "verdicts",
]

Verdict = Literal["for", "against", "none", "undetermined"]

MOST_IMAGES = 10_000_000  # per cell; beyond it `images_to_settle` answers that no number would do
HALVINGS = 60


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


def images_to_settle(correct: ArrayLike, total: ArrayLike, tau: float, alpha: float = 0.05, power: float = 0.8) -> Ints:
    """Computes how many images per cell would settle the verdict if the observed accuracies were the truth.

    With V_j = v_j + sum over k != j of v_k / m^2 and v = s(1-s), s = (correct + 2)/(total + 4), the estimate of phi_j
    from n images in every cell is near normal with variance V_j/n. The answer is the least n at which
      |phi| > tau:  the p-value of `bias_score_p_values` is at most alpha with probability `power`; with x = sqrt(n/V)
                    Phi(z_power - x * (|phi| - tau)) + Phi(z_power - x * (|phi| + tau)) = alpha
      |phi| < tau:  that of `equivalence_p_values` is (two one-sided tests).
    Both are solved by bisection. s is Agresti & Coull's (1998) add-two smoothing, so that accuracies of 0 and 1 do not
    promise certainty after one image. alpha is for one test: divide it by the cost of multiplicity.

    Args: correct, total: integers of shape (..., n); tau: 0 or more; alpha, power: in (0, 1).
    Returns: int64 of shape (..., n): images in each cell (in all, not on top of the present ones), 1 or more; also for
    cells that are settled already. -1 where no number up to MOST_IMAGES would do: |phi| = tau or next to it, or phi
    undefined. No classes in, none out.
    Raises: ValueError as `bias_scores` does, or for tau, alpha or power.
    """
    c, t = checked_cells(correct, total)
    checked_margin(tau)
    checked_levels(alpha=alpha, power=power)
    accuracy, held = accuracies(c, t)
    distance = np.abs(accuracy - mean_of_others(accuracy, held))
    smoothed = (c + 2) / (t + 4)
    variance = smoothed * (1 - smoothed)
    others = np.maximum(held.sum(axis=-1, keepdims=True) - 1, 1)
    variance = variance + mean_of_others(variance, held) / others
    beyond = _precision_beyond(distance, tau, alpha, power)
    needed = np.where(distance > tau, beyond, _precision_within(distance, tau, float(-ndtri(alpha)), power))
    with np.errstate(over="ignore"):
        images = np.maximum(np.ceil(variance * np.maximum(needed, 0.0) ** 2), 1.0)
    return np.where(images <= MOST_IMAGES, images, -1.0).astype(np.int64)


def _over(numerator: float, denominator: Floats) -> Floats:
    """Returns numerator/denominator where the denominator is positive, else infinity; NaN stays."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        over = np.where(denominator > 0, numerator / denominator, np.inf)
    return np.where(np.isnan(denominator), np.nan, over)


def _precision_beyond(distance: Floats, tau: float, alpha: float, power: float) -> Floats:
    """Computes the least 1/(standard error) at which an estimate has a p-value of at most alpha with the given
    probability."""
    reserve, room = float(ndtri(power)), distance - tau
    least, most = (_over(float(-ndtri(level)) + reserve, room) for level in (alpha, alpha / 2))
    least = np.maximum(least, 0.0)
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        with np.errstate(invalid="ignore"):
            p = ndtr(reserve - middle * room) + ndtr(reserve - middle * (distance + tau))
        least, most = np.where(p <= alpha, least, middle), np.where(p <= alpha, middle, most)
    return most


def _precision_within(distance: Floats, tau: float, z: float, power: float) -> Floats:
    """Computes the least 1/(standard error) at which an interval lies within [-tau, tau] with the given probability.

    One side alone needs at least (z + z_power)/(tau - |phi|); sharing the risk evenly between both sides always
    suffices.
    """
    room = tau - distance
    least, most = _over(z + float(ndtri(power)), room), _over(z + float(ndtri((1 + power) / 2)), room)
    least = np.maximum(least, 0.0)
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        with np.errstate(invalid="ignore"):
            chance = ndtr(middle * room - z) - ndtr(z - middle * (tau + distance))
        least, most = np.where(chance >= power, least, middle), np.where(chance >= power, middle, most)
    return most
