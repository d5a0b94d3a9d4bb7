"""What a table of true classes and answers says: precision, recall and F1, calibration, curves of two
classes, and whether the wrong answers are the classes that another column of the images names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PerClass(NamedTuple):
    """Arrays of shape (classes,), in [0, 1]; NaN where there is nothing to divide by."""

    precision: Floats
    recall: Floats
    f1: Floats


def precision_recall_f1(counts: ArrayLike) -> PerClass:
    """Returns precision, recall and F1 of each class.

    `counts`: integers, shape (classes, answers) with answers ≥ classes: how many images of class i were answered j;
    answers beyond the classes are no class, and count as misses alone. precision_i = c_ii / Σ_k c_ki, recall_i =
    c_ii / Σ_j c_ij, F1 their harmonic mean, 2 c_ii / (Σ_k c_ki + Σ_j c_ij) (van Rijsbergen 1979). Precision is of the
    images at hand: it changes with how many of each class there are. A class that is never answered has no precision,
    one without images no recall. An empty table gives empty arrays. ValueError for negative counts or too few columns.
    """
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < table.shape[0] or (table < 0).any():
        raise ValueError(f"counts: {table.shape}, expected (classes, answers) with answers ≥ classes, none negative")
    right = np.diagonal(table)
    answers_of_class, images_of_class = table[:, : len(table)].sum(axis=0), table.sum(axis=1)
    return PerClass(
        _ratio(right, answers_of_class),
        _ratio(right, images_of_class),
        _ratio(2 * right, answers_of_class + images_of_class),
    )


def _ratio(part: Floats, total: Floats) -> Floats:
    ratio: Floats = np.divide(part, total, out=np.full(part.shape, np.nan), where=total > 0)
    return ratio


class Reliability(NamedTuple):
    """Of each bin with answers: its mean confidence, the share of right answers, and how many it holds. `error`: the
    expected calibration error, in [0, 1]; NaN without answers."""

    confidence: Floats
    accuracy: Floats
    answers: Ints
    error: float


def reliability(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> Reliability:
    """Returns the reliability diagram of answers in `bins` equally wide bins over [0, 1], the first including 0.

    `confidence`: shape (n,), in [0, 1]; `right`: shape (n,), booleans. The error is Σ_b n_b / n |accuracy_b −
    confidence_b| (Guo et al. 2017, eq. 3); 0: each bin is as often right as it is sure. It is biased upwards where bins
    hold few answers. ValueError for other shapes, or a confidence outside [0, 1].
    """
    confidences, truth = np.asarray(confidence, np.float64), np.asarray(right, bool)
    if confidences.shape != truth.shape or confidences.ndim != 1:
        raise ValueError(f"confidence {confidences.shape}, right {truth.shape}: expected two arrays of one length")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("confidence: expected numbers from 0 to 1")
    number = np.clip(np.ceil(confidences * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(number, minlength=bins)
    nonempty = count > 0
    mean = np.bincount(number, confidences, bins)[nonempty] / count[nonempty]
    share = np.bincount(number, truth, bins)[nonempty] / count[nonempty]
    error = float(np.average(np.abs(share - mean), weights=count[nonempty])) if len(confidences) else float("nan")
    return Reliability(mean, share, count[nonempty], error)


class Curves(NamedTuple):
    """Points of the two curves, from the highest threshold down, one for each distinct score. `auroc`: in [0, 1], 0.5
    where scores say nothing; `average_precision`: in [0, 1], as high as the share of positives where they say
    nothing."""

    false_positive_rate: Floats
    recall: Floats
    precision: Floats
    auroc: float
    average_precision: float


def two_class_curves(score: ArrayLike, positive: ArrayLike) -> Curves:
    """Returns the ROC and precision-recall curves of one class against the other.

    `score`: shape (n,), higher for the positive class, any finite numbers; `positive`: shape (n,), booleans. Equal
    scores are one threshold. AUROC by the trapezoid rule, equal to the Mann–Whitney statistic; average precision
    Σ (R_k − R_k−1) P_k. ValueError without images of both classes, or where shapes differ.
    """
    scores, truth = np.asarray(score, np.float64), np.asarray(positive, bool)
    if scores.shape != truth.shape or scores.ndim != 1 or truth.all() or not truth.any():
        raise ValueError("score, positive: expected two arrays of one length, with images of both classes")
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(scores[order]) != 0, True])
    hits = np.cumsum(truth[order])[ends]
    alarms = ends + 1 - hits
    recall, precision = hits / hits[-1], hits / (ends + 1)
    rate = alarms / alarms[-1]
    area = float(np.trapezoid(np.r_[0, recall], np.r_[0, rate]))
    return Curves(rate, recall, precision, area, float(np.sum(np.diff(np.r_[0, recall]) * precision)))


class NamedAnswers(NamedTuple):
    """`named` of `wrong` answers are the class that the column names; `expected` by chance. `p_value`: of as many or
    more by chance."""

    named: int
    wrong: int
    expected: float
    p_value: float


MOST_RESAMPLES = 9_999
_WORK = 20_000_000


def wrong_answers_named(truth: ArrayLike, value: ArrayLike, answer: ArrayLike, seed: int = 0) -> NamedAnswers:
    """Tests whether wrong answers are, more often than by chance, the class that a column of the image names.

    `truth`, `value`, `answer`: integers, shape (n,): the number of the image's class, of the class that its column
    names, and of the class it was taken for; negative where value or answer is no class. Only wrong answers to images
    whose column names another class count: an answer cannot be wrong and be the image's own class. T = #{i: answer_i =
    value_i}; chance permutes the column within each class, E[T] = Σ_c Σ_v n_cv a_cv / n_c with n_cv wrong answers on
    value v, a_cv of answer v, n_c in all. p = (1 + #{T* ≥ T}) / (1 + B) (Phipson & Smyth 2010), B up to 9,999 and
    fewer where there are many answers. The images have to be independent: copies of one scene make p too small.
    No wrong answer gives 0 of 0 and p = 1. ValueError where lengths differ.
    """
    true_class, named_class, answered_class = (np.asarray(column, np.int64) for column in (truth, value, answer))
    if not true_class.shape == named_class.shape == answered_class.shape or true_class.ndim != 1:
        raise ValueError("truth, value, answer: expected three arrays of one length")
    is_counted = (named_class >= 0) & (named_class != true_class) & (answered_class != true_class)
    true_class, named_class, answered_class = (
        true_class[is_counted],
        named_class[is_counted],
        answered_class[is_counted],
    )
    observed, expected = int(np.sum(named_class == answered_class)), 0.0
    if not len(true_class):
        return NamedAnswers(0, 0, 0.0, 1.0)
    order = np.argsort(true_class, kind="stable")
    true_class, named_class, answered_class = true_class[order], named_class[order], answered_class[order]
    for start, stop in _runs(true_class):
        values, counts = np.unique(named_class[start:stop], return_counts=True)
        answers, times = np.unique(answered_class[start:stop], return_counts=True)
        _, value_rows, answer_rows = np.intersect1d(values, answers, return_indices=True)
        expected += float(counts[value_rows] @ times[answer_rows]) / (stop - start)
    resamples = int(min(MOST_RESAMPLES, max(199, _WORK // len(true_class))))
    random, at_least_observed = np.random.default_rng(seed), 0
    for _ in range(resamples):
        shuffled = named_class[np.lexsort((random.random(len(true_class)), true_class))]
        at_least_observed += int(np.sum(shuffled == answered_class)) >= observed
    return NamedAnswers(observed, len(true_class), expected, (1 + at_least_observed) / (1 + resamples))


def _runs(numbers: Ints) -> list[tuple[int, int]]:
    """Returns start and stop of each run of equal numbers."""
    edges = np.r_[0, np.flatnonzero(np.diff(numbers)) + 1, len(numbers)]
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
