"""How an attribute's accuracies would differ if all other attributes were spread alike over its values.

Knows stand-ins for what images show (`indicators`) and whether a classifier was right; knows nothing of images,
captions or tables.

With additive effects e (`effects`) the bias score of value j of attribute a holds the others' composition as

    phi_j = phi_j(standardised) + sum over b != a of D_jb . e_b,   D_jb = P(x_b | j) - mean over k != j of P(x_b | k)

(Oaxaca 1973 and Blinder 1973; the number is that of weighting every value's images to one composition by linear
calibration, Deville & Sarndal 1992). Where a value's images show that effects differ on them, that value's effects are
used. A normal prior shrinks D towards 0, as it does effects, so attributes whose composition does not differ add no
noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.effects import FLAT, RIDGE, Effects, residuals
from c2b_ray.metrics.indicators import Shown
from c2b_ray.metrics.scores import Floats

__all__ = ["Composition", "Standardised", "composition", "standardised"]

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

APART, EXTRA = 0.05, 4.0
"""The prior standard deviation of differences in composition, and the factor by which the observed excess over noise
adds to its square."""

INTERACTION, BELIEF, FEW = 0.02, 4.0, 8
"""The prior standard deviation of effects' differences between values, the number of effects that this prior is worth,
and the rounds of fitting it."""


@dataclass(frozen=True)
class Standardised:
    """Of the n values of one attribute, float64.

    `moved` (n,): the part of phi due to the other attributes' composition; phi - `moved` is the standardised phi; 0
    means that no confounding is known. `noise` (n,): the standard error of `moved`. `added` (n,): by how much the
    variance of the standardised phi exceeds that of phi, 0 or more. `parts` (n, attributes): how much each other
    attribute adds to `moved`; 0 for the attribute itself. NaN for a value without images, and where no other value has
    any.
    """

    moved: Floats
    noise: Floats
    added: Floats
    parts: Floats


@dataclass(frozen=True)
class Composition:
    """The distribution of the other attributes' values over the n values of one attribute, as estimated from images.

    `share` (images, n): the weight of an image in each value's means; columns sum to 1. `rows`: the images used.
    `others`: the columns of the other attributes. `apart` (n, others): a value's mean minus that of all values, shrunk
    towards 0. `kept` (n, others, others): the shrinkage. `doubt` (n, others, others): the posterior covariance;
    `hidden`: the part of it that comes from shrinkage.
    """

    attribute: int
    rows: Mask
    others: Mask
    held: Mask
    share: Floats
    apart: Floats
    kept: Floats
    doubt: Floats
    hidden: Floats


def composition(images: Shown, attribute: int, left_out: Sequence[int] = ()) -> Composition:
    """Estimates how an attribute's images differ in the other attributes; `left_out`: attributes that are not used as
    explanations."""
    block = images.blocks[attribute]
    rows = images.drawn[:, attribute] >= 0
    n = block.stop - block.start
    u = images.columns[rows]
    of_block = u[:, block]
    total = of_block.sum(axis=0)
    held = (np.bincount(images.drawn[rows, attribute], minlength=n) > 0) & (total > 0.5)
    share = np.divide(of_block, total, out=np.zeros_like(of_block), where=held)
    others = np.zeros(u.shape[1], bool)
    for b, columns in enumerate(images.blocks):
        others[columns] = b != attribute and b not in left_out
    x = u[:, others]
    means = share.T @ x
    spread = np.zeros((n, x.shape[1], x.shape[1]))
    for j in np.flatnonzero(held):
        at = share[:, j, None] * (x - means[j])
        spread[j] = at.T @ at
    of = np.concatenate([np.full(c.stop - c.start, b, np.int64) for b, c in enumerate(images.blocks)])[others[1:]]
    middle = means[held].mean(axis=0) if held.any() else np.zeros(x.shape[1])
    raw = np.where(held[:, None], means - middle, 0.0)
    return Composition(attribute, rows, others, held, share, *_drawn_in(raw, spread, of, held))


def _drawn_in(raw: Floats, spread: Floats, of: Whole, held: Mask) -> tuple[Floats, Floats, Floats, Floats]:
    """Shrinks differences by their noise and a normal prior whose width comes from each attribute's differences."""
    width = np.full(len(of), APART**2)
    size = len(of)
    kept, doubt, hidden, apart = np.zeros_like(spread), np.zeros_like(spread), np.zeros_like(spread), raw.copy()
    if not size or not held.any():
        return apart, kept, doubt, hidden
    noise = np.einsum("jxx->jx", spread[held])
    for b in np.unique(of):
        at = of == b
        width[at] = APART**2 + max(0.0, float((raw[held][:, at] ** 2 - noise[:, at]).mean())) * EXTRA
    kept[held] = width[:, None] * np.linalg.inv(spread[held] + np.diag(width) + 1e-9 * np.eye(size))
    apart[held] = np.einsum("jxy,jy->jx", kept[held], raw[held])
    doubt[held] = np.diag(width) - kept[held] * width
    missed = np.eye(size) - kept[held]
    hidden[held] = (missed * width) @ np.moveaxis(missed, 1, 2)
    return apart, kept, doubt, hidden


def standardised(images: Shown, effects: Effects, right: ArrayLike, spread: Composition) -> Standardised:
    """Estimates the other attributes' part in an attribute's bias scores, on the images that were drawn for its values.

    The variance of phi - moved is that of accuracies net of the others' effects as far as `moved` takes them away, plus
    the uncertainty of effects and of composition.

    Args: right: booleans (N,), as for `effects`.
    Returns: `Standardised`.
    """
    every = np.asarray(right, np.float64)
    y, rows = every[spread.rows], spread.rows
    others, share, held = spread.others, spread.share, spread.held
    x, mean = images.columns[rows][:, others], effects.mean[others]
    contrast = _contrasts(held)
    apart = contrast @ spread.apart
    interaction_effects, interaction_doubt = _interactions(images, effects, every, spread)
    changed = spread.apart * (mean + interaction_effects)
    moved = contrast @ changed.sum(axis=1)
    accuracy = share.T @ y
    of_images = (share * (y[:, None] - accuracy)) @ contrast.T
    gone = share * (x @ np.einsum("jxy,x->yj", spread.kept, mean))
    gone = (gone - share * gone.sum(axis=0)) @ contrast.T
    away = effects.influence[:, others] @ apart.T  # what images change in `moved` by the effects
    plain = (of_images**2).sum(axis=0)
    elsewhere = (away[~rows] ** 2).sum(axis=0)
    left = ((of_images - gone - away[rows]) ** 2).sum(axis=0) + elsewhere
    moving = ((gone + away[rows]) ** 2).sum(axis=0) + elsewhere
    doubt = _doubt(images, effects, (apart, contrast, interaction_doubt), spread)
    added = np.maximum(left + doubt - plain, 0.0)
    parts = _by_attribute(images, spread, contrast, changed)
    none = np.where(held & (held.sum() >= 2), 0.0, np.nan)
    return Standardised(moved + none, np.sqrt(moving + doubt) + none, added + none, parts + none[:, None])


def _doubt(images: Shown, effects: Effects, slopes: tuple[Floats, Floats, Floats], spread: Composition) -> Floats:
    """Computes the variance of `moved` (n,) that comes from the uncertainty of effects, of the verifier and of
    composition.

    `slopes`: the derivatives of `moved` by effects (n, others), the contrasts (n, n), and the covariances of the
    effects' differences on each value (n, others, others).
    """
    apart, contrast, interaction_doubt = slopes
    others, mean = spread.others, effects.mean[spread.others]
    prior = effects.prior[np.ix_(others, others)]
    influence = effects.influence[:, others]
    covariance = prior + influence.T @ influence
    of_composition = (
        np.einsum("jxy,xy->j", spread.doubt, covariance)
        + np.einsum("jxy,xy->j", spread.hidden, np.outer(mean, mean))
        + np.einsum("jx,jxy,jy->j", spread.apart, interaction_doubt, spread.apart)
    )
    of_effects = np.einsum("jx,xy,jy->j", apart, prior, apart) + _of_calibration(images, effects, apart, spread)
    doubt: Floats = of_effects + contrast**2 @ of_composition
    return doubt


def _by_attribute(images: Shown, spread: Composition, contrast: Floats, changed: Floats) -> Floats:
    """Computes how far each attribute (columns) moves the score of each value (rows)."""
    parts = np.zeros((len(contrast), len(images.blocks)))
    position = np.cumsum(spread.others) - 1
    for b, columns in enumerate(images.blocks):
        if spread.others[columns].any():
            parts[:, b] = contrast @ changed[:, position[columns]].sum(axis=1)
    return parts


def _interactions(images: Shown, effects: Effects, right: Floats, spread: Composition) -> tuple[Floats, Floats]:
    """Estimates how much effects differ on each value of the attribute (n, others), and the covariances of these
    differences.

    Solves the normal equations of each value's images alone, with the residuals of the common effects.
    """
    chosen = spread.others.copy()
    chosen[0] = True
    left = residuals(images, right, effects.mean, centred=False)[spread.rows][:, chosen]
    n, size = spread.share.shape[1], int(chosen.sum()) - 1
    differences, doubt = np.zeros((n, size)), np.zeros((n, size, size))
    of = np.concatenate([np.full(c.stop - c.start, b) for b, c in enumerate(images.blocks)])[spread.others[1:]]
    variances = np.concatenate([[FLAT**2], np.full(size, (5 * INTERACTION) ** 2)])
    cells = [_equations(images, spread, chosen, left, j) for j in range(n) if spread.held[j]]
    for _ in range(FEW):
        for j, (information, score) in zip(np.flatnonzero(spread.held), cells, strict=True):
            covariance = np.linalg.inv(information + np.diag(1 / variances))
            differences[j], doubt[j] = (covariance @ score)[1:], covariance[1:, 1:]
        square = (differences**2 + np.einsum("jxx->jx", doubt))[spread.held]
        for b in np.unique(of):
            at = of == b
            variances[1:][at] = (INTERACTION**2 * BELIEF + square[:, at].sum()) / (BELIEF + square[:, at].size)
    return differences, doubt


def _equations(images: Shown, spread: Composition, chosen: Mask, left: Floats, j: int) -> tuple[Floats, Floats]:
    """Computes information and score of the effects among one value's images."""
    weights = spread.share[:, j]
    u = images.columns[spread.rows][:, chosen]
    moments = u.T @ (weights[:, None] * u)
    start = 1
    for block in images.blocks:
        if chosen[block].any():
            at = slice(start, start + block.stop - block.start)
            moments[at, at] = np.diag(np.maximum(weights @ u[:, at], 1e-6))
            start = at.stop
    centred = weights[:, None] * (left - weights @ left)
    noise = centred.T @ centred + np.diag(RIDGE * (weights[:, None] ** 2 * u**2).sum(axis=0) + 1e-9)
    weighted = np.linalg.solve(noise, moments).T
    return weighted @ moments, weighted @ (weights @ left)


def _of_calibration(images: Shown, effects: Effects, apart: Floats, spread: Composition) -> Floats:
    """Computes the part of the variance of `moved` that comes from errors of the confusion matrices, through
    composition and effects together."""
    variance = np.zeros(len(apart))
    every = np.zeros((len(apart), len(effects.mean)))
    every[:, spread.others] = apart
    for b, block in enumerate(images.blocks):
        slopes = np.einsum("je,ekw->jkw", every, effects.slopes[b])
        slopes -= np.einsum("jk,w->jkw", every[:, block], images.inverses[b] @ effects.mean[block])
        variance += np.einsum("jkw,kwv,jkv->j", slopes, images.spread[b], slopes)
    return variance


def _contrasts(held: Mask) -> Floats:
    """Returns the weights (j, k) of accuracies in phi_j: 1 for j, minus 1 over the number of the others, 0 for values
    without images."""
    n = len(held)
    others = max(int(held.sum()) - 1, 1)
    result: Floats = np.where(np.eye(n, dtype=bool), 1.0, -1.0 / others) * held
    return result
