"""Tests whether a verifier's errors on a run's images agree with its calibration on images of known content.

Knows counts, as `metrics.misclassification` does, and judges the model that it assumes.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, xlogy

from c2b_ray.metrics.latent_classes import Fit, Floats, Known, fitted
from c2b_ray.metrics.misclassification import checked

__all__ = ["misfit_p_value"]

LOOKS = (20, 60, 200)
"""Numbers of simulated runs after which the p-value is looked at; simulation goes on where a tenth or fewer of them fit
worse."""

ENOUGH = 1e-5
"""Estimates that change by less than this count as converged."""

LEAST_DEVIANCE = 3.84
"""The 95 % point of chi-square with one degree of freedom; below it no testable model is rejected."""

UNLIKELY_BELOW = 0.2
"""A rough test is followed by simulation where chi-square's p-value is smaller."""


def misfit_p_value(
    right: ArrayLike,
    wrong: ArrayLike,
    calibration: ArrayLike | Known,
    copies: float | tuple[float, float] = 1.0,
    unclassified: ArrayLike | None = None,
    seed: int = 0,
    rough: bool = False,
) -> float:
    """Tests that the calibration holds for a run and that, given what images show, the two err independently.

    The likelihood-ratio statistic compares the model of `metrics.latent_classes`, fitted to the run and the calibration
    together, with each row of the run and of the calibration having shares of its own:

        G2 = 2 * sum over all counts of n * log(share observed / share of the model)

    With as many rows as values the alternative has as many parameters as a run whose C is free of the calibration:
    C of the run and errors that depend on each other are tested at once. Cells of few images make chi-square a poor
    null, so runs of the fitted model are simulated and fitted again (Efron & Tibshirani 1993, chapter 16).

    Args: as `corrected`. seed: of the simulation. rough: spares the simulation where chi-square's p-value is above
    `UNLIKELY_BELOW`, for a decision that can be made again.
    Returns: float in (0, 1]; 1 where the data carry no information: too few images, or only one answer was ever
    classified; and where the simulation was spared.
    Raises: ValueError as `corrected` does.
    """
    counts, known = checked(right, wrong, unclassified, calibration)
    each = copies if isinstance(copies, tuple) else (copies, copies)
    counts = np.round(counts / np.array([each[0], each[0], each[1]]))
    if counts[..., :2].sum() == 0:
        return 1.0
    fit = fitted(counts, known, ENOUGH)
    observed = float(_deviance(fit))
    if observed < LEAST_DEVIANCE:
        return 1.0
    if rough and chdtrc(_degrees(fit), observed) > UNLIKELY_BELOW:
        return 1.0
    random, worse, done = np.random.default_rng(seed), 0, 0
    for runs in LOOKS:
        again = fitted(*_simulated(fit, runs - done, random), ENOUGH)
        worse, done = worse + int((_deviance(again) >= observed).sum()), runs
        if worse > done / 10:
            break
    return (worse + 1) / (done + 1)


def _degrees(fit: Fit) -> int:
    """Counts the free shares of the run's and the calibration's rows, less the parameters of the model."""
    rows, answers = fit.counts.shape[:2]
    values, of_class = fit.known.values.shape[-1], fit.known.classes is not None
    # Each row: its answers' shares, and the share that is right of each answer. The calibration has its own rows in
    # both; what the verifier names where the class is not shown has no calibration.
    apart = rows * (2 * answers - 1)
    model = len(fit.accuracy) + rows * (len(fit.accuracy) - 1) + (values - 1 if of_class else 0)
    return max(int(apart - model), 1)


def _deviance(fit: Fit) -> Floats:
    """Computes G2 of every run of the leading axes."""
    counts, known, answered = fit.counts, fit.known, fit.counts.sum(axis=-1)
    of_rows = _log_likelihood(answered) + _log_likelihood(counts[..., :2]).sum(axis=-1)
    apart = (of_rows - xlogy(counts, fit.chance).sum(axis=(-2, -1))).sum(axis=-1)
    values, classes = fit.verifier
    apart = apart + (_log_likelihood(known.values) - xlogy(known.values, values).sum(axis=-1)).sum(axis=-1)
    if known.classes is not None:
        apart = apart + (_log_likelihood(known.classes) - xlogy(known.classes, classes).sum(axis=-1)).sum(axis=-1)
    return np.asarray(2 * apart)


def _log_likelihood(counts: Floats) -> Floats:
    """Computes the log-likelihood of multinomial counts (last axis) under their observed shares."""
    whole = counts.sum(axis=-1, keepdims=True)
    return np.asarray(xlogy(counts, np.divide(counts, whole, out=np.ones_like(counts), where=whole > 0)).sum(axis=-1))


def _simulated(fit: Fit, runs: int, random: np.random.Generator) -> tuple[Floats, Known]:
    """Simulates runs of the fitted model with the same numbers of images and the same share of classified images for
    each row and answer."""
    counts, known = fit.counts, fit.known
    size = counts.sum(axis=(1, 2)).astype(int)
    answered = random.multinomial(size, fit.chance[..., 2], size=(runs, len(size)))
    classified = random.binomial(answered, fit.classified)
    right = random.binomial(classified, np.clip(fit.chance[..., 0] / fit.chance[..., 2], 0.0, 1.0))
    drawn = np.stack([right, classified - right, answered - classified], axis=-1).astype(float)
    values, classes = fit.verifier
    again = Known(
        _redrawn(known.values, values, runs, random),
        None if known.classes is None else _redrawn(known.classes, classes, runs, random),
    )
    return drawn, again


def _redrawn(counts: Floats, shares: Floats, runs: int, random: np.random.Generator) -> Floats:
    """Draws rows again from `shares`; a row whose count is fractional keeps its weight."""
    whole = counts.sum(axis=1)
    size = np.ceil(whole).astype(int)
    drawn = random.multinomial(size, shares / shares.sum(axis=1, keepdims=True), size=(runs, len(size)))
    result: Floats = drawn * np.divide(whole, size, out=np.zeros_like(whole), where=size > 0)[:, None]
    return result
