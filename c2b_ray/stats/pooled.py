"""Bias scores of an attribute's values pooled over all classes.

Knows accuracies and how many images they rest on, a row per class; knows nothing of images or of what classes are.
Classes and cells are independent samples, but for clusters of images where they are given, and for an error that all
classes share, such as that of one verifier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.clusters import cluster_design, with_other_variance
from c2b_ray.stats.contrasts import contrast_interval, contrast_none_p_values, contrast_p_values
from c2b_ray.stats.scores import BLOCK, Floats

PSEUDO = 0.5
"""Right answers, and as many wrong ones, added to a cell where its variance is needed: it is never exactly 0."""


@dataclass(frozen=True)
class PooledScores:
    """Pooled scores, float64 (values,): φ over all classes with limits, p-values of |φ| ≤ τ and of |φ| ≥ τ, and
    accuracy with the weights of φ. `classes` int64: the number of classes in which the value and at least one other
    hold images; `shares` (classes, values): the weights of the classes' φ, which sum to 1. For a value with no such
    class the shares are 0, and all else is NaN."""

    phi: Floats
    low: Floats
    high: Floats
    p_value: Floats
    none_p_value: Floats
    accuracy: Floats
    classes: NDArray[np.int64]
    shares: Floats


def pooled_bias_scores(
    accuracy: ArrayLike,
    images: ArrayLike,
    tau: float = 0.0,
    confidence: float = 0.95,
    clusters: tuple[ArrayLike, ArrayLike] | None = None,
    counted: ArrayLike | None = None,
    shared: ArrayLike | None = None,
) -> PooledScores:
    """Computes φ of every value of an attribute, stratified by class.

    phi_j = sum over classes c of w_cj * phi_cj / sum of w_cj,   1/w_cj = 1/n_cj + 1/m^2 * sum of 1/n_ck over k != j

    phi_cj is C2B's Eq. 1 within class c. A class's weight depends on its numbers of images n and not on its accuracy:
    with two values w is Mantel and Haenszel's weight of a risk difference (Greenland & Robins 1985); with as many
    images in every cell φ is the plain mean. Values are compared only within a class, so a hard class with many images
    of one value does not feign an effect. Limits and p-values are those of the weighted sum of all cells' accuracies
    (`contrasts`), with the images of every cell divided by

        1 + ((sum of w_cj * e_cj)^2 - sum of (w_cj * e_cj)^2) / sum over cells of the variance of their part in phi_j

    e the part of the standard error of phi_cj that the classes share, such as that of one verifier's error rates: it
    does not average out. Taken as perfectly correlated, its sum is the largest that it can be.

    Args: accuracy: (classes, values) in [0, 1], NaN where a cell holds no image; images: (classes, values), 0 or more,
    need not be whole: what the accuracies are worth. tau: 0 or more. confidence: in (0, 1). clusters: right answers and
    images (classes, values, clusters), where images come in clusters that may hold images of several classes
    (`clusters.cluster_design`). counted: (classes, values), the numbers n where they are not `images`. shared: e,
    (classes, values), 0 or more; without it nothing is shared.
    Returns: `PooledScores`. 0: no class-stratified difference. No classes in: NaN.
    Raises: ValueError where shapes differ or are not two-dimensional, or for tau or the confidence.
    """
    a, n = np.asarray(accuracy, np.float64), np.asarray(images, np.float64)
    fixed = n if counted is None else np.asarray(counted, np.float64)
    shared_error = np.zeros(a.shape) if shared is None else np.nan_to_num(np.asarray(shared, np.float64))
    if a.ndim != 2 or not a.shape == n.shape == fixed.shape == shared_error.shape:
        raise ValueError(
            "accuracy, images, counted and shared must have one shape (classes, values), got "
            f"{a.shape}, {n.shape}, {fixed.shape} and {shared_error.shape}"
        )
    if not a.size:
        gap, no_classes = np.full(a.shape[1], np.nan), np.zeros(a.shape[1], np.int64)
        return PooledScores(gap, gap, gap, gap, gap, gap, no_classes, np.zeros(a.shape))
    nonempty = (n > 0) & ~np.isnan(a)
    shares = _shares(np.where(nonempty, np.maximum(fixed, 1.0), 0.0), nonempty)
    rates, images_held = np.where(nonempty, a, 0.0), np.where(nonempty, n, 0.0)
    by_cluster = None
    if clusters is not None:
        by_cluster = _ByCluster.of(
            *(
                np.where(nonempty[..., None], np.asarray(counts_of_cluster, np.float64), 0.0)
                for counts_of_cluster in clusters
            )
        )
    parts = shares.share * shared_error  # (c, j)
    shared_variance = parts.sum(axis=0) ** 2 - (parts**2).sum(axis=0)
    counts = _Counts(rates, images_held, shared_variance, by_cluster)
    size = max(1, BLOCK // a.size)
    blocks = [
        _of_values(np.arange(start, min(start + size, a.shape[1])), shares, counts, tau, confidence)
        for start in range(0, a.shape[1], size)
    ]
    gap, low, high, p, none_p = np.concatenate(blocks, axis=1)
    level = np.where(shares.classes > 0, (shares.share * rates).sum(axis=0), np.nan)
    return PooledScores(gap, low, high, p, none_p, level, shares.classes, shares.share)


@dataclass(frozen=True)
class _Shares:
    """How much each class counts in the φ of each value, `share` (c, j); `others` (c, j): the other values that a class
    holds; `nonempty` (c, k); `classes` (j): how many count."""

    share: Floats
    others: NDArray[np.int64]
    nonempty: NDArray[np.bool_]
    classes: NDArray[np.int64]


@dataclass(frozen=True)
class _ByCluster:
    """Right answers and images of all cells, (cells, clusters), and the variance of an answer (cells,)."""

    right: Floats
    images: Floats
    variance: Floats

    @classmethod
    def of(cls, right: Floats, images: Floats) -> _ByCluster:
        right, images = (array.reshape(-1, array.shape[-1]) for array in (right, images))
        smooth = (right.sum(axis=1) + 0.5) / (images.sum(axis=1) + 1)
        return cls(right, images, smooth * (1 - smooth))


@dataclass(frozen=True)
class _Counts:
    """Accuracies and what they are worth, (classes, values); `more`, (values,): what the classes' common error adds to
    the variance of every φ; and right answers by cluster, where images come in clusters."""

    rates: Floats
    images: Floats
    more: Floats
    by_cluster: _ByCluster | None


def _of_values(values: NDArray[np.int64], shares: _Shares, counts: _Counts, tau: float, confidence: float) -> Floats:
    """Returns φ, its limits, p and none_p of some values, (5, values)."""
    itself = np.arange(counts.rates.shape[1]) == values[:, None]
    n_others = np.maximum(shares.others[:, values], 1).T
    contrast = np.where(itself[:, None, :], 1.0, -(shares.nonempty[None] / n_others[:, :, None]))  # (j, c, k)
    rows = (shares.share[:, values].T[:, :, None] * contrast).reshape(len(values), -1)
    rows[shares.classes[values] == 0] = np.nan
    smooth = ((counts.rates * counts.images + PSEUDO) / (counts.images + 2 * PSEUDO)).ravel()
    total, rates = counts.images.ravel(), counts.rates.ravel()
    variances = np.divide(smooth * (1 - smooth), total, out=np.zeros(total.shape), where=total > 0)
    independent = np.nan_to_num(rows) ** 2 @ variances
    shared_ratio = np.divide(counts.more[values], independent, out=np.zeros(len(values)), where=independent > 0)
    effective = total / (1 + shared_ratio)[:, None]
    design = None
    if (by_cluster := counts.by_cluster) is not None:
        n = by_cluster.images.sum(axis=1)
        of_clusters = rows**2 @ np.divide(by_cluster.variance, n, out=np.zeros(n.shape), where=n > 0)
        design = cluster_design(by_cluster.right, by_cluster.images, by_cluster.variance, rows)
        design = with_other_variance(design, of_clusters, independent * (1 + shared_ratio))
    cells = rates * effective, effective, rows
    low, high = contrast_interval(*cells, confidence, design)
    p, none_p = contrast_p_values(*cells, tau, design), contrast_none_p_values(*cells, tau, design)
    return np.stack((rows @ rates.ravel(), low, high, p, none_p))


def _shares(n: Floats, nonempty: NDArray[np.bool_]) -> _Shares:
    n_others = np.maximum(nonempty.sum(axis=1, keepdims=True) - nonempty, 0)  # (c, j)
    spread = np.divide(1.0, n, out=np.zeros(n.shape), where=nonempty)
    other_variance = (spread.sum(axis=1, keepdims=True) - spread) / np.maximum(n_others, 1) ** 2
    is_usable = nonempty & (n_others > 0)
    weights = np.divide(1.0, spread + other_variance, out=np.zeros(n.shape), where=is_usable)
    total = weights.sum(axis=0)
    share = np.divide(weights, total, out=np.zeros(n.shape), where=total > 0)  # (c, j)
    return _Shares(share, n_others, nonempty, is_usable.sum(axis=0))


# Empirical Bayes: estimates of many effects at once, each shrunk towards 0 by the noise that the whole family
# shows.


WIDTHS = 16  # of the prior's components, from a tenth of the least standard error to twice the largest estimate
ROUNDS = 300
NULL = 10.0  # effects' worth of belief in exactly 0, as Stephens has it


def shrunken(phi: ArrayLike, standard_error: ArrayLike) -> Floats:
    """Computes the posterior mean of every effect, given its estimate and the spread of the family's estimates.

    E[effect | estimate],   effect ~ sum of w_k * Normal(0, s_k^2),   estimate ~ Normal(effect, standard_error^2)

    with the weights w of a grid of widths s (0 among them) fitted to the family by maximum penalised likelihood (EM):
    empirical Bayes in the form of Stephens 2017 ("False discovery rates: a new deal", Biostatistics 18). The largest of
    many estimates is too large on average; the largest shrunken estimate is not. A few large effects among many of 0
    are shrunk little, where a single normal prior (James & Stein) would halve them.

    Args: phi, standard_error: floats of one shape, all of one family; NaN: no estimate.
    Returns: float64 of that shape, |result| <= |phi|, of phi's sign. 0: the estimate is all noise. NaN stays NaN. The
    estimate itself where its standard error is 0. Empty in, empty out.
    Raises: ValueError where shapes differ or a standard error is negative.
    """
    score, error = np.asarray(phi, dtype=np.float64), np.asarray(standard_error, dtype=np.float64)
    if score.shape != error.shape or (error < 0).any():
        raise ValueError(f"phi {score.shape} and standard_error {error.shape} need one shape, errors of 0 or more")
    is_finite = np.isfinite(score) & np.isfinite(error) & (error > 0)
    result = np.where(np.isfinite(error), score, np.nan)
    if not is_finite.any():
        return result
    x, noise = score[is_finite], error[is_finite] ** 2
    widths = np.r_[0.0, np.geomspace(np.sqrt(noise.min()) / 10, max(2 * np.abs(x).max(), np.sqrt(noise.max())), WIDTHS)]
    spread = noise[:, None] + widths**2
    likelihood = np.exp(-0.5 * (x[:, None] ** 2 / spread + np.log(spread)))
    # An estimate beyond all components' reach belongs to the widest.
    likelihood = np.maximum(likelihood, 1e-300 * (widths == widths[-1]))
    weights = np.full(len(widths), 1 / len(widths))
    for _ in range(ROUNDS):
        share = likelihood * weights
        share /= share.sum(axis=1, keepdims=True)
        weights = share.sum(axis=0)
        weights[0] += NULL - 1
        weights /= weights.sum()
    share = likelihood * weights
    share /= share.sum(axis=1, keepdims=True)
    result[is_finite] = x * (share * widths**2 / spread).sum(axis=1)
    return result
