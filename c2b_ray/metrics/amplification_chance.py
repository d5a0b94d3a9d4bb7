"""Directional bias amplification with its expected value under chance, an interval over images, and a p-value.

Works on numbered images, attribute values, answers and predictions. Directions are taken from the same truth that
predictions are compared with. Where the directions are noise, the amplification is below 0 on average: a pair that was
by chance too frequent in the truth is less frequent in the predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from c2b_ray.metrics.amplification import SignRule, amplification_of_counts, directions_of
from c2b_ray.metrics.disparity import Chance
from c2b_ray.metrics.resampling import bootstrap_weights, upper_tail
from c2b_ray.metrics.scores import Floats, Ints

__all__ = ["Amplification", "Answers", "amplification"]


@dataclass(frozen=True)
class Answers:
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


def amplification(questions: Answers, chance: Chance, rule: SignRule = "code") -> Amplification:
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
    drawn = _resampled((true, predicted, rows), questions, chance, rule)
    reach = float(ndtri((1 + chance.confidence) / 2) * drawn.std(ddof=1))
    expected = float(null.mean())
    far = upper_tail(np.array([abs(value - expected)]), np.abs(null - expected)[:, None])
    ends = (value, value - expected)
    return Amplification(value, min(ends) - reach, max(ends) + reach, expected, float(far[0]), drawn)


def _by_image(questions: Answers, codes: Ints, images: int) -> Floats:
    counts = np.zeros((images, questions.groups * questions.answers))
    known = codes >= 0
    at = questions.attributes[known] * questions.answers + codes[known]
    np.add.at(counts, (questions.images[known], at), 1)
    return counts


def _value(true: Floats, predicted: Floats, rows: Floats, questions: Answers, rule: SignRule) -> float:
    shape = (questions.groups, questions.answers)
    pairs = np.rint(true).astype(np.int64).reshape(shape)
    directions = directions_of(pairs, rows.astype(np.int64), pairs.sum(axis=0), int(rows.sum()), rule)
    return float(amplification_of_counts(pairs, predicted.reshape(shape), rows, directions))


def _resampled(counts: tuple[Floats, Floats, Floats], questions: Answers, chance: Chance, rule: SignRule) -> Floats:
    """Returns the values of bootstrap samples of images, (resamples,), with the directions of each sample's own truth.

    `counts`: by image, true and predicted answers of each attribute value, and questions. To each value's images one
    more is added that is drawn from all of them: a value with one image would show the same in every sample.
    """
    shape = (-1, questions.groups, questions.answers)
    weights = bootstrap_weights(len(counts[0]), chance.resamples, chance.seed)
    extra = np.random.default_rng(chance.seed + 1).integers(0, len(weights[0]), (questions.groups, chance.resamples))
    true, predicted = (
        (weights @ of).reshape(shape) + np.moveaxis(of.reshape(shape).sum(axis=1)[extra], 0, 1) for of in counts[:2]
    )
    rows = weights @ counts[2] + counts[2].sum(axis=1)[extra].T
    truth, asked = np.rint(true).astype(np.int64), np.rint(rows).astype(np.int64)
    directions = directions_of(truth, asked, truth.sum(axis=1), asked.sum(axis=1), rule)
    return amplification_of_counts(truth, predicted, rows, directions)


def _swapped(true: Floats, predicted: Floats, rows: Floats, questions: Answers, how: tuple[Chance, SignRule]) -> Floats:
    chance, rule = how
    random = np.random.default_rng(chance.seed)
    change, shape = predicted - true, (-1, questions.groups, questions.answers)
    parts = []
    size = max(1, 4_000_000 // len(true))
    for start in range(0, chance.permutations, size):
        swap = random.random((min(size, chance.permutations - start), len(true))) < 0.5
        moved = swap.astype(np.float64) @ change
        truth = np.rint(true.sum(0) + moved).astype(np.int64).reshape(shape)
        directions = directions_of(truth, rows.astype(np.int64), truth.sum(axis=1), int(rows.sum()), rule)
        parts.append(amplification_of_counts(truth, (predicted.sum(0) - moved).reshape(shape), rows, directions))
    return np.concatenate(parts)
