"""Accuracies of an attribute's values where a fallible reader says which value each image shows.

Nothing but the reader's answer says to which value an image belongs: unlike images that were drawn for a value
(`stats.noisy_labels`), of which the caption and the answer are two witnesses. The images of one class show value k with
probability π_k, the reader answers w with probability C_kw and, independently of that, the classifier is right with
probability A_k:

    P(answer w, right) = sum over k of π_k C_kw A_k

Images of known content inform C alone (the matrix method: Barron 1977, Biometrics 33:414; Buonaccorsi 2010, section
3.4). The maximum of the joint likelihood is the matrix method's solution wherever that lies inside [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.stats.noisy_labels import CalibrationCounts, covariance, fitted, smoothed
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.scores import Floats, checked_counts

__all__ = ["ReadAccuracies", "read_accuracies"]


@dataclass(frozen=True)
class ReadAccuracies:
    """Of the n values of one attribute, float64.

    `accuracy` (n,): of the images that show a value, in [0, 1]. `effective` (n,): the number of images of known content
    with the same information on it; 0 where none was read as the value. `covariance` (n, n): of the accuracies;
    `from_reader`: the part that comes from not knowing C. `shown`, `shown_low`, `shown_high` (n,): the share of the
    images read as a value that show it, with limits. `sensitivity`, `specificity` (n,): of the reader on each value.
    """

    accuracy: Floats
    effective: Floats
    covariance: Floats
    from_reader: Floats
    shown: Floats
    shown_low: Floats
    shown_high: Floats
    sensitivity: Floats
    specificity: Floats


def read_accuracies(
    right: ArrayLike, wrong: ArrayLike, calibration: ArrayLike, confidence: float = 0.95
) -> ReadAccuracies:
    """Corrects accuracies for a reader's errors.

    effective = s(1 - s) / variance,   s the accuracy with half an image of even content more

    The covariance is the inverse of the Fisher information of A, π and C, in which the calibration's size counts.

    Args: right, wrong: whole numbers (n,), images read as each value, that the classifier got right or wrong.
    calibration: (n, n), images known to show a value (row), by the value that the reader named (column); every row must
    hold an image. confidence: of limits, in (0, 1).
    Returns: `ReadAccuracies`; NaN and 0 effective images for a value that no image was read as.
    Raises: ValueError for shapes that do not agree, counts that are negative or not whole, a value without calibration,
    or the confidence.
    """
    r, x, calibration_counts = (np.asarray(values, np.float64) for values in (right, wrong, calibration))
    n = len(r) if r.ndim == 1 else 0
    if r.ndim != 1 or x.shape != r.shape or calibration_counts.shape != (n, n):
        raise ValueError(
            f"right and wrong must be (n,), calibration (n, n), got {r.shape}, {x.shape}, {calibration_counts.shape}"
        )
    checked_counts(r, r + x)
    if (
        not np.isfinite(calibration_counts).all()
        or (calibration_counts < 0).any()
        or (calibration_counts.sum(axis=1) <= 0).any()
    ):
        raise ValueError(
            f"calibration must hold numbers of 0 or more, and an image of each value, got {calibration_counts}"
        )
    z = deviations(confidence)
    has_images = r + x > 0
    if not has_images.any():
        undefined, square = np.full(n, np.nan), np.zeros((n, n))
        return ReadAccuracies(undefined, np.zeros(n), square, square, *(undefined,) * 5)
    model = fitted(np.stack([r, x, np.zeros(n)], axis=1)[None], CalibrationCounts(calibration_counts))
    uncertainty = covariance(model, (1.0, 1.0))
    spread, smooth = uncertainty.parameters, smoothed(model)
    variance = np.diag(spread)[:n]
    effective = np.divide(smooth * (1 - smooth), variance, out=np.zeros(n), where=has_images & (variance > 0))
    # The share of those read as w that show w: π_w C_ww / sum over k of π_k C_kw.
    shares, answers = model.shown[0], model.answers
    joint = shares[:, None] * answers
    read_shares = joint.sum(axis=0)
    shown = np.diag(joint) / read_shares
    slopes = np.zeros((n, spread.shape[0]))
    by_share, by_answer = uncertainty.shown.reshape(n, -1), uncertainty.answers.reshape(n, n, -1)
    for w in range(n):
        of_joint = by_share * answers[:, w, None] + shares[:, None] * by_answer[:, w]
        slopes[w] = (of_joint[w] - shown[w] * of_joint.sum(axis=0)) / read_shares[w]
    margin = z * np.sqrt(np.maximum(np.einsum("wp,pq,wq->w", slopes, spread, slopes), 0.0))
    images = shares * (r + x).sum()
    other_images = images.sum() - images
    read_images = images @ answers
    return ReadAccuracies(
        accuracy=np.where(has_images, model.accuracy[:n], np.nan),
        effective=effective,
        covariance=spread[:n, :n],
        from_reader=uncertainty.verifier,
        shown=np.where(has_images, shown, np.nan),
        shown_low=np.where(has_images, np.clip(shown - margin, 0.0, 1.0), np.nan),
        shown_high=np.where(has_images, np.clip(shown + margin, 0.0, 1.0), np.nan),
        sensitivity=np.diag(answers).copy(),
        specificity=1
        - np.divide(read_images - images * np.diag(answers), other_images, out=np.zeros(n), where=other_images > 0),
    )
