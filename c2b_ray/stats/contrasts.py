"""Tests and limits of a weighted sum of accuracies, such as a bias score: exact enough far out in the tail.

Works on counts, which need not be whole (an effective number of images), and signed weights. Cells are taken as
independent samples.

The tail probability of a sum T = sum of w_k * correct_k / total_k, were the true sum phi0, is computed at the most
likely accuracies with that sum, from counts with half a right and half a wrong answer added (Jeffreys 1946), by the
saddlepoint approximation (Lugannani & Rice 1980, in the form of Barndorff-Nielsen 1986):

    P(T >= t) = Phi(-r),   r = d + log(u / d) / d,   d = sign(s) * sqrt(2 * (s * t - K(s))),   u = s * sqrt(K''(s))

with K the sum's cumulant generating function and K'(s) = t. Estimating the nuisance accuracies under the null is
Storer & Kim's (1990) test; a normal approximation in place of the saddlepoint is Miettinen & Nurminen's (1985) score
test, whose tail at unequal totals and accuracies near 1 is too light by a factor of 25 at 1e-4.

Where one cell is far coarser than the rest is noisy (20 images against 200 that are all right), T moves in steps, and
t is moved by up to half a step towards the null: by h/2 * exp(-2 * pi^2 * v / h^2), h the cell's step w/total and v the
other cells' variance, which is how much of the steps that noise leaves (the first harmonic of a Gaussian on a lattice).

Where images come in clusters, such as those of one camera, `design` says by how much the variance of each sum exceeds
that of independent images, and how well that is known (`cluster_design`). Counts are then divided by that factor, and
tails and limits are those of Student's t in place of the normal distribution. A design never makes a result surer: each
p-value is the larger one, and each limit the farther one, of those with and without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, stdtr, stdtrit

from c2b_ray.stats.roots import FARTHEST, MOST_DEVIATIONS, PRECISION, checked_margin, crossing, deviations, falling_root
from c2b_ray.stats.scores import Floats, Ints, by_blocks

PSEUDO = 0.5  # right answers, and as many wrong ones, added to every cell
STEPS = 5.0  # weight of the sum's own steps in the move of t
NEAR = 1e-3  # deviates within which log(u / d) / d is its limit
EDGE = 1e-6  # how near to the ends of its range a sum is looked at
NORMAL = 1e6  # degrees of freedom from which on Student's t is normal


@dataclass(frozen=True)
class Design:
    """How images were sampled, for every weighted sum; float64 (..., sums).

    `factor`: the variance of the sum over that of as many independent images (Kish's design effect), above 0.
    `degrees`: degrees of freedom of its estimate, above 0.
    """

    factor: Floats
    degrees: Floats


def contrast_counts(
    accuracy: ArrayLike, effective: ArrayLike, weights: ArrayLike, covariance: ArrayLike | None = None
) -> tuple[Floats, Floats, Floats]:
    """Prepares weighted sums of accuracies that need not be independent for the functions below.

    total_jk = effective_k / f_j,   f_j = max(1, w_j' V w_j / sum over k of w_jk^2 V_kk),   correct = accuracy * total

    Estimates that share doubtful images err together, often in opposite directions. The number of images behind a sum
    is reduced until independent estimates would have the same error.

    Args: accuracy, effective: (..., cells), NaN and 0 where a cell has no images; weights: signed, (..., sums, cells);
    covariance: V, of the accuracies, (..., cells, cells); without it they are independent.
    Returns: (correct, total, weights), float64 (..., sums, cells).
    """
    w, images = np.asarray(weights, np.float64), np.asarray(effective, np.float64)[..., None, :]
    factor = np.ones(w.shape[:-1])
    if covariance is not None:
        signed, v = np.nan_to_num(w), np.nan_to_num(np.asarray(covariance, np.float64))
        variance = np.einsum("...jk,...kl,...jl->...j", signed, v, signed)
        independent = (signed**2 * np.diagonal(v, axis1=-2, axis2=-1)[..., None, :]).sum(axis=-1)
        factor = np.maximum(np.divide(variance, independent, out=factor, where=independent > 0), 1.0)
    total = images / factor[..., None]
    return np.nan_to_num(np.asarray(accuracy, np.float64))[..., None, :] * total, total, w


def contrast_reach(weights: ArrayLike, below: ArrayLike, above: ArrayLike) -> tuple[Floats, Floats]:
    """Computes how far weighted sums of estimates may lie below and above, from how far each estimate may.

    below_j = sqrt(sum of (w_jk * below_k)^2 over w_jk > 0, and of (w_jk * above_k)^2 over w_jk < 0); above_j likewise

    Squares of deviations of independent estimates add, each end from the ends of the estimates (MOVER; Zou & Donner
    2008, Statistics in Medicine 27: 1693-1702).

    Args: weights: signed, (..., sums, cells), NaN counts as 0; below, above: of estimates, 0 or more, (..., cells).
    Returns: (below, above), float64 (..., sums), 0 or more.
    """
    w = np.nan_to_num(np.asarray(weights, np.float64))
    lower, upper = (np.asarray(side, np.float64)[..., None, :] for side in (below, above))
    positive = w > 0
    ends = np.where(positive, lower, upper), np.where(positive, upper, lower)
    reach_below, reach_above = (np.sqrt(((w * end) ** 2).sum(axis=-1)) for end in ends)
    return reach_below, reach_above


def contrast_p_values(
    correct: ArrayLike, total: ArrayLike, weights: ArrayLike, tau: float = 0.0, design: Design | None = None
) -> Floats:
    """Computes the p-value of every weighted sum of accuracies S for the interval null |S| <= tau.

    p = P(T beyond t, away from 0 | S = tau * sign(t)) + P(T beyond t, the same way | S = -tau * sign(t))

    the probability of a sum so far out, were the truth at either end of the null: near one-sided where 2 * tau is
    beyond chance's reach, twice the one-sided p at tau = 0, continuous in between (Hodges & Lehmann 1954).

    Args: correct, total: of shapes that broadcast to (..., sums, cells), 0 <= correct <= total, not necessarily whole;
    weights: signed, of the same shape; 0 where total is 0. tau: finite, 0 or more. design: None for independent images.
    Returns: float64 (..., sums) in [0, 1]; 1 where |S| <= tau; NaN where a weight is.
    Raises: ValueError for tau.
    """
    checked_margin(tau)
    return _surest(partial(_p_values, tau=tau), (correct, total, weights), design)


def _p_values(correct: Floats, total: Floats, weights: Floats, degrees: Floats, tau: float) -> Floats:
    c, n, w, df, shape = _rows(correct, total, weights, degrees)
    observed = _sums(c, n, w)
    p = np.where(np.isnan(observed), np.nan, 1.0)
    exceeds = np.abs(observed) > tau
    c, n, df = c[exceeds], n[exceeds], df[exceeds]
    w = w[exceeds] * np.sign(observed[exceeds])[:, None]
    if tau:
        c, n, w, ends = *(np.concatenate((part, part)) for part in (c, n, w)), np.repeat([tau, -tau], len(w))
        tails = _tail(_deviate(c, n, w, ends), np.tile(df, 2)).reshape(2, -1).sum(axis=0)
    else:
        tails = 2 * _tail(_deviate(c, n, w, np.zeros(len(w))), df)
    p[exceeds] = np.minimum(tails, 1.0)
    return p.reshape(shape)


def contrast_none_p_values(
    correct: ArrayLike, total: ArrayLike, weights: ArrayLike, tau: float, design: Design | None = None
) -> Floats:
    """Computes the p-value of every weighted sum of accuracies S for the null |S| >= tau: small where S is certainly
    within (-tau, tau).

    p = max(P(T <= t | S = tau), P(T >= t | S = -tau)), two one-sided tests (Schuirmann 1987)

    Args: as for `contrast_p_values`.
    Returns: float64 (..., sums) in [0, 1]; 1 where |S| >= tau, so everywhere at tau = 0; NaN where a weight is.
    Raises: ValueError for tau.
    """
    checked_margin(tau)
    return _surest(partial(_none_p_values, tau=tau), (correct, total, weights), design)


def _none_p_values(correct: Floats, total: Floats, weights: Floats, degrees: Floats, tau: float) -> Floats:
    c, n, w, df, shape = _rows(correct, total, weights, degrees)
    observed = _sums(c, n, w)
    p = np.where(np.isnan(observed), np.nan, 1.0)
    is_within = np.abs(observed) < tau
    c, n, w, df = c[is_within], n[is_within], w[is_within], df[is_within]
    end = np.full(2 * len(w), -tau)
    deviates = _deviate(np.concatenate((c, c)), np.concatenate((n, n)), np.concatenate((w, -w)), end)
    p[is_within] = _tail(deviates.reshape(2, -1).min(axis=0), df)
    return p.reshape(shape)


def contrast_interval(
    correct: ArrayLike,
    total: ArrayLike,
    weights: ArrayLike,
    confidence: float = 0.95,
    design: Design | None = None,
) -> tuple[Floats, Floats]:
    """Computes the limits of every weighted sum of accuracies: the sums that neither one-sided test rejects at (1 -
    confidence)/2.

    So the interval of 1 - 2 * alpha lies above tau where P(T >= t | S = tau) < alpha, which is `contrast_p_values`
    without the far end of its null; at tau = 0 the interval of 1 - alpha corresponds to it exactly. The interval of 1 -
    2 * alpha lies within [-tau, tau] exactly where `contrast_none_p_values` is below alpha.

    Args: as for `contrast_p_values`; confidence: in (0, 1).
    Returns: (low, high), float64 (..., sums), low <= S <= high, within what the sum can be. NaN where a weight is.
    Raises: ValueError for the confidence.
    """
    # Limits as (-low, high), so that the farther one is the larger one, as with p-values.
    limits = _surest(partial(_limits, z=deviations(confidence)), (correct, total, weights), design)
    return -limits[..., 0], limits[..., 1]


def _limits(correct: Floats, total: Floats, weights: Floats, degrees: Floats, z: float) -> Floats:
    c, n, w, df, shape = _rows(correct, total, weights, degrees)
    deviates = np.tile(np.where(df < NORMAL, np.minimum(stdtrit(df, ndtr(z)), MOST_DEVIATIONS), z), 2)
    # Both ends in one go: of few sums, each step of the search costs what NumPy takes to be called.
    low, high = np.split(_limit(np.concatenate((c, c)), np.concatenate((n, n)), np.concatenate((w, -w)), deviates), 2)
    return np.stack((-low.reshape(shape), -high.reshape(shape)), axis=-1)


def _surest(function: Callable[..., Floats], counts: tuple[ArrayLike, ...], design: Design | None) -> Floats:
    """Returns `function` of counts and degrees of freedom: for independent images, or the larger of that and of what
    it is under the design."""
    independent = by_blocks(function, *counts, np.inf)
    if design is None:
        return independent
    correct, total, weights = counts
    factor = design.factor[..., None]
    of_clusters = np.asarray(correct) / factor, np.asarray(total) / factor, weights
    return np.maximum(independent, by_blocks(function, *of_clusters, design.degrees[..., None]))


def _tail(deviate: Floats, degrees: Floats) -> Floats:
    """Returns the probability beyond a deviate, by Student's t, which with infinite degrees of freedom is normal."""
    tail: Floats = np.where(degrees < NORMAL, stdtr(np.minimum(degrees, NORMAL), -deviate), ndtr(-deviate))
    return tail


def _rows(
    correct: Floats, total: Floats, weights: Floats, degrees: Floats
) -> tuple[Floats, Floats, Floats, Floats, tuple[int, ...]]:
    shape = correct.shape
    c, n, w, df = (np.reshape(array, (prod(shape[:-1]), shape[-1])) for array in (correct, total, weights, degrees))
    return c, n, w, df.max(axis=-1, initial=0.0), shape[:-1]


def _sums(c: Floats, n: Floats, w: Floats) -> Floats:
    sums: Floats = (w * np.divide(c, n, out=np.zeros(n.shape), where=n > 0)).sum(axis=-1)
    return sums


def _limit(c: Floats, n: Floats, w: Floats, z: Floats) -> Floats:
    """Finds the lower limit: the sum phi0 at which P(T >= t | phi0) = Phi(-z), for the z of each row."""
    limits = _sums(c, n, w)
    indices = np.flatnonzero(~np.isnan(limits))
    c, n, w, inside, z = c[indices], n[indices], w[indices], limits[indices], z[indices]
    lowest = np.minimum(w, 0.0).sum(axis=-1)
    smooth = (c + 1) / (n + 2)
    error = np.sqrt((w**2 * smooth * (1 - smooth) / np.maximum(n, PRECISION) * (w != 0)).sum(axis=-1))
    # The usual limit first: most lie next to it.
    outside = np.maximum(inside - z * error, (inside + lowest) / 2)
    value_in, value_out = -z, _deviate(c, n, w, outside) - z
    is_near = value_out < 0
    inside, value_in = np.where(is_near, outside, inside), np.where(is_near, value_out, value_in)
    outside = np.where(is_near, lowest, outside)
    value_out[is_near] = _deviate(c[is_near], n[is_near], w[is_near], lowest[is_near]) - z[is_near]

    def excess(phi0: Floats, rows: Ints) -> Floats:
        return _deviate(c[rows], n[rows], w[rows], phi0) - z[rows]

    crossed = crossing(excess, (inside, outside), (value_in, value_out))
    limits[indices] = np.minimum(crossed, limits[indices])
    return limits


def _deviate(c: Floats, n: Floats, w: Floats, phi0: Floats) -> Floats:
    """Computes, for every row, r with P(T >= t | phi0) = Phi(-r)."""
    low, high = np.minimum(w, 0.0).sum(axis=-1), np.maximum(w, 0.0).sum(axis=-1)
    margin = EDGE * (high - low)
    p = _constrained(c + PSEUDO, n + 2 * PSEUDO, w, np.clip(phi0, low + margin, high - margin))
    step = w / np.maximum(n, PRECISION) * (n > 0)
    t = np.clip(_sums(c, n, w) - _shift(p, n, step), low + margin, high - margin)
    s = _tilt(p, n, w, step, t)
    shift = s[:, None] * step
    tilted = expit(logit(p) + shift)
    scatter = n * tilted * (1 - tilted)
    variance = (step**2 * scatter).sum(axis=-1)
    # log(1 - p + p*e^x): exact where x is small, and without overflow where it is large.
    small = np.abs(shift) < 1
    growth = np.where(
        small, np.log1p(p * np.expm1(np.where(small, shift, 0.0))), np.logaddexp(np.log1p(-p), np.log(p) + shift)
    )
    d = np.sign(s) * np.sqrt(np.maximum(2 * (s * t - (n * growth).sum(axis=-1)), 0.0))
    is_far = np.abs(d) > NEAR
    ratio = np.divide(s * np.sqrt(variance), d, out=np.ones(d.shape), where=is_far)
    # As d vanishes, log(u / d) / d tends to a sixth of the skewness.
    cubes = (step**3 * scatter * (1 - 2 * tilted)).sum(axis=-1)
    skewness = np.divide(cubes, variance**1.5, out=np.zeros(d.shape), where=variance > 1e-100)
    r: Floats = d + np.divide(np.log(np.maximum(ratio, 1e-300)), d, out=skewness / 6, where=is_far)
    return r


def _shift(p: Floats, n: Floats, step: Floats) -> Floats:
    """Computes how far t is moved towards the null to allow for the steps in which the sum moves."""
    variance = step**2 * n * p * (1 - p)
    total = variance.sum(axis=-1, keepdims=True)
    rough = np.exp(-(np.pi**2) * np.divide(total - variance, step**2, out=np.zeros(n.shape), where=step != 0))
    coarsest: Floats = (np.abs(step) * rough).max(axis=-1, initial=0.0)
    finest = np.abs(np.where(step == 0, np.inf, step)).min(axis=-1, initial=FARTHEST)
    capped = finest * np.minimum(1.0, STEPS * finest**2 / np.maximum((step**2 * n).sum(axis=-1) / 4, 1e-300))
    shift: Floats = np.maximum(coarsest, capped) / 2
    return shift


def _constrained(x: Floats, n: Floats, w: Floats, phi0: Floats) -> Floats:
    """Computes the most likely accuracies whose weighted sum is phi0: (x - n*p) / (p * (1 - p)) = L * w, for one L per
    row."""

    def value(multiplier: Floats) -> tuple[Floats, Floats]:
        p, root = _at_multiplier(x, n, w, multiplier)
        return (w * p).sum(axis=-1) - phi0, -(w * w * p * (1 - p) / root).sum(axis=-1)

    p, _ = _at_multiplier(x, n, w, falling_root(value, n.max(axis=-1, initial=1.0)))
    return np.clip(p, 1e-300, 1 - 1e-16)


def _at_multiplier(x: Floats, n: Floats, w: Floats, multiplier: Floats) -> tuple[Floats, Floats]:
    force = multiplier[:, None] * w
    # (f - n)^2 + 4f(n - x) and (f + n)^2 - 4fx are the same: the one without cancelling is taken.
    root = np.sqrt(np.where(force > 0, (force - n) ** 2 + 4 * force * (n - x), (force + n) ** 2 - 4 * force * x))
    right = 2 * x / np.where(force + n > 0, force + n + root, 1.0)
    wrong = 2 * (n - x) / np.where(n - force > 0, n - force + root, 1.0)
    return np.where(force > -n / 2, right, 1 - wrong), root


def _tilt(p: Floats, n: Floats, w: Floats, step: Floats, t: Floats) -> Floats:
    """Finds s with K'(s) = t."""
    odds = logit(p)

    def value(multiplier: Floats) -> tuple[Floats, Floats]:
        q = expit(odds + multiplier[:, None] * step)
        return t - (w * q).sum(axis=-1), -(step * w * q * (1 - q)).sum(axis=-1)

    return falling_root(value, n.max(axis=-1, initial=1.0))
