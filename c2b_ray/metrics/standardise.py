"""How an attribute's accuracies would differ if all other attributes were spread alike over its values.

Knows stand-ins for what images show (`indicators`) and whether a classifier was right; knows nothing of images,
captions or tables.

With additive effects e (`effects`) the bias score of value j of attribute a holds the others' composition as

    phi_j = phi_j(standardised) + sum over b != a of D_jb . e_b,   D_jb = P(x_b | j) - mean over k != j of P(x_b | k)

(Oaxaca 1973 and Blinder 1973; the number is that of weighting every value's images to one composition by linear
calibration, Deville & Sarndal 1992). Where a value's images say that effects differ on them, its own are taken. D is
drawn to 0 by a normal prior, as effects are: what does not differ adds no noise.
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
"""The standard deviation of differences in composition before anything is seen; what is seen beyond noise adds to its
square, this many times."""

INTERACTION, BELIEF, FEW = 0.02, 4.0, 8
"""The same of effects that differ between values, how many of them that belief is worth, and rounds of learning it."""


@dataclass(frozen=True)
class Standardised:
    """Of the n values of one attribute, float64.

    `moved` (n,): the part of phi that the other attributes' composition makes; phi - `moved` is the standardised phi,
    0 means that nothing is known to confound. `noise` (n,): the standard error of `moved`. `added` (n,): by how much
    the variance of the standardised phi exceeds that of phi, 0 or more. `parts` (n, attributes): what each other one
    adds to `moved`; 0 for its own. NaN for a value without images, and where no other value has any.
    """

    moved: Floats
    noise: Floats
    added: Floats
    parts: Floats


@dataclass(frozen=True)
class Composition:
    """How the other attributes' values are spread over the n values of one attribute, as far as images tell.

    `share` (images, n): what an image counts for in each value's means, columns sum to 1. `rows`: which of all images.
    `others`: which of all columns. `apart` (n, others): a value's mean minus that of all values, drawn to 0 by its
    noise. `kept` (n, others, others): by how much. `doubt` (n, others, others): the covariance of what is left unknown;
    `hidden`: the part of it that drawing to 0 makes.
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
    """How an attribute's images differ in the others; `left_out`: others that explain nothing."""
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
    """Differences given their noise and a normal prior whose width the differences of each attribute decide."""
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
    """What the other attributes make of an attribute's bias scores, on the images that were drawn for its values.

    The variance of phi - moved is that of accuracies net of the others' effects as far as `moved` takes them away, plus
    what the doubt about effects and about composition adds.

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
    """The variance of `moved` (n,) that comes from what is not known of effects, of the verifier and of composition.

    `slopes`: what effects change in `moved` (n, others), the contrasts (n, n), and the covariances of what effects
    differ by on each value (n, others, others).
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
    """How far each attribute (columns) moves the score of each value (rows)."""
    parts = np.zeros((len(contrast), len(images.blocks)))
    position = np.cumsum(spread.others) - 1
    for b, columns in enumerate(images.blocks):
        if spread.others[columns].any():
            parts[:, b] = contrast @ changed[:, position[columns]].sum(axis=1)
    return parts


def _interactions(images: Shown, effects: Effects, right: Floats, spread: Composition) -> tuple[Floats, Floats]:
    """By how much effects differ on each value of the attribute (n, others), and the covariances of that.

    The normal equations of each value's images alone, with what the common effects leave of them.
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
    """Information and score of the effects among one value's images."""
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
    """What the errors of the confusion matrices add to the variance of `moved`, by composition and effects at once."""
    variance = np.zeros(len(apart))
    every = np.zeros((len(apart), len(effects.mean)))
    every[:, spread.others] = apart
    for b, block in enumerate(images.blocks):
        slopes = np.einsum("je,ekw->jkw", every, effects.slopes[b])
        slopes -= np.einsum("jk,w->jkw", every[:, block], images.inverses[b] @ effects.mean[block])
        variance += np.einsum("jkw,kwv,jkv->j", slopes, images.spread[b], slopes)
    return variance


def _contrasts(held: Mask) -> Floats:
    """(j, k) of phi_j: 1, minus 1 over the number of the others, 0 for values without images."""
    n = len(held)
    others = max(int(held.sum()) - 1, 1)
    result: Floats = np.where(np.eye(n, dtype=bool), 1.0, -1.0 / others) * held
    return result
