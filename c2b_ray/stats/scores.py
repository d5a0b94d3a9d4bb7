"""Bias scores of one attribute's cells: a classifier's accuracy on one bias class against its accuracy on the others.

Knows counts (images of a cell, and those classified correctly) and rates; knows nothing of images, classifiers, tables
or uncertainty (`intervals` has that). A cell without data is NaN and is left out, never counted as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-9
"""Of the sum of two counts that are not whole, relative to their total."""


def bias_scores(correct: ArrayLike, total: ArrayLike) -> Floats:
    """Computes the bias score of every bias class: its accuracy minus the mean accuracy of the others.

    phi_j = A_j - 1/m * sum of A_k over k != j,   A_j = correct_j / total_j,   m = number of other cells that hold data

    Classifier-to-Bias (CVPR 2025), Eq. 1. Its divisor is 1/(n-1) over all other classes; here a class without data is
    left out of the others' mean, so m = n-1 when every cell holds data.

    Args: correct, total: integers of shape (..., n), the n bias classes of one attribute on the last axis.
    Returns: float64 of shape (..., n) in [-1, 1], positive where the classifier favours the class. 0: as accurate as on
    the others. The scores of a row sum to 0; with two cells they are the accuracy gap and its negative. NaN where total
    is 0, and everywhere in a row with fewer than two cells that hold data. No classes in, no scores out.
    Raises: ValueError where not 0 <= correct <= total in whole numbers (with index and values), or where shapes differ.
    """
    accuracy, has_images = accuracies(*checked_cells(correct, total))
    return accuracy - mean_of_others(accuracy, has_images)


def paper_verdicts(correct: ArrayLike, total: ArrayLike, tau: float | str | Decimal | Fraction) -> Ints:
    """Returns the paper's verdict on every bias class: the sign of phi where |phi| > tau, else 0.

    Classifier-to-Bias (CVPR 2025), section 4.1, with phi of `bias_scores`. The inequality is strict and decided in
    exact rational arithmetic: 0.80 against 0.75 is not beyond 0.05, though their float difference is. `tau` stands for
    the decimal number that it prints as, so the float 0.05 is exactly 1/20; a Fraction is taken as it is.

    Args: correct, total: integers of shape (..., n); tau: threshold, 0 or more.
    Returns: int64 of shape (..., n): 1 biased for the class, -1 against it, 0 neither. A cell whose phi is undefined is
    0 too, as in the paper; `verdicts` says "undetermined" instead. No classes in, none out.
    Raises: ValueError as `bias_scores` does, and for a tau that is negative or not finite.
    """
    right, totals = checked_cells(correct, total)
    threshold = _exact(tau)
    signs = np.zeros(right.shape, dtype=np.int64)
    for row in np.ndindex(right.shape[:-1]):
        cells = {
            j: Fraction(c, t)
            for j, (c, t) in enumerate(zip(right[row].tolist(), totals[row].tolist(), strict=True))
            if t
        }
        if len(cells) < 2:
            continue
        accuracy_sum = sum(cells.values(), Fraction(0))
        for j, accuracy in cells.items():
            phi = accuracy - (accuracy_sum - accuracy) / (len(cells) - 1)
            signs[(*row, j)] = (phi > threshold) - (phi < -threshold)
    return signs


def kl_from_uniform(rates: Sequence[float] | NDArray[np.floating]) -> float:
    """Measures how far the rates of groups are from being equal: KL(p || uniform) of the rates scaled to sum to 1,
    natural logarithm.

    KL = sum over a of p_a * log(p_a * |A|),   p_a = r_a / sum of r

    Social bias transfer in CLIP (Ramos et al. 2025), Eq. 1 with r = recall@k, and Eq. 3 with any other score.

    Args: rates: floats of shape (groups,), 0 or more (recall@k, accuracy, CIDEr).
    Returns: float in [0, log(groups)]. 0: all equal (or one group only). NaN for no groups, for rates that are all 0,
    and where any rate is NaN: a group without data makes the disparity unknown, not small.
    Raises: ValueError for a negative or infinite rate, or for an input that is not one-dimensional.
    """
    r = np.asarray(rates, dtype=np.float64)
    if r.ndim != 1:
        raise ValueError(f"rates must be one-dimensional, got shape {r.shape}")
    for index in np.flatnonzero((r < 0) | np.isinf(r)):
        raise ValueError(f"rates[{index}] = {r[index]}: a rate is finite and 0 or more")
    if np.isnan(r).any() or not r.any():
        return float("nan")
    p = r / r.max()
    p /= p.sum()
    return max(0.0, float(rel_entr(p, np.full_like(p, 1 / len(p))).sum()))


def checked_counts(correct: ArrayLike, total: ArrayLike) -> tuple[Ints, Ints]:
    """Returns both as int64 arrays of one shape with 0 <= correct <= total, or raises a ValueError that names index and
    values."""
    c, t = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
    if c.shape != t.shape:
        raise ValueError(f"correct has shape {c.shape}, total has shape {t.shape}")
    sound = np.isfinite(t) & (np.floor(c) == c) & (np.floor(t) == t) & (c >= 0) & (c <= t)
    for index in np.argwhere(~sound):
        i = tuple(index.tolist())
        raise ValueError(f"cell {i}: correct={c[i]}, total={t[i]}; need whole numbers with 0 <= correct <= total")
    return c.astype(np.int64), t.astype(np.int64)


def checked_pairs(only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Returns the counts as float64 arrays of one shape with 0 <= only_a + only_b <= total, which need not be whole, or
    raises a ValueError that names index and values."""
    a, b, n = (np.asarray(counts, dtype=np.float64) for counts in (only_a, only_b, total))
    if not a.shape == b.shape == n.shape:
        raise ValueError(f"the counts have shapes {a.shape}, {b.shape} and {n.shape}")
    sound = np.isfinite(n) & (a >= 0) & (b >= 0) & (a + b <= n * (1 + ROUNDING))
    for index in np.argwhere(~sound):
        i = tuple(index.tolist())
        raise ValueError(f"cell {i}: only_a={a[i]}, only_b={b[i]}, total={n[i]}; need 0 <= only_a + only_b <= total")
    return a, b, n


def checked_cells(correct: ArrayLike, total: ArrayLike) -> tuple[Ints, Ints]:
    """Like `checked_counts`, and requires at least one axis, the last of which holds the classes."""
    c, t = checked_counts(correct, total)
    if c.ndim == 0:
        raise ValueError("correct and total need an axis of bias classes; got scalars")
    return c, t


def accuracies(correct: Ints | Floats, total: Ints | Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Returns the accuracy of each cell (NaN without data) and a mask of the cells that hold data."""
    has_images = total > 0
    return np.divide(correct, total, out=np.full(total.shape, np.nan), where=has_images), has_images


def mean_of_others(values: Floats, has_images: NDArray[np.bool_]) -> Floats:
    """Computes for every j on the last axis the mean of the values over the other held cells; NaN where there
    is none."""
    off_diagonal = 1.0 - np.eye(values.shape[-1])
    count = has_images @ off_diagonal
    total: Floats = np.where(has_images, values, 0.0) @ off_diagonal
    mean: Floats = np.divide(total, count, out=np.full(values.shape, np.nan), where=count > 0)
    return mean


def _exact(tau: float | str | Decimal | Fraction) -> Fraction:
    try:
        threshold = Fraction(str(tau))
    except ValueError as error:
        raise ValueError(f"tau = {tau!r} is not a finite number") from error
    if threshold < 0:
        raise ValueError(f"tau = {tau!r} is negative")
    return threshold


def bias_score_deviations(deviation: ArrayLike, number: ArrayLike) -> Floats:
    """Computes the standard deviation of every bias score, each accuracy being the mean of independent numbers.

    D_j = sqrt(d_j^2 / N_j + sum over k != j of d_k^2 / N_k / m^2),   m the number of other values with N > 0

    Args: deviation: d, of one of the numbers that a value's accuracy is the mean of: of an answer, or of a caption's
    accuracy; (..., values), 0 or more, NaN where not known. number: N, how many there are, 0 or more, of the same
    shape.
    Returns: float64 (..., values), 0 or more. A value without numbers, or with an unknown deviation, adds nothing.
    """
    d, n = np.nan_to_num(np.asarray(deviation, np.float64)), np.asarray(number, np.float64)
    of_mean = np.divide(d**2, n, out=np.zeros(np.broadcast_shapes(d.shape, n.shape)), where=n > 0)
    n_others = np.maximum((n > 0).sum(axis=-1, keepdims=True) - (n > 0), 1)
    result: Floats = np.sqrt(of_mean + (of_mean.sum(axis=-1, keepdims=True) - of_mean) / n_others**2)
    return result


# Computes functions of arrays a block of rows at a time, so that temporary arrays do not grow with the number of
# rows.


BLOCK = 2**20
"""Numbers in a block of one array: 8 MiB."""


def by_blocks(function: Callable[..., Floats], *arrays: ArrayLike) -> Floats:
    """Returns `function` of the arrays, broadcast to one shape, in blocks along the first axis.

    Args: function: of float64 arrays of one shape, along whose first axis it computes each row by itself; arrays: as
    `numpy.broadcast_arrays` takes them.
    Returns: what `function` returns, the blocks' results one after the other.
    """
    broadcast = np.broadcast_arrays(*(np.asarray(array, np.float64) for array in arrays))
    shape = broadcast[0].shape
    size = max(1, BLOCK // max(1, prod(shape[1:])))
    if len(shape) < 2 or shape[0] <= size:
        return function(*broadcast)
    return np.concatenate(
        [function(*(array[start : start + size] for array in broadcast)) for start in range(0, shape[0], size)]
    )
