"""Accuracies and bias scores of an attribute's values where images may show another value than they were drawn for, or
not the class at all.

Knows counts: of the images drawn for one value, how many a verifier said to show each value (and how many not to show
the class), and how many of them the classifier got right; and the verifier's answers on images of known content. Knows
nothing of images, captions or models. The model and its estimation are `metrics.latent_classes`'s.

For two values the estimate of M from the answers' shares is Rogan & Gladen's (1978); the whole is the latent-class
model of Hui & Walter (1980) and Dawid & Skene (1979) with a calibrated second rater. What it assumes: whether the
classifier is right depends on what an image shows, not on what it was drawn for nor on whether the verifier errs.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.latent_classes import Covariance, Fit, Known, covariance, fitted, smoothed
from c2b_ray.metrics.levels import deviations
from c2b_ray.metrics.scores import Floats, checked_counts

__all__ = ["Corrected", "Known", "corrected"]


@dataclass(frozen=True)
class Corrected:
    """Estimates for n values; arrays are float64.

    `accuracy` (n,): of images that show a value (and the class). `effective` (n,): the number of images of known
    content with the same information. `covariance` (n, n): of the accuracies. `contrast_test` computes bias scores from
    these three. `from_verifier` (n, n): the part of the covariance that comes from not knowing how often the verifier
    is right, which does not average out over classes.

    All else describes the classified images. `shown` (n, n): of those drawn for a value (row) that show the class, the
    share that shows each value; `shown_low`, `shown_high` (n,): limits of the share that shows what it was drawn for.
    `class_shown`, `class_low`, `class_high` (n,): share that shows the class, NaN where the verifier was not asked for
    it. `sensitivity`, `specificity` (n,): of the verifier, one value against the others as they occur in these images;
    `class_sensitivity`: of the verifier on the class, NaN where it was not asked for the class.
    """

    accuracy: Floats
    effective: Floats
    covariance: Floats
    from_verifier: Floats
    shown: Floats
    shown_low: Floats
    shown_high: Floats
    class_shown: Floats
    class_low: Floats
    class_high: Floats
    sensitivity: Floats
    specificity: Floats
    class_sensitivity: float


def corrected(
    right: ArrayLike,
    wrong: ArrayLike,
    calibration: ArrayLike | Known,
    confidence: float = 0.95,
    copies: float | tuple[float, float] = 1.0,
    unclassified: ArrayLike | None = None,
) -> Corrected:
    """Corrects accuracies for what images really show.

    effective = s(1 - s) / variance,   s the accuracy with half an image of even content more

    The covariance of the estimates is the inverse of their Fisher information, in which the calibration's size counts.

    Args: right, wrong: whole numbers of shape (n, n), or (n, n + 1) where the verifier was asked for the class too:
    images drawn for value j (row) that the verifier said to show w (column; the last: not to show the class), and that
    the classifier got right or wrong. calibration: images of known content, `Known` or its `values` alone; its
    `classes` must be there exactly where the class was asked for. confidence: of limits, in (0, 1). copies: how many
    times each image is counted on average, 1 or more, where an image may be drawn for several values: copies add no
    information; a second number is for unclassified images. unclassified: whole numbers of the same shape: images that
    the verifier saw and the classifier did not, chosen by row and answer alone.
    Returns: `Corrected`. A value for which no image was classified has NaN for its accuracy and limits, and 0 effective
    images.
    Raises: ValueError where shapes differ, counts are negative or not whole, or for the confidence or copies.
    """
    counts, known = checked(right, wrong, unclassified, calibration)
    each = copies if isinstance(copies, tuple) else (copies, copies)
    if not min(each) >= 1:
        raise ValueError(f"copies = {copies} must be 1 or more")
    z = deviations(confidence)
    held = counts[..., :2].sum(axis=(1, 2)) > 0
    if not held.any():
        return _nothing(len(held))
    fit = fitted(counts, known)
    fit = replace(fit, images=fit.images / each[0])
    return _described(fit, held, each, z)


def checked(
    right: ArrayLike, wrong: ArrayLike, unclassified: ArrayLike | None, calibration: ArrayLike | Known
) -> tuple[Floats, Known]:
    """Checks the input and returns counts (j, w, 3), right, wrong and unclassified, and the verifier's calibration."""
    known = calibration if isinstance(calibration, Known) else Known(np.asarray(calibration, dtype=np.float64))
    r, x = np.asarray(right, dtype=np.float64), np.asarray(wrong, dtype=np.float64)
    left = np.zeros_like(r) if unclassified is None else np.asarray(unclassified, dtype=np.float64)
    more = 0 if known.classes is None else 1
    if r.ndim != 2 or r.shape[1] != r.shape[0] + more or not r.shape == x.shape == left.shape:
        raise ValueError(
            "right, wrong and unclassified must have one square shape (values, values), with a column more where the "
            f"calibration holds the class, got {r.shape}, {x.shape} and {left.shape}"
        )
    checked_counts(r, r + x)
    checked_counts(left, left)
    shape = (len(r), len(r))
    for name, table, expected in (("values", known.values, shape), ("classes", known.classes, (2, 2))):
        if table is not None and (table.shape != expected or not np.isfinite(table).all() or (table < 0).any()):
            raise ValueError(f"calibration ({name}) must hold numbers of 0 or more in shape {expected}, got {table}")
    return np.stack([r, x, left], axis=2), known


def _nothing(n: int) -> Corrected:
    unknown, square = np.full(n, np.nan), np.full((n, n), np.nan)
    return Corrected(unknown, np.zeros(n), square, square, square, *(unknown,) * 7, float("nan"))


def _described(fit: Fit, held: NDArray[np.bool_], copies: tuple[float, float], z: float) -> Corrected:
    found, n = covariance(fit, copies), len(held)
    spread = found.parameters
    accuracy, smooth = fit.accuracy[:n], smoothed(fit)[:n]
    variance = np.diag(spread)[:n]
    effective = np.divide(smooth * (1 - smooth), variance, out=np.zeros(n), where=held & (variance > 0))
    return Corrected(
        accuracy=np.where(held, accuracy, np.nan),
        effective=effective,
        covariance=spread[:n, :n],
        from_verifier=found.verifier,
        **_purity(fit, held, found, z),
        **_skill(fit, n),
    )


def _purity(fit: Fit, held: NDArray[np.bool_], found: Covariance, z: float) -> dict[str, Any]:
    """Estimates what the classified images of each row show, with limits.

    Of row j the share in state k is a_jk / sum over l of a_jl, a_jk = sum over w of M_jk * C_kw * the share of the
    row's images with answer w that was classified: M_jk itself where all were.
    """
    n, states = len(held), len(fit.accuracy)
    spread, of_shown, of_answers = found.parameters, found.shown, found.answers
    kept = fit.classified @ fit.answers.T  # (j, k): the chance of being classified
    mass = fit.shown * kept
    by_answer = np.einsum("jw,kwp->jkp", fit.classified, of_answers.reshape(states, states, -1), optimize=True)
    slope = kept[..., None] * of_shown.reshape(n, states, -1) + fit.shown[..., None] * by_answer  # of a_jk

    def share(part: Floats, whole: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns the share of the states `part` among `whole` (j, k), with limits."""
        top, bottom = (mass * part).sum(axis=1), (mass * whole).sum(axis=1)
        result = top / bottom
        tilt = np.einsum("jkp,jk->jp", slope, part - whole * result[:, None]) / bottom[:, None]
        wide = z * np.sqrt(np.maximum(np.einsum("jp,pq,jq->j", tilt, spread, tilt), 0.0))
        return tuple(  # type: ignore[return-value]
            np.where(held, np.clip(x, 0.0, 1.0), np.nan) for x in (result, result - wide, result + wide)
        )

    of_values = np.broadcast_to(np.arange(states) < n, mass.shape).astype(float)
    _, shown_low, shown_high = share(np.eye(n, states), of_values)
    shown = mass[:, :n] / mass[:, :n].sum(axis=1, keepdims=True)
    if states > n:
        class_shown, class_low, class_high = share(of_values, np.ones_like(mass))
    else:
        class_shown = class_low = class_high = np.full(n, np.nan)
    return {
        "shown": np.where(held[:, None], shown, np.nan),
        "shown_low": shown_low,
        "shown_high": shown_high,
        "class_shown": class_shown,
        "class_low": class_low,
        "class_high": class_high,
    }


def _skill(fit: Fit, n: int) -> dict[str, Any]:
    """Computes the verifier's sensitivity and specificity. Specificity: of the images that show another value, the
    share for which the verifier does not name this one."""
    with_class = len(fit.accuracy) > n
    values, classes = fit.verifier
    others = fit.images[:n, None] * (1 - np.eye(n))  # (shows k, value)
    said, among = (others * values).sum(axis=0), others.sum(axis=0)
    return {
        "sensitivity": np.diag(values).copy(),
        "specificity": 1 - np.divide(said, among, out=np.zeros(n), where=among > 0),
        "class_sensitivity": float(classes[0, 0]) if with_class else float("nan"),
    }
