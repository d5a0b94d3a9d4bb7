"""Decisions: corrections for multiple tests, and a verdict per cell.

Knows numbers only: p-values, scores and limits. Which cells form one family of tests, and what is drawn next,
is the caller's business.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.stats.roots import checked_levels, checked_margin
from c2b_ray.stats.scores import Floats

__all__ = [
    "Verdict",
    "benjamini_hochberg",
    "selected_confidence",
    "verdicts",
]

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
