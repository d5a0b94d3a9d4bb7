"""How an attribute's accuracies would differ if all other attributes were spread alike over its values.

Knows stand-ins for what images show (`indicators`) and whether a classifier was right; knows nothing of images,
captions or tables.

The model is additive: an image that shows value x_b of attribute b is answered right with probability
m + sum over b of e_b[x_b]. So the bias score of value j of attribute a holds the others' composition as

    phi_j = phi_j(standardised) + sum over b != a of D_jb . e_b,   D_jb = P(x_b | j) - mean over k != j of P(x_b | k)

(Oaxaca 1973 and Blinder 1973; the number is that of weighting every value's images to one composition by linear
calibration, Deville & Sarndal 1992). D and e are estimated with stand-ins, so that they hold however often the verifier
errs, as far as it is known how it errs. Both are drawn to 0 by normal priors: what images cannot tell apart stays in
doubt instead of being 0, and what does not differ adds no noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.indicators import Shown
from c2b_ray.metrics.scores import Floats

__all__ = ["Composition", "Effects", "Standardised", "composition", "effects", "standardised"]

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

WIDTH = 0.25
"""The standard deviation of effects before anything is seen."""

APART, EXTRA = 0.05, 4.0
"""That of differences in composition, and how much of what is seen beyond noise adds to its square."""

FLAT = 100.0
RIDGE = 0.02
ROUNDS = 12
CLOSE = 1e-4


@dataclass(frozen=True)
class Effects:
    """What is estimated of the accuracy's mean part and of every value's effect, `mean` (1 + all values).

    Its doubt comes in three parts. `influence` (N, 1 + all values): what each image changes in `mean`. `prior`: the
    covariance of what the prior holds back. `slopes`: for each attribute (1 + all values, values, answers), what the
    entries of its confusion matrix change in `mean`.
    """

    mean: Floats
    influence: Floats
    prior: Floats
    slopes: tuple[Floats, ...]


def effects(images: Shown, right: ArrayLike) -> Effects:
    """Every value's effect on accuracy, all others held fixed.

    The corrected normal equations v = M e, whose noise is seen from image to image, with a normal prior on effects:
    mean = (M' W M + P)^-1 M' W v, W the inverse covariance of v - M e, P the prior's precision.

    Args: right: booleans (N,).
    Returns: `Effects`; without images the effects are 0, with the prior's width.
    Raises: ValueError where the length is wrong.
    """
    y = np.asarray(right, np.float64)
    u = images.columns
    if y.shape != (len(u),):
        raise ValueError(f"right must be ({len(u)},), got {y.shape}")
    n, size = u.shape
    variances = np.full(size, WIDTH**2)
    variances[0] = FLAT**2
    mean = np.zeros(size)
    moments, sums = _moments(images), u.T @ y / max(n, 1)
    for _ in range(ROUNDS):
        residuals = _residuals(images, y, mean)
        noise = residuals.T @ residuals + np.diag(RIDGE * (u**2).sum(axis=0) + 1e-9)
        weighted = np.linalg.solve(noise, n * moments).T  # (effects, equations)
        solver = np.linalg.solve(n * weighted @ moments + np.diag(1 / variances), weighted) * n
        before, mean = mean, solver @ sums
        if np.abs(mean - before).max(initial=0.0) < CLOSE:
            break
    missed = np.eye(size) - solver @ moments
    prior = (missed * variances) @ missed.T
    slopes = tuple(np.einsum("ex,xkw->ekw", solver, at) for at in _equation_slopes(images, mean))
    return Effects(mean, _residuals(images, y, mean) @ solver.T / max(n, 1), prior, slopes)


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
    own = u[:, block]
    total = own.sum(axis=0)
    held = (np.bincount(images.drawn[rows, attribute], minlength=n) > 0) & (total > 0.5)
    share = np.divide(own, total, out=np.zeros_like(own), where=held)
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


def standardised(images: Shown, found: Effects, right: ArrayLike, spread: Composition) -> Standardised:
    """What the other attributes make of an attribute's bias scores, on the images that were drawn for its values.

    The variance of phi - moved is that of accuracies net of the others' effects as far as `moved` takes them away, plus
    what the doubt about effects and about composition adds.

    Args: right: booleans (N,), as for `effects`.
    Returns: `Standardised`.
    """
    every = np.asarray(right, np.float64)
    y, rows = every[spread.rows], spread.rows
    others, share, held = spread.others, spread.share, spread.held
    x, mean = images.columns[rows][:, others], found.mean[others]
    contrast = _contrasts(held)
    apart = contrast @ spread.apart
    moved = apart @ mean
    accuracy = share.T @ y
    own = (share * (y[:, None] - accuracy)) @ contrast.T
    gone = share * (x @ np.einsum("jxy,x->yj", spread.kept, mean))
    gone = (gone - share * gone.sum(axis=0)) @ contrast.T
    away = found.influence[:, others] @ apart.T  # what images change in `moved` by the effects
    plain = (own**2).sum(axis=0)
    elsewhere = (away[~rows] ** 2).sum(axis=0)
    left = ((own - gone - away[rows]) ** 2).sum(axis=0) + elsewhere
    moving = ((gone + away[rows]) ** 2).sum(axis=0) + elsewhere
    prior = found.prior[np.ix_(others, others)]
    influence = found.influence[:, others]
    covariance = prior + influence.T @ influence
    doubt = np.einsum("jx,xy,jy->j", apart, prior, apart) + _of_calibration(images, found, apart, spread)
    doubt = doubt + contrast**2 @ np.einsum("jxy,xy->j", spread.doubt, covariance)
    doubt = doubt + contrast**2 @ np.einsum("jxy,xy->j", spread.hidden, np.outer(mean, mean))
    added = np.maximum(left + doubt - plain, 0.0)
    parts = np.zeros((len(held), len(images.blocks)))
    place = np.cumsum(others) - 1
    for b, columns in enumerate(images.blocks):
        if others[columns].any():
            at = place[columns]
            parts[:, b] = apart[:, at] @ mean[at]
    none = np.where(held & (held.sum() >= 2), 0.0, np.nan)
    return Standardised(moved + none, np.sqrt(moving + doubt) + none, added + none, parts + none[:, None])


def _moments(images: Shown) -> Floats:
    """Mean products of indicators: within an attribute an image shows one value, so that the products are shares."""
    u = images.columns
    found: Floats = u.T @ u / max(len(u), 1)
    for block in images.blocks:
        found[block, block] = np.diag(np.maximum(u[:, block].sum(axis=0) / max(len(u), 1), 1e-6))
    return found


def _residuals(images: Shown, y: Floats, mean: Floats) -> Floats:
    """What every image leaves of each normal equation, less the mean."""
    u = images.columns
    residuals = u * (y - u @ mean)[:, None]
    for block in images.blocks:
        own = u[:, block]
        residuals[:, block] += own * ((own @ mean[block])[:, None] - mean[block])
    found: Floats = residuals - (residuals.mean(axis=0) if len(u) else 0.0)
    return found


def _equation_slopes(images: Shown, mean: Floats) -> list[Floats]:
    """Of each attribute, what the entries (k, w) of its confusion matrix change in every equation."""
    u = images.columns
    found = []
    for b, block in enumerate(images.blocks):
        inverse, own = images.inverses[b], np.where(images.by_answer[:, b, None], u[:, block], 0.0)
        shares, cross = own.sum(axis=0) / max(len(u), 1), u.T @ own / max(len(u), 1)
        cross[block] = 0.0
        slopes = np.einsum("xk,w->xkw", cross, inverse @ mean[block])
        within = shares[:, None, None] * (mean[block][None, None, :] - mean[block][:, None, None]) * inverse[None]
        slopes[block] += np.moveaxis(within, 2, 0)
        found.append(slopes)
    return found


def _of_calibration(images: Shown, found: Effects, apart: Floats, spread: Composition) -> Floats:
    """What the errors of the confusion matrices add to the variance of `moved`, by composition and effects at once."""
    variance = np.zeros(len(apart))
    every = np.zeros((len(apart), len(found.mean)))
    every[:, spread.others] = apart
    for b, block in enumerate(images.blocks):
        slopes = np.einsum("je,ekw->jkw", every, found.slopes[b])
        slopes -= np.einsum("jk,w->jkw", every[:, block], images.inverses[b] @ found.mean[block])
        variance += np.einsum("jkw,kwv,jkv->j", slopes, images.spread[b], slopes)
    return variance


def _contrasts(held: Mask) -> Floats:
    """(j, k) of phi_j: 1, minus 1 over the number of the others, 0 for values without images."""
    n = len(held)
    others = max(int(held.sum()) - 1, 1)
    found: Floats = np.where(np.eye(n, dtype=bool), 1.0, -1.0 / others) * held
    return found
