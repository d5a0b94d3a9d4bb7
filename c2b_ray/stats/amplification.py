"""Spurious correlations: how much a model's outputs lean on an attribute, beyond what the truth does.

Works on indicator arrays of attributes, targets and predictions; does not know their meaning or the models that made
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from c2b_ray.stats.disparity import Chance
from c2b_ray.stats.resampling import bootstrap_weights, upper_tail
from c2b_ray.stats.scores import Floats, Ints

SignRule = Literal["code", "formula"]
"""The direction of a pair that is exactly independent: 0 in the authors' code, -1 by the papers' formula."""


def directional_bias_amplification(
    attributes: ArrayLike, targets: ArrayLike, predictions: ArrayLike, rule: SignRule = "code"
) -> float:
    """Directional bias amplification, attribute -> target: does the model predict targets from the attribute too
    eagerly?

    mean over pairs (a, t) of y_at * (P(predicted t | a) - P(true t | a)),   y_at = sign(P(a, t) - P(a) P(t)) in the
    truth

    Wang & Russakovsky 2021, section 4; Ramos et al. 2025, Eqs. 4 to 6. Two rules exist for a pair that is exactly
    independent, P(a, t) = P(a) P(t): the papers' formula has u = 1[P(a, t) > P(a) P(t)] and so counts it as negative
    (-1; rule `formula`); the authors' code takes the sign and counts it as 0 (rule `code`, the default: an independent
    pair has no direction to amplify). That code compares floats, where an independent pair often comes out above or
    below; here n_at * N and n_a * n_t are compared as integers. Its nanmean drops attributes without rows; so does this
    function: the mean is over the pairs of attribute values that occur, and a caller who must know counts them first.

    Args: attributes (N, A), targets (N, T), predictions (N, T): 0/1 or bool, one-hot or multi-hot, rows aligned; rule.
    Returns: float in [-1, 1]. Above 0: predictions follow the attribute more than the truth does; 0: as much (or every
    pair independent). NaN where there are no rows, no targets, or no row with an attribute.
    Raises: ValueError for other values than 0 and 1 or for shapes that do not fit.
    """
    a, t, p = (
        _indicators("attributes", attributes),
        _indicators("targets", targets),
        _indicators("predictions", predictions),
    )
    if len(a) != len(t) or t.shape != p.shape:
        raise ValueError(f"need (N, A), (N, T), (N, T); got {a.shape}, {t.shape}, {p.shape}")
    rows, true = a.sum(axis=0), a.T @ t
    return float(amplification_of_counts(true, a.T @ p, rows, directions_of(true, rows, t.sum(axis=0), len(a), rule)))


def directions_of(true: Ints, rows: Ints, targets: Ints, total: int | Ints, rule: SignRule) -> Ints:
    """Returns the direction y_at of every pair, computed in whole numbers: (..., A, T) of -1, 0 (only with rule `code`)
    and 1.

    Args: true: (..., A, T), number of rows with a and t; rows: (A,) or (..., A), with a; targets: (..., T), with t;
    total: all rows, (...,).
    """
    sign = np.sign(true * np.asarray(total)[..., None, None] - rows[..., :, None] * targets[..., None, :])
    return np.where(sign > 0, 1, -1) if rule == "formula" else sign


def amplification_of_counts(true: ArrayLike, predicted: ArrayLike, rows: ArrayLike, directions: ArrayLike) -> Floats:
    """Computes the amplification from counts (or from weights of bootstrap samples): `true`, `predicted`, `directions`
    (..., A, T), `rows` (..., A). NaN where no row has an attribute or there is no target."""
    t, p, n = (np.asarray(counts, np.float64) for counts in (true, predicted, rows))
    occurs = n > 0
    change = np.divide(
        p - t, n[..., None], out=np.zeros(np.broadcast_shapes(t.shape, p.shape)), where=occurs[..., None]
    )
    pairs = occurs.sum(axis=-1) * t.shape[-1]
    total = (np.asarray(directions) * change).sum(axis=(-2, -1))
    result: Floats = np.divide(total, pairs, out=np.full(np.shape(total), np.nan), where=pairs > 0)
    return result


def leakage(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Measures how well an attribute can be guessed from captions; LIC is a difference of two such scores.

    1/N * sum of confidence_i over the i whose guess is right

    LIC (Hirota et al. 2022); Ramos et al. 2025, Eq. 7. LIC = leakage of a model's captions - leakage of human captions.

    Args: confidence: shape (N,), in [0, 1], the guesser's probability of the true group; correct: shape (N,), 0/1 or
    bool, whether its guess is that group.
    Returns: float in [0, 1]. 0: no guess is right. NaN for N = 0.
    Raises: ValueError for values outside these ranges or for shapes that differ.
    """
    confidences, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if confidences.ndim != 1 or confidences.shape != right.shape:
        raise ValueError(f"confidence and correct must both have shape (N,), got {confidences.shape} and {right.shape}")
    if not ((confidences >= 0) & (confidences <= 1)).all() or not np.isin(right, (0, 1)).all():
        raise ValueError("confidence must lie in [0, 1] and correct must be 0 or 1")
    return float((confidences * right).mean()) if confidences.size else float("nan")


def _indicators(name: str, values: ArrayLike) -> Ints:
    array = np.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"{name} must have two axes, got shape {array.shape}")
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold 0 and 1 only")
    return array.astype(np.int64)


# Directional bias amplification with its expected value under chance, an interval over images, and a p-value.
#
# Directions are taken from the same truth that predictions are compared with. Where the directions are noise, the
# amplification is below 0 on average: a pair that was by chance too frequent in the truth is less frequent in the
# predictions.


@dataclass(frozen=True)
class AmplificationAnswers:
    """Numbered questions and answers, one row per question: its image (from 0), the attribute's value, the true and the
    predicted answer. An answer that is not among the `answers` considered is -1. `groups`: the number of attribute
    values."""

    images: Ints
    attributes: Ints
    true: Ints
    predicted: Ints
    groups: int
    answers: int


@dataclass(frozen=True)
class Amplification:
    """The amplification with its limits and p-value. `expected`: its mean where truth and prediction are swapped at
    random; `replicates` (resamples,): its values in bootstrap samples."""

    value: float
    low: float
    high: float
    expected: float
    p_value: float
    replicates: Floats


def amplification(questions: AmplificationAnswers, chance: Chance, rule: SignRule = "code") -> Amplification:
    """Directional bias amplification of single-valued attributes and answers (`directional_bias_amplification`).

    The p-value is two-sided, from a permutation test: if predictions were distributed like the truth given the
    attribute, truth and prediction could be swapped. All questions of an image are swapped together, and the directions
    are computed anew, so the null includes the noise of the directions. The interval is normal, with its spread from
    bootstrap samples of images (`_resampled`); it spans both the observed value and the observed value less the
    expected one. Made with the directions held fixed, and no more images than were seen, it held the truth in .55 of
    samples where an answer is nearly independent of the attribute, and in .54 with one image of a value; so, in .90 or
    more.

    Returns: `Amplification`; NaN where there are no questions, or no answers. 0: predictions go with the attribute as
    much as the truth does.
    """
    unknown = float("nan")
    if not len(questions.images) or not questions.answers:
        return Amplification(unknown, unknown, unknown, unknown, unknown, np.full(chance.resamples, unknown))
    images = int(questions.images.max()) + 1
    true, predicted = (_by_image(questions, codes, images) for codes in (questions.true, questions.predicted))
    rows = np.zeros((images, questions.groups))
    np.add.at(rows, (questions.images, questions.attributes), 1)
    value = _value(true.sum(0), predicted.sum(0), rows.sum(0), questions, rule)
    null = _swapped(true, predicted, rows.sum(0), questions, (chance, rule))
    samples = _resampled((true, predicted, rows), questions, chance, rule)
    margin = float(ndtri((1 + chance.confidence) / 2) * samples.std(ddof=1))
    expected = float(null.mean())
    p_value = upper_tail(np.array([abs(value - expected)]), np.abs(null - expected)[:, None])
    ends = (value, value - expected)
    return Amplification(value, min(ends) - margin, max(ends) + margin, expected, float(p_value[0]), samples)


def _by_image(questions: AmplificationAnswers, codes: Ints, images: int) -> Floats:
    counts = np.zeros((images, questions.groups * questions.answers))
    has_answer = codes >= 0
    cells = questions.attributes[has_answer] * questions.answers + codes[has_answer]
    np.add.at(counts, (questions.images[has_answer], cells), 1)
    return counts


def _value(true: Floats, predicted: Floats, rows: Floats, questions: AmplificationAnswers, rule: SignRule) -> float:
    shape = (questions.groups, questions.answers)
    pairs = np.rint(true).astype(np.int64).reshape(shape)
    directions = directions_of(pairs, rows.astype(np.int64), pairs.sum(axis=0), int(rows.sum()), rule)
    return float(amplification_of_counts(pairs, predicted.reshape(shape), rows, directions))


def _resampled(
    counts: tuple[Floats, Floats, Floats], questions: AmplificationAnswers, chance: Chance, rule: SignRule
) -> Floats:
    """Returns the values of bootstrap samples of images, (resamples,), with the directions of each sample's own truth.

    `counts`: by image, true and predicted answers of each attribute value, and questions. To each value's images one
    more is added that is drawn from all of them: a value with one image would show the same in every sample.
    """
    shape = (-1, questions.groups, questions.answers)
    weights = bootstrap_weights(len(counts[0]), chance.resamples, chance.seed)
    extra = np.random.default_rng(chance.seed + 1).integers(0, len(weights[0]), (questions.groups, chance.resamples))
    true, predicted = (
        (weights @ counts_of_image).reshape(shape)
        + np.moveaxis(counts_of_image.reshape(shape).sum(axis=1)[extra], 0, 1)
        for counts_of_image in counts[:2]
    )
    rows = weights @ counts[2] + counts[2].sum(axis=1)[extra].T
    truth, asked_counts = np.rint(true).astype(np.int64), np.rint(rows).astype(np.int64)
    directions = directions_of(truth, asked_counts, truth.sum(axis=1), asked_counts.sum(axis=1), rule)
    return amplification_of_counts(truth, predicted, rows, directions)


def _swapped(
    true: Floats, predicted: Floats, rows: Floats, questions: AmplificationAnswers, options: tuple[Chance, SignRule]
) -> Floats:
    chance, rule = options
    random = np.random.default_rng(chance.seed)
    change, shape = predicted - true, (-1, questions.groups, questions.answers)
    parts = []
    size = max(1, 4_000_000 // len(true))
    for start in range(0, chance.permutations, size):
        swap = random.random((min(size, chance.permutations - start), len(true))) < 0.5
        shift = swap.astype(np.float64) @ change
        truth = np.rint(true.sum(0) + shift).astype(np.int64).reshape(shape)
        directions = directions_of(truth, rows.astype(np.int64), truth.sum(axis=1), int(rows.sum()), rule)
        parts.append(amplification_of_counts(truth, (predicted.sum(0) - shift).reshape(shape), rows, directions))
    return np.concatenate(parts)
