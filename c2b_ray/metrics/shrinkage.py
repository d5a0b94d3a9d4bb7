"""Empirical Bayes: estimates of many effects at once, each shrunk towards 0 by the noise that the whole family shows.

Knows estimates and their standard errors; knows nothing of their meaning, nor of tests.
"""

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats

__all__ = ["shrunken"]

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
    known = np.isfinite(score) & np.isfinite(error) & (error > 0)
    result = np.where(np.isfinite(error), score, np.nan)
    if not known.any():
        return result
    x, noise = score[known], error[known] ** 2
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
    result[known] = x * (share * widths**2 / spread).sum(axis=1)
    return result
