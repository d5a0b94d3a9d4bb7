"""Stand-ins for what images show, where the truth is unseen and only the verifier's error rates are known.

Knows numbered values: what a verifier said that each image shows of every attribute, how it errs, and which value an
image was drawn for. Knows nothing of images, captions or classifiers.

Whether an image shows a value is 0 or 1, and is not seen. A stand-in is a number with that expectation, given what the
image shows: the row of the inverse of the verifier's confusion matrix that belongs to its answer (corrected scores:
Nakamura 1990; Fuller 1987, section 3.1). Where the image was drawn for a value of the attribute, caption and answer
together say more: with r the chances of what such an image shows, the stand-in is r' E[rr']^-1 diag(E[r]). Products of
stand-ins of two attributes have the right expectation too where the verifier's errors are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.scores import Floats

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

LEAST_SINGULAR = 0.25
"""The least singular value of a confusion matrix. Matrices are drawn towards the identity until their inverse magnifies
no more than fourfold."""

ITERATIONS = 200
LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class ShownValues:
    """Stand-ins for what N images show of all attributes.

    `columns` (N, 1 + all values): a column of ones, then the attributes' stand-ins side by side. `blocks`: each
    attribute's columns. `drawn` (N, attributes): the value that an image was drawn for, -1 for none. `inverses`,
    `spread`: of each attribute, the inverse of its confusion matrix, and the covariances (values, answers, answers) of
    that matrix' rows.
    """

    columns: Floats
    blocks: tuple[slice, ...]
    drawn: Whole
    inverses: tuple[Floats, ...]
    spread: tuple[Floats, ...]
    by_answer: Mask  # (N, attributes): the stand-in rests on the answer alone


def shown(answers: ArrayLike, drawn: ArrayLike, calibrations: Sequence[ArrayLike]) -> ShownValues:
    """Stand-ins for what images show.

    Args: answers: (N, attributes), numbers of the values that a verifier named, -1 where none. drawn: of that shape,
    numbers of the values that images were drawn for, -1 where an image was not drawn for one value of the attribute.
    calibrations: of each attribute, numbers (values, answers): images known to show a value, by answer; a value without
    any counts as always recognised.
    Returns: `ShownValues`. A missing answer gives the mean stand-in.
    Raises: ValueError where shapes do not agree or a number names no value.
    """
    a, d = np.asarray(answers, np.int64), np.asarray(drawn, np.int64)
    tables = [np.asarray(table, np.float64) for table in calibrations]
    if a.ndim != 2 or a.shape != d.shape or a.shape[1] != len(tables):
        raise ValueError(f"answers and drawn must be (images, {len(tables)} attributes), got {a.shape} and {d.shape}")
    for b, table in enumerate(tables):
        if table.ndim != 2 or table.shape[0] != table.shape[1]:
            raise ValueError(f"calibrations[{b}] must be square, got shape {table.shape}")
        numbers = np.concatenate([a[:, b], d[:, b], [-1]])
        if numbers.min() < -1 or numbers.max() >= len(table):
            raise ValueError(f"attribute {b} has values 0 to {len(table) - 1}, or -1 for none")
    columns, blocks, inverses, spread, by_attribute = [np.ones((len(a), 1))], [], [], [], []
    start = 1
    for b, table in enumerate(tables):
        confusion = _confusion(table)
        inverse = np.asarray(np.linalg.inv(confusion), np.float64)
        of_answer, answer_only = _stand_ins(a[:, b], d[:, b], confusion, inverse)
        columns.append(of_answer)
        blocks.append(slice(start, start + len(table)))
        start += len(table)
        inverses.append(inverse)
        spread.append(_row_covariances(confusion, table.sum(axis=1)))
        by_attribute.append(answer_only)
    by_answer = np.stack(by_attribute, axis=1) if by_attribute else np.zeros(a.shape, bool)
    return ShownValues(np.hstack(columns), tuple(blocks), d, tuple(inverses), tuple(spread), by_answer)


def _confusion(table: Floats) -> Floats:
    """Computes P(answer | value), drawn towards the identity until the inverse is bounded by `LEAST_SINGULAR`."""
    rows = table + np.eye(len(table))
    confusion: Floats = rows / rows.sum(axis=1, keepdims=True)
    for pull in np.linspace(0, 1, 21):
        shrunk: Floats = (1 - pull) * confusion + pull * np.eye(len(table))
        if np.linalg.svd(shrunk, compute_uv=False).min(initial=1.0) >= LEAST_SINGULAR:
            return shrunk
    return np.eye(len(table))


def _row_covariances(confusion: Floats, counts: Floats) -> Floats:
    totals = np.where(counts > 0, counts + 1, np.inf)[:, None, None]
    result: Floats = (
        np.einsum("kw,wv->kwv", confusion, np.eye(len(confusion))) - confusion[:, :, None] * confusion[:, None, :]
    ) / totals
    return result


def _stand_ins(answers: Whole, drawn: Whole, confusion: Floats, inverse: Floats) -> tuple[Floats, Mask]:
    """Returns one row per image whose expectation, given what the image shows, is 1 at that value and 0 elsewhere; and
    a mask of the rows that rest on the answer alone."""
    size = len(confusion)
    answered = answers >= 0
    answer_only = np.ones(len(answers), bool)
    result = np.zeros((len(answers), size))
    result[answered] = inverse[answers[answered]]
    both = answered & (drawn >= 0)
    if both.any():
        chance = _posterior(answers[both], drawn[both], confusion)
        square, shares = chance.T @ chance / len(chance), chance.mean(axis=0)
        root = np.sqrt(np.maximum(shares, 1e-9))
        if (shares > LEAST_SHARE).all() and np.linalg.eigvalsh(square / root[:, None] / root).min() > LEAST_SINGULAR**2:
            result[both] = chance @ np.linalg.solve(square, np.diag(shares))
            answer_only[both] = False
    if answered.any():
        result[~answered] = result[answered].mean(axis=0)
    answer_only[~answered] = False
    return result, answer_only


def _posterior(answers: Whole, drawn: Whole, confusion: Floats) -> Floats:
    """Computes P(shows k | drawn for j, answer w), with the shares of the values that cells show by maximum likelihood
    (EM)."""
    size = len(confusion)
    counts = np.zeros((size, size))
    np.add.at(counts, (drawn, answers), 1.0)
    shares = np.full((size, size), 1 / size) + np.eye(size)
    shares /= shares.sum(axis=1, keepdims=True)
    for _ in range(ITERATIONS):
        joint = shares[:, :, None] * confusion[None]  # (j, k, w)
        expected = counts[:, None] * joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-12)
        shares = expected.sum(axis=2) + 0.5 / size
        shares /= shares.sum(axis=1, keepdims=True)
    joint = shares[:, :, None] * confusion[None]
    joint /= np.maximum(joint.sum(axis=1, keepdims=True), 1e-12)
    result: Floats = joint[drawn, :, answers]
    return result


# How much each value that images show changes accuracy, estimated from stand-ins for what they show.
#
# The model is additive: an image that shows value x_b of attribute b is answered right with probability m + sum over b
# of e_b[x_b]. As stand-ins (`indicators`) and their products have the right expectations, the normal equations hold
# however often the verifier errs, provided that its error rates are known. A normal prior shrinks effects towards 0:
# effects that the images cannot tell apart keep a wide uncertainty.


WIDTH = 0.25
"""The prior standard deviation of effects."""

FLAT = 100.0
"""The prior standard deviation of the mean accuracy."""

RIDGE = 0.02
"""The share of the equations' squares that is added to their noise, which would be 0 where all answers are right."""

ROUNDS = 12
CLOSE = 1e-4


@dataclass(frozen=True)
class Effects:
    """Estimates of the mean accuracy and of every value's effect, `mean` (1 + all values).

    Their uncertainty comes in three parts. `influence` (N, 1 + all values): how much each image changes `mean`.
    `prior`: the covariance that comes from the prior. `slopes`: for each attribute (1 + all values, values, answers),
    how much the entries of its confusion matrix change `mean`.
    """

    mean: Floats
    influence: Floats
    prior: Floats
    slopes: tuple[Floats, ...]


def effects(images: ShownValues, right: ArrayLike) -> Effects:
    """Estimates every value's effect on accuracy, all others held fixed.

    Solves the corrected normal equations v = M e, whose noise is estimated from the scatter between images, with a
    normal prior on effects: mean = (M' W M + P)^-1 M' W v, W the inverse covariance of v - M e, P the prior's
    precision.

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
        errors = residuals(images, y, mean)
        noise = errors.T @ errors + np.diag(RIDGE * (u**2).sum(axis=0) + 1e-9)
        weighted = np.linalg.solve(noise, n * moments).T  # (effects, equations)
        solver = np.linalg.solve(n * weighted @ moments + np.diag(1 / variances), weighted) * n
        previous, mean = mean, solver @ sums
        if np.abs(mean - previous).max(initial=0.0) < CLOSE:
            break
    missed = np.eye(size) - solver @ moments
    prior = (missed * variances) @ missed.T
    slopes = tuple(np.einsum("ex,xkw->ekw", solver, slope) for slope in _equation_slopes(images, mean))
    return Effects(mean, residuals(images, y, mean) @ solver.T / max(n, 1), prior, slopes)


def _moments(images: ShownValues) -> Floats:
    """Computes mean products of indicators. Within an attribute an image shows one value, so these products are
    shares."""
    u = images.columns
    result: Floats = u.T @ u / max(len(u), 1)
    for block in images.blocks:
        result[block, block] = np.diag(np.maximum(u[:, block].sum(axis=0) / max(len(u), 1), 1e-6))
    return result


def residuals(images: ShownValues, y: Floats, mean: Floats, centred: bool = True) -> Floats:
    """Computes every image's residual of each normal equation; `centred`: with their mean subtracted."""
    u = images.columns
    errors = u * (y - u @ mean)[:, None]
    for block in images.blocks:
        in_block = u[:, block]
        errors[:, block] += in_block * ((in_block @ mean[block])[:, None] - mean[block])
    result: Floats = errors - (errors.mean(axis=0) if centred and len(u) else 0.0)
    return result


def _equation_slopes(images: ShownValues, mean: Floats) -> list[Floats]:
    """Returns for each attribute how much the entries (k, w) of its confusion matrix change every equation."""
    u = images.columns
    result = []
    for b, block in enumerate(images.blocks):
        inverse, in_block = images.inverses[b], np.where(images.by_answer[:, b, None], u[:, block], 0.0)
        shares, cross = in_block.sum(axis=0) / max(len(u), 1), u.T @ in_block / max(len(u), 1)
        cross[block] = 0.0
        slopes = np.einsum("xk,w->xkw", cross, inverse @ mean[block])
        change = shares[:, None, None] * (mean[block][None, None, :] - mean[block][:, None, None]) * inverse[None]
        slopes[block] += np.moveaxis(change, 2, 0)
        result.append(slopes)
    return result


# How an attribute's accuracies would differ if all other attributes were spread alike over its values.
#
# With additive effects e the bias score of value j of attribute a holds the others' composition as
#
#     phi_j = phi_j(standardised) + sum over b != a of D_jb . e_b,   D_jb = P(x_b | j) - mean over k != j of P(x_b | k)
#
# (Oaxaca 1973 and Blinder 1973; the number is that of weighting every value's images to one composition by linear
# calibration, Deville & Sarndal 1992). Where a value's images show that effects differ on them, that value's effects
# are used. A normal prior shrinks D towards 0, as it does effects, so attributes whose composition does not differ add
# no noise.


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
    present: Mask
    share: Floats
    apart: Floats
    kept: Floats
    doubt: Floats
    hidden: Floats


def composition(images: ShownValues, attribute: int, left_out: Sequence[int] = ()) -> Composition:
    """Estimates how an attribute's images differ in the other attributes; `left_out`: attributes that are not used as
    explanations."""
    block = images.blocks[attribute]
    rows = images.drawn[:, attribute] >= 0
    n = block.stop - block.start
    u = images.columns[rows]
    of_block = u[:, block]
    total = of_block.sum(axis=0)
    present = (np.bincount(images.drawn[rows, attribute], minlength=n) > 0) & (total > 0.5)
    share = np.divide(of_block, total, out=np.zeros_like(of_block), where=present)
    others = np.zeros(u.shape[1], bool)
    for b, columns in enumerate(images.blocks):
        others[columns] = b != attribute and b not in left_out
    x = u[:, others]
    means = share.T @ x
    spread = np.zeros((n, x.shape[1], x.shape[1]))
    for j in np.flatnonzero(present):
        deviations = share[:, j, None] * (x - means[j])
        spread[j] = deviations.T @ deviations
    attribute_of_column = np.concatenate([np.full(c.stop - c.start, b, np.int64) for b, c in enumerate(images.blocks)])[
        others[1:]
    ]
    middle = means[present].mean(axis=0) if present.any() else np.zeros(x.shape[1])
    raw = np.where(present[:, None], means - middle, 0.0)
    return Composition(attribute, rows, others, present, share, *_drawn_in(raw, spread, attribute_of_column, present))


def _drawn_in(
    raw: Floats, spread: Floats, attribute_of_column: Whole, present: Mask
) -> tuple[Floats, Floats, Floats, Floats]:
    """Shrinks differences by their noise and a normal prior whose width comes from each attribute's differences."""
    width = np.full(len(attribute_of_column), APART**2)
    size = len(attribute_of_column)
    shrinkage, covariance, hidden, shrunk = (
        np.zeros_like(spread),
        np.zeros_like(spread),
        np.zeros_like(spread),
        raw.copy(),
    )
    if not size or not present.any():
        return shrunk, shrinkage, covariance, hidden
    noise = np.einsum("jxx->jx", spread[present])
    for b in np.unique(attribute_of_column):
        columns = attribute_of_column == b
        width[columns] = APART**2 + max(0.0, float((raw[present][:, columns] ** 2 - noise[:, columns]).mean())) * EXTRA
    shrinkage[present] = width[:, None] * np.linalg.inv(spread[present] + np.diag(width) + 1e-9 * np.eye(size))
    shrunk[present] = np.einsum("jxy,jy->jx", shrinkage[present], raw[present])
    covariance[present] = np.diag(width) - shrinkage[present] * width
    missed = np.eye(size) - shrinkage[present]
    hidden[present] = (missed * width) @ np.moveaxis(missed, 1, 2)
    return shrunk, shrinkage, covariance, hidden


def standardised(images: ShownValues, effects: Effects, right: ArrayLike, spread: Composition) -> Standardised:
    """Estimates the other attributes' part in an attribute's bias scores, on the images that were drawn for its values.

    The variance of phi - moved is that of accuracies net of the others' effects as far as `moved` takes them away, plus
    the uncertainty of effects and of composition.

    Args: right: booleans (N,), as for `effects`.
    Returns: `Standardised`.
    """
    correct = np.asarray(right, np.float64)
    y, rows = correct[spread.rows], spread.rows
    others, share, present = spread.others, spread.share, spread.present
    x, mean = images.columns[rows][:, others], effects.mean[others]
    contrast = _contrasts(present)
    differences = contrast @ spread.apart
    interaction_effects, interaction_doubt = _interactions(images, effects, correct, spread)
    changed = spread.apart * (mean + interaction_effects)
    moved = contrast @ changed.sum(axis=1)
    accuracy = share.T @ y
    of_images = (share * (y[:, None] - accuracy)) @ contrast.T
    by_means = share * (x @ np.einsum("jxy,x->yj", spread.kept, mean))
    by_means = (by_means - share * by_means.sum(axis=0)) @ contrast.T
    by_effects = effects.influence[:, others] @ differences.T  # what images change in `moved` by the effects
    own_variance = (of_images**2).sum(axis=0)
    other_images = (by_effects[~rows] ** 2).sum(axis=0)
    remaining = ((of_images - by_means - by_effects[rows]) ** 2).sum(axis=0) + other_images
    moving = ((by_means + by_effects[rows]) ** 2).sum(axis=0) + other_images
    uncertainty = _doubt(images, effects, (differences, contrast, interaction_doubt), spread)
    added = np.maximum(remaining + uncertainty - own_variance, 0.0)
    parts = _by_attribute(images, spread, contrast, changed)
    undefined = np.where(present & (present.sum() >= 2), 0.0, np.nan)
    return Standardised(
        moved + undefined, np.sqrt(moving + uncertainty) + undefined, added + undefined, parts + undefined[:, None]
    )


def _doubt(images: ShownValues, effects: Effects, slopes: tuple[Floats, Floats, Floats], spread: Composition) -> Floats:
    """Computes the variance of `moved` (n,) that comes from the uncertainty of effects, of the verifier and of
    composition.

    `slopes`: the derivatives of `moved` by effects (n, others), the contrasts (n, n), and the covariances of the
    effects' differences on each value (n, others, others).
    """
    differences, contrast, interaction_doubt = slopes
    others, mean = spread.others, effects.mean[spread.others]
    prior = effects.prior[np.ix_(others, others)]
    influence = effects.influence[:, others]
    covariance = prior + influence.T @ influence
    of_composition = (
        np.einsum("jxy,xy->j", spread.doubt, covariance)
        + np.einsum("jxy,xy->j", spread.hidden, np.outer(mean, mean))
        + np.einsum("jx,jxy,jy->j", spread.apart, interaction_doubt, spread.apart)
    )
    of_effects = np.einsum("jx,xy,jy->j", differences, prior, differences) + _of_calibration(
        images, effects, differences, spread
    )
    uncertainty: Floats = of_effects + contrast**2 @ of_composition
    return uncertainty


def _by_attribute(images: ShownValues, spread: Composition, contrast: Floats, changed: Floats) -> Floats:
    """Computes how far each attribute (columns) moves the score of each value (rows)."""
    parts = np.zeros((len(contrast), len(images.blocks)))
    position = np.cumsum(spread.others) - 1
    for b, columns in enumerate(images.blocks):
        if spread.others[columns].any():
            parts[:, b] = contrast @ changed[:, position[columns]].sum(axis=1)
    return parts


def _interactions(images: ShownValues, effects: Effects, right: Floats, spread: Composition) -> tuple[Floats, Floats]:
    """Estimates how much effects differ on each value of the attribute (n, others), and the covariances of these
    differences.

    Solves the normal equations of each value's images alone, with the residuals of the common effects.
    """
    used = spread.others.copy()
    used[0] = True
    errors = residuals(images, right, effects.mean, centred=False)[spread.rows][:, used]
    n, size = spread.share.shape[1], int(used.sum()) - 1
    differences, covariances = np.zeros((n, size)), np.zeros((n, size, size))
    attribute_of_column = np.concatenate([np.full(c.stop - c.start, b) for b, c in enumerate(images.blocks)])[
        spread.others[1:]
    ]
    variances = np.concatenate([[FLAT**2], np.full(size, (5 * INTERACTION) ** 2)])
    cells = [_equations(images, spread, used, errors, j) for j in range(n) if spread.present[j]]
    for _ in range(FEW):
        for j, (information, score) in zip(np.flatnonzero(spread.present), cells, strict=True):
            covariance = np.linalg.inv(information + np.diag(1 / variances))
            differences[j], covariances[j] = (covariance @ score)[1:], covariance[1:, 1:]
        square = (differences**2 + np.einsum("jxx->jx", covariances))[spread.present]
        for b in np.unique(attribute_of_column):
            columns = attribute_of_column == b
            variances[1:][columns] = (INTERACTION**2 * BELIEF + square[:, columns].sum()) / (
                BELIEF + square[:, columns].size
            )
    return differences, covariances


def _equations(images: ShownValues, spread: Composition, used: Mask, errors: Floats, j: int) -> tuple[Floats, Floats]:
    """Computes information and score of the effects among one value's images."""
    weights = spread.share[:, j]
    u = images.columns[spread.rows][:, used]
    moments = u.T @ (weights[:, None] * u)
    start = 1
    for block in images.blocks:
        if used[block].any():
            columns = slice(start, start + block.stop - block.start)
            moments[columns, columns] = np.diag(np.maximum(weights @ u[:, columns], 1e-6))
            start = columns.stop
    centred = weights[:, None] * (errors - weights @ errors)
    noise = centred.T @ centred + np.diag(RIDGE * (weights[:, None] ** 2 * u**2).sum(axis=0) + 1e-9)
    weighted = np.linalg.solve(noise, moments).T
    return weighted @ moments, weighted @ (weights @ errors)


def _of_calibration(images: ShownValues, effects: Effects, differences: Floats, spread: Composition) -> Floats:
    """Computes the part of the variance of `moved` that comes from errors of the confusion matrices, through
    composition and effects together."""
    variance = np.zeros(len(differences))
    padded = np.zeros((len(differences), len(effects.mean)))
    padded[:, spread.others] = differences
    for b, block in enumerate(images.blocks):
        slopes = np.einsum("je,ekw->jkw", padded, effects.slopes[b])
        slopes -= np.einsum("jk,w->jkw", padded[:, block], images.inverses[b] @ effects.mean[block])
        variance += np.einsum("jkw,kwv,jkv->j", slopes, images.spread[b], slopes)
    return variance


def _contrasts(present: Mask) -> Floats:
    """Returns the weights (j, k) of accuracies in phi_j: 1 for j, minus 1 over the number of the others, 0 for values
    without images."""
    n = len(present)
    n_others = max(int(present.sum()) - 1, 1)
    result: Floats = np.where(np.eye(n, dtype=bool), 1.0, -1.0 / n_others) * present
    return result
