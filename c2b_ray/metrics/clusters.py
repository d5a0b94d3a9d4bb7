"""Captions as the sampling unit: the effective number of independent images, or pairs of answers, in a cell whose
images come from few captions.

Works on counts by cell and caption. Images of one caption share its wording, and with it what makes them easier or
harder: a cell of 400 images from one caption says much about the caption and little about the cell.

A caption's accuracy is the cell's plus an effect. How far effects spread is one number for a family of cells: the mean
square between a cell's captions has expectation A(1-A) + (m-1) * sigma^2, m images a caption (analysis of variance,
Donner 1986). It is averaged over its posterior rather than estimated and cut off at 0, so that few captions that happen
to agree do not pass for no effects. Two shapes are averaged by how well they fit: effects of one standard deviation for
all cells, cut off at an accuracy of 1 (or 0), and effects that shrink with A(1-A), as they do on the log-odds scale.

Where two classifiers answer the same images, the same holds of the difference of their accuracies: on one wording the
one may be better, on another the other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from c2b_ray.metrics.levels import deviations
from c2b_ray.metrics.scores import Floats, checked_counts, checked_pairs

__all__ = ["EffectiveImages", "effective_images", "effective_pairs"]

SCALES = np.linspace(0.0, 0.3, 31)
"""The grid of standard deviations of caption effects, at an accuracy of .8."""

USUAL = 0.06
TAILS = 3.0
"""Their prior: half of Student's t with this scale and these degrees of freedom.

Half-normal it kept few captions from being believed where they differ much: at a standard deviation of .15, one null
audit of two values in eighteen had a finding from five captions a cell, one in ten from two.
"""

AT_USUAL = 0.4
"""The standard deviation of one answer at that accuracy: sqrt(.8 * .2)."""

PSEUDO = 0.5
LEAST_DEGREES = 3.0

_CUTS = np.linspace(-4.0, 6.0, 201)
_DENSITY, _BELOW = np.exp(-(_CUTS**2) / 2) / np.sqrt(2 * np.pi), ndtr(_CUTS)
_MEAN = -_DENSITY + _CUTS * (1 - _BELOW)
_ROOM = _CUTS - _MEAN
"""How far the mean of a standard normal cut off at t lies below t, for t of `_CUTS`."""
_LEFT = np.sqrt(np.maximum(_BELOW - _CUTS * _DENSITY + _CUTS**2 * (1 - _BELOW) - _MEAN**2, 0.0))
"""Its standard deviation."""


@dataclass(frozen=True)
class EffectiveImages:
    """`effective` (cells,): the number of independent images that carry the same information on a cell's accuracy.
    `spread` (cells,): standard deviation of the accuracies of a cell's captions; NaN where no cell of the family has
    two captions."""

    effective: Floats
    spread: Floats


def effective_images(right: ArrayLike, total: ArrayLike, confidence: float = 0.95) -> EffectiveImages:
    """Computes the effective number of images of each cell of a family, where several captions drew the images.

    v/n_eff = (v/n + sigma^2 * sum over captions of (n_c/n)^2) * (t/z)^2,   v = s(1-s), s = (right + .5)/(n + 1)

    sigma^2 is the posterior mean of the variance between captions at the cell's accuracy. t is Student's quantile with
    the degrees of freedom at which a variance is as uncertain as this one (Satterthwaite 1946: 2 * mean^2 / variance),
    z the normal one: few captions make wider intervals. To be used as `contrast_test(accuracy, effective, ...)`.

    Args: right, total: whole numbers of shape (cells, captions), 0 where a cell has no such caption; an image that two
    captions drew counts for one of them. All cells of one classifier make a good family. confidence: of the limits.
    Returns: `EffectiveImages`; 0 < effective <= n, 0 for a cell without images. Where no cell has two captions with
    images, the spread between captions is unknown: effective is then n and the spread NaN, and callers have to report
    it. If captions differed by .05, a fifth (100 images a cell) to a third (400) of findings would then be false.
    Raises: ValueError where not 0 <= right <= total in whole numbers, where there are not two axes, or the confidence.
    """
    r, n = (np.asarray(counts, dtype=np.float64) for counts in checked_counts(right, total))
    if r.ndim != 2:
        raise ValueError(f"right and total need axes of cells and captions, got shape {r.shape}")
    smooth = (r.sum(axis=1) + PSEUDO) / (n.sum(axis=1) + 2 * PSEUDO)
    between = np.stack([_spread(smooth[:, None], SCALES, shape) ** 2 for shape in (0, 1)])  # (shape, cell, scale)
    return _effective(r, n, smooth * (1 - smooth), between, deviations(confidence))


def effective_pairs(
    only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, confidence: float = 0.95
) -> EffectiveImages:
    """Computes the effective number of pairs of answers of each cell of a family, where several captions drew the
    images that two classifiers answered.

    The formulas of `effective_images`, for the difference of the accuracies: v = a + b - (b - a)^2, with a and b the
    shares of images that A alone and B alone get right. The variance between captions is a share of v, the intraclass
    correlation, with the prior that it has in `effective_images` at an accuracy of .8.

    Args: only_a, only_b, total: numbers of shape (cells, captions); images that A alone, B alone got right, and that
    both answered. confidence: of the limits.
    Returns: `EffectiveImages`, with the spread of the differences of a cell's captions; as above where no cell has two
    captions with images.
    Raises: ValueError where not 0 <= only_a + only_b <= total, for other axes, or the confidence.
    """
    a, b, n = checked_pairs(only_a, only_b, total)
    if n.ndim != 2:
        raise ValueError(f"the counts need axes of cells and captions, got shape {n.shape}")
    images = n.sum(axis=1)
    share_a, share_b = ((counts.sum(axis=1) + PSEUDO) / (images + 2 * PSEUDO) for counts in (a, b))
    noise = share_a + share_b - (share_b - share_a) ** 2
    between = (SCALES / AT_USUAL) ** 2 * noise[:, None]
    return _effective(b - a, n, noise, between[None], deviations(confidence))


def _effective(sums: Floats, n: Floats, noise: Floats, between: Floats, z: Floats | float) -> EffectiveImages:
    """`sums`, `n` (cells, captions): of a number for each image, and how many images. `noise` (cells,): variance of
    that number. `between` (shapes, cells, scales): variances of the captions' means that are considered."""
    images = n.sum(axis=1)
    several = (n > 0).sum(axis=1) >= 2
    if not several.any():
        return EffectiveImages(images, np.full(len(n), np.nan))
    between = np.minimum(between, noise[:, None])
    posterior = _posterior(sums[several], n[several], noise[several], between[:, several])
    seen = np.maximum(images, 1.0)
    parts = (n**2).sum(axis=1) / seen**2
    variances = noise[:, None] / seen[:, None] + between * (parts - 1 / seen)[:, None]
    mean = np.einsum("as,ajs->j", posterior, variances)
    doubt = np.einsum("as,ajs->j", posterior, (variances - mean[:, None]) ** 2)
    degrees = np.maximum(2 * mean**2 / np.maximum(doubt, 1e-12 * mean**2), LEAST_DEGREES)
    student = stdtrit(np.minimum(degrees, 1e6), ndtr(z))
    effective = np.where(images > 0, np.minimum(noise / (mean * (student / z) ** 2), images), 0.0)
    return EffectiveImages(effective, np.sqrt(np.einsum("as,ajs->j", posterior, between)))


def _spread(accuracy: Floats, scale: Floats, shape: int) -> Floats:
    """Standard deviation of caption accuracies in a cell, for a scale of effects; arrays that broadcast."""
    room = np.minimum(accuracy, 1 - accuracy)
    if shape:
        # As large as the scale at an accuracy of .8.
        result: Floats = scale * np.sqrt(accuracy * (1 - accuracy)) / AT_USUAL
        return result
    share = np.divide(room, scale, out=np.full(np.broadcast_shapes(room.shape, scale.shape), np.inf), where=scale > 0)
    cut: Floats = scale * np.interp(share, _ROOM, _LEFT)
    return cut


def _posterior(sums: Floats, n: Floats, noise: Floats, between: Floats) -> Floats:
    """Weights of (shape, scale) that sum to 1: from cells of two captions and more.

    The mean square of a cell is taken for scaled chi-square with a degree of freedom less than captions; fewer where
    wrong (or right) answers are so few that counts of them scatter more than normal ones: kurtosis 3 + 1/expected.
    """
    images = n.sum(axis=1)
    free = (n > 0).sum(axis=1) - 1.0
    mean = (sums.sum(axis=1) / images)[:, None]
    square = (n * (np.divide(sums, n, out=np.zeros(n.shape), where=n > 0) - mean) ** 2).sum(axis=1) / free
    each = (images - (n**2).sum(axis=1) / images) / free
    expected = noise[:, None] + np.maximum(each - 1, 0.0)[:, None] * between
    scarce = 2 / (2 + 1 / (each * noise))
    logs = -0.5 * ((free * scarce)[:, None] * (np.log(expected) + square[:, None] / expected)).sum(axis=1)
    logs -= (TAILS + 1) / 2 * np.log1p((SCALES / USUAL) ** 2 / TAILS)
    weights = np.exp(logs - logs.max())
    result: Floats = weights / weights.sum()
    return result
