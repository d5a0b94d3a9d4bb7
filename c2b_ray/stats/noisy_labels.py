"""A joint estimate of what images show, of the verifier's error rates, and of a classifier's accuracy.

An image drawn for row j is in state k with probability M_jk: it shows the class with one of n values or, where the
verifier is asked for the class too, it does not show the class (state n). The verifier answers w with probability
C_kw and, independently of that, the classifier is right with probability A_k:

    P(answer w, right | row j) = sum over k of M_jk * C_kw * A_k

Where the class is asked for, s of the images that show it and 1 - t of those that do not are confirmed, and the value
counts of confirmed images alone: C_kw = s * V_kw and C_kn = 1 - s for k < n, C_nw = (1 - t) * U_w and C_nn = t. Else
C = V. An image that the classifier was not shown adds P(answer w | row j) to the likelihood, which is enough where it
was left out for what it was drawn for and what the verifier said. Images of known content inform V, s and t. EM
maximises the likelihood; the covariance is the inverse of its Fisher information.

Arrays may have leading axes: as many independent fits at once. One fit of an audit takes less time to compute than
NumPy takes to be called, so the runs of all of its groups are fitted together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, xlogy

from c2b_ray.stats.roots import deviations
from c2b_ray.stats.scores import checked_counts

Floats = NDArray[np.float64]

ITERATIONS = 1000
CLOSE = 1e-7
PSEUDO = 0.5
"""Images' worth of even answers and even content added to every row of C and of M: no share is ever exactly 0."""


@dataclass(frozen=True)
class CalibrationCounts:
    """Calibration counts of the verifier. `values` (..., n, n): images that show value k (row) and were answered with w
    (column).

    `classes` (..., 2, 2): images that show the class and images that do not (rows), by the answers that they show it
    and that they do not (columns); None where the verifier is not asked for the class.
    """

    values: Floats
    classes: Floats | None = None


class Run(NamedTuple):
    """The arguments of `corrected` and of `misfit_p_value`."""

    right: ArrayLike
    wrong: ArrayLike
    calibration: ArrayLike | CalibrationCounts
    copies: float | tuple[float, float] = 1.0
    unclassified: ArrayLike | None = None

    @property
    def each(self) -> tuple[float, float]:
        """How many times each classified and each unclassified image is counted."""
        copies = self.copies if isinstance(self.copies, tuple) else (self.copies, self.copies)
        if not min(copies) >= 1:
            raise ValueError(f"copies = {self.copies} must be 1 or more")
        return copies

    def checked(self) -> tuple[Floats, CalibrationCounts]:
        return checked(self.right, self.wrong, self.unclassified, self.calibration)


@dataclass(frozen=True)
class Fit:
    """Estimates: `accuracy` A (..., k), `shown` M (..., j, k), `answers` C (..., k, w); and the data that they were
    fitted to.

    `counts` (..., j, w, y) with y = right, wrong, not classified. `images` (..., k): expected number of classified
    images in state k.
    """

    accuracy: Floats
    shown: Floats
    answers: Floats
    images: Floats
    counts: Floats
    known: CalibrationCounts

    @cached_property
    def chance(self) -> Floats:
        """Returns P(answer w, y | row j), (..., j, w, y); y = 2 is P(answer w | row j)."""
        return _chance(self.shown, self.answers, self.accuracy)

    @property
    def verifier(self) -> tuple[Floats, Floats]:
        """Returns V and [[s, 1 - s], [1 - t, t]]; the second is empty where the verifier is not asked for the class."""
        n = self.known.values.shape[-1]
        if self.known.classes is None:
            return self.answers, np.empty((0, 0))
        s, t = 1 - self.answers[..., 0, n], self.answers[..., n, n]
        classes = np.stack([np.stack([s, 1 - s], axis=-1), np.stack([1 - t, t], axis=-1)], axis=-2)
        return self.answers[..., :n, :n] / s[..., None, None], classes

    @property
    def classified(self) -> Floats:
        """Returns the share of the images of row j with answer w that were classified, (..., j, w)."""
        images, classified = self.counts.sum(axis=-1), self.counts[..., :2].sum(axis=-1)
        rows, row_classified = images.sum(axis=-1, keepdims=True), classified.sum(axis=-1, keepdims=True)
        row_share = np.divide(row_classified, rows, out=np.ones_like(rows), where=rows > 0)
        result: Floats = np.divide(
            classified, images, out=np.broadcast_to(row_share, images.shape).copy(), where=images > 0
        )
        return result


def fitted_together(data: Sequence[tuple[Floats, CalibrationCounts]], close: float = CLOSE) -> list[Fit]:
    """Returns the fit to each of several runs' counts (j, w, 3) and calibrations, those of one shape fitted at once."""
    by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, (counts, calibration) in enumerate(data):
        by_shape[*counts.shape, calibration.classes is None].append(i)
    fits: dict[int, Fit] = {}
    for members in by_shape.values():
        calibrations = [data[i][1] for i in members]
        classes = [calibration.classes for calibration in calibrations if calibration.classes is not None]
        calibration = CalibrationCounts(
            np.stack([run_calibration.values for run_calibration in calibrations]),
            np.stack(classes) if classes else None,
        )
        fit = fitted(np.stack([data[i][0] for i in members]), calibration, close)
        for position, i in enumerate(members):
            fits[i] = Fit(
                fit.accuracy[position], fit.shown[position], fit.answers[position], fit.images[position], *data[i]
            )
    return [fits[i] for i in range(len(data))]


def fitted(counts: Floats, calibration: CalibrationCounts, close: float = CLOSE) -> Fit:
    """Fits the model to counts (..., j, w, 3) with w = n answers, or n + 1 where `calibration.classes` is present.

    Each of the fits ends by itself, when none of its estimates changes by `close` any more.
    """
    lead, (j, w, _) = counts.shape[:-3], counts.shape[-3:]
    n = calibration.values.shape[-1]
    size = int(np.prod(lead))
    flat = counts.reshape(size, j, w, 3)
    values = np.broadcast_to(calibration.values, (*lead, n, n)).reshape(size, n, n)
    classes = (
        None if calibration.classes is None else np.broadcast_to(calibration.classes, (*lead, 2, 2)).reshape(size, 2, 2)
    )
    unfinished = np.arange(size)
    results: list[Floats] = []
    for ended, estimates in _steps(flat, CalibrationCounts(values, classes), close):
        if not results:
            results = [np.empty((size, *part.shape[1:])) for part in estimates]
        for part, of_ended in zip(results, estimates, strict=True):
            part[unfinished[ended]] = of_ended[ended]
        unfinished = unfinished[~ended]
    accuracy, shown, answers, images = (part.reshape(*lead, *part.shape[1:]) for part in results)
    return Fit(accuracy, shown, answers, images, counts, calibration)


def _steps(
    counts: Floats, calibration: CalibrationCounts, close: float
) -> Iterator[tuple[NDArray[np.bool_], tuple[Floats, ...]]]:
    """Yields, in each step in which a fit ends, a mask of those that end among the fits still open, and the A, M, C and
    images of all open fits."""
    n, states = calibration.values.shape[-1], counts.shape[-2]
    answers = _answers(calibration, np.concatenate([np.eye(n), np.zeros((states - n, n))]) if states > n else np.eye(n))
    shown = rows(counts.sum(axis=-1) + 1.0)
    classified = counts[..., :2].sum(axis=(-3, -2, -1))
    start = (counts[..., 0].sum(axis=(-2, -1)) + 1) / (classified + 2)
    accuracy = np.repeat(start[..., None], states, axis=-1)
    # No image may be in the state "class not shown": one image of even outcomes keeps its A defined.
    prior = np.array([0.0] * n + [PSEUDO] * (states - n))
    for step in range(ITERATIONS):
        outcome = np.stack([accuracy, 1 - accuracy, np.ones_like(accuracy)], axis=-1)
        joint = (answers[..., None] * outcome[..., None, :]).reshape(*accuracy.shape, -1)  # (..., k, wy)
        chance = shown @ joint
        flat = counts.reshape(chance.shape)
        ratio = np.divide(flat, chance, out=np.zeros_like(chance), where=flat > 0)
        content = shown * (ratio @ np.swapaxes(joint, -1, -2))
        expected = (joint * (np.swapaxes(shown, -1, -2) @ ratio)).reshape(*accuracy.shape, -1, 3)
        images = expected[..., :2].sum(axis=(-2, -1))
        correct = expected[..., 0].sum(axis=-1) + prior / 2
        new = np.minimum(np.divide(correct, images + prior, out=accuracy.copy(), where=images + prior > CLOSE), 1.0)
        previous, shown = shown, rows(content)
        answers = _answers(calibration, expected.sum(axis=-1))
        change = np.maximum(
            np.abs(new - accuracy).max(axis=-1, initial=0.0), np.abs(shown - previous).max(axis=(-2, -1), initial=0.0)
        )
        accuracy = new
        ended = (change < close) | (step == ITERATIONS - 1)
        if ended.any():
            yield ended, (accuracy, shown, answers, images)
            if ended.all():
                return
            accuracy, shown, answers, counts = (part[~ended] for part in (accuracy, shown, answers, counts))
            calibration = CalibrationCounts(
                calibration.values[~ended], None if calibration.classes is None else calibration.classes[~ended]
            )


@dataclass(frozen=True)
class Covariance:
    """`parameters` (p, p): of the free parameters, of which the A of all states are the first. `shown` (jk, p),
    `answers` (kw, p): derivatives of M and of C by them. `verifier` (n, n): the part of the covariance of the values' A
    that comes from not knowing C: the covariance less what it would be if C were known. Runs and classes with the same
    verifier share it."""

    parameters: Floats
    shown: Floats
    answers: Floats
    verifier: Floats


def covariance(fit: Fit, copies: tuple[float, float]) -> Covariance:
    """Computes the covariance of one fit's free parameters. `copies`: how many times each classified and each
    unclassified image is counted."""
    counts, calibration = fit.counts, fit.known
    (n_rows, answers), states = counts.shape[:2], len(fit.accuracy)
    n, smooth = calibration.values.shape[-1], smoothed(fit)
    joint = fit.answers[..., None] * np.stack([smooth, 1 - smooth, np.ones(states)], axis=1)[:, None]  # (k, w, y)
    of_shown, shown_information = _free_rows(fit.shown, np.full(n_rows, PSEUDO))
    of_answers, answer_information = _free_answers(fit, n)
    slopes = np.zeros((states + of_shown.shape[1] + of_answers.shape[1], n_rows, answers, 3))
    slopes[:states, ..., :2] = np.einsum("jk,kw,y->kjwy", fit.shown, fit.answers, np.array([1.0, -1.0]))
    by_content = of_shown.reshape(n_rows, states, -1)
    first, last = states, states + of_shown.shape[1]
    slopes[first:last] = np.einsum("jkp,kwy->pjwy", by_content, joint, optimize=True)
    by_answer = of_answers.reshape(states, answers, -1)
    outcome = np.stack([smooth, 1 - smooth, np.ones(states)], axis=1)
    mixed = np.einsum("jk,ky->kjy", fit.shown, outcome).reshape(states, -1)
    slopes[last:] = (
        np.einsum("kr,kwp->prw", mixed, by_answer, optimize=True).reshape(-1, n_rows, 3, answers).swapaxes(2, 3)
    )
    totals, classified = counts.sum(axis=(1, 2)), fit.classified
    share = np.stack([classified, classified, 1 - classified], axis=2)
    image_copies = np.array([copies[0], copies[0], copies[1]])
    weight = totals[:, None, None] * share / image_copies / _chance(fit.shown, fit.answers, smooth)
    flat = slopes.reshape(len(slopes), -1)
    information = (flat * weight.ravel()) @ flat.T
    information[first:last, first:last] += shown_information
    information[last:, last:] += answer_information
    # A value that no image shows has no information of its own.
    ridge = np.where(np.arange(states) < n, 1e-6, PSEUDO / np.maximum(smooth * (1 - smooth), 1e-3))
    information[np.arange(states), np.arange(states)] += ridge
    result: Floats = np.linalg.pinv(information, hermitian=True)
    zeros = np.zeros((of_shown.shape[0], states)), np.zeros((of_shown.shape[0], of_answers.shape[1]))
    shown_slopes = np.hstack([zeros[0], of_shown, zeros[1]])
    answer_slopes = np.hstack([np.zeros((of_answers.shape[0], last)), of_answers])
    known_answers = np.linalg.pinv(information[:last, :last], hermitian=True)[:n, :n]
    return Covariance(result, shown_slopes, answer_slopes, result[:n, :n] - known_answers)


def smoothed(fit: Fit) -> Floats:
    """Returns A, smoothed as in Agresti & Coull's interval: at exactly 1 the information would be infinite."""
    return (fit.accuracy * fit.images + 2) / (fit.images + 4)


def rows(counts: Floats) -> Floats:
    smooth: Floats = counts + PSEUDO / counts.shape[-1]
    shares: Floats = smooth / smooth.sum(axis=-1, keepdims=True)
    return shares


def _chance(shown: Floats, answers: Floats, accuracy: Floats) -> Floats:
    outcome = np.stack([accuracy, 1 - accuracy, np.ones_like(accuracy)], axis=-1)
    joint = answers[..., None] * outcome[..., None, :]
    result: Floats = (shown @ joint.reshape(*accuracy.shape, -1)).reshape(*shown.shape[:-1], *joint.shape[-2:])
    return result


def _answers(calibration: CalibrationCounts, expected: Floats) -> Floats:
    """Estimates C from images of known content and `expected` (..., k, w) others."""
    n = calibration.values.shape[-1]
    values = rows(calibration.values + expected[..., :n, :n])
    if calibration.classes is None:
        return values
    if expected.shape[-1] == n:  # where to begin: nothing is expected yet
        class_rates, other = calibration.classes + np.eye(2), np.zeros_like(values[..., 0, :])
    else:
        confirmed = expected[..., :n].sum(axis=-1)
        by_confirmation = np.stack([confirmed, expected[..., n]], axis=-1)  # (..., k, confirmed or not)
        class_rates = calibration.classes + np.stack(
            [by_confirmation[..., :n, :].sum(axis=-2), by_confirmation[..., n, :]], axis=-2
        )
        other = expected[..., n, :n]
    class_rates, other = rows(class_rates), rows(other)
    by_value = np.concatenate(
        [class_rates[..., :1, :1] * values, np.broadcast_to(class_rates[..., :1, 1:], (*values.shape[:-1], 1))], -1
    )
    last = np.concatenate([class_rates[..., 1, :1] * other, class_rates[..., 1, 1:]], axis=-1)
    result: Floats = np.concatenate([by_value, last[..., None, :]], axis=-2)
    return result


def _free_rows(shares: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Returns, for multinomial rows (r, c) of `counts` draws, the derivatives (rc, r(c - 1)) of all shares by the free
    ones (each row's largest share is the dependent one) and the information of the free shares."""
    size, width = shares.shape
    slopes, information = np.zeros((size * width, size * (width - 1))), np.zeros((size * (width - 1),) * 2)
    for row in range(size):
        dependent = int(np.argmax(shares[row]))
        free = np.delete(np.arange(width), dependent)
        columns = row * (width - 1) + np.arange(width - 1)
        slopes[row * width + free, columns] = 1.0
        slopes[row * width + dependent, columns] = -1.0
        block = counts[row] * (np.diag(1 / shares[row, free]) + 1 / shares[row, dependent])
        information[np.ix_(columns, columns)] = block
    return slopes, information


def _free_answers(fit: Fit, n: int) -> tuple[Floats, Floats]:
    """Like `_free_rows`, for C, whose parameters are V, then s, t and U where the verifier is asked for the class."""
    calibration, answers = fit.known, fit.answers
    if calibration.classes is None:
        return _free_rows(answers, calibration.values.sum(axis=1) + PSEUDO)
    values, ((s, _), (_, t)) = fit.verifier
    other = answers[n, :n] / (1 - t)
    of_values, values_information = _free_rows(values, calibration.values.sum(axis=1) + PSEUDO)
    of_other, other_information = _free_rows(other[None], np.array([PSEUDO]))
    p, q = of_values.shape[1], of_other.shape[1]
    slopes = np.zeros((n + 1, n + 1, p + 2 + q))
    slopes[:n, :n, :p] = s * of_values.reshape(n, n, p)
    slopes[:n, :n, p], slopes[:n, n, p] = values, -1.0
    slopes[n, :n, p + 1], slopes[n, n, p + 1] = -other, 1.0
    slopes[n, :n, p + 2 :] = (1 - t) * of_other
    information = np.zeros((p + 2 + q,) * 2)
    information[:p, :p] = values_information
    information[p + 2 :, p + 2 :] = other_information
    draws = calibration.classes.sum(axis=1) + PSEUDO
    information[p, p], information[p + 1, p + 1] = draws / np.maximum([s * (1 - s), t * (1 - t)], 1e-6)
    return slopes.reshape((n + 1) ** 2, -1), information


# Accuracies and bias scores of an attribute's values where images may show another value than they were drawn for,
# or not the class at all.
#
# For two values the estimate of M from the answers' shares is Rogan & Gladen's (1978); the whole is the latent-class
# model of Hui & Walter (1980) and Dawid & Skene (1979) with a calibrated second rater. What it assumes: whether the
# classifier is right depends on what an image shows, not on what it was drawn for nor on whether the verifier errs.


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
    calibration: ArrayLike | CalibrationCounts,
    confidence: float = 0.95,
    copies: float | tuple[float, float] = 1.0,
    unclassified: ArrayLike | None = None,
) -> Corrected:
    """Corrects accuracies for what images really show.

    effective = s(1 - s) / variance,   s the accuracy with half an image of even content more

    The covariance of the estimates is the inverse of their Fisher information, in which the calibration's size counts.

    Args: right, wrong: whole numbers of shape (n, n), or (n, n + 1) where the verifier was asked for the class too:
    images drawn for value j (row) that the verifier said to show w (column; the last: not to show the class), and that
    the classifier got right or wrong. calibration: images of known content, `CalibrationCounts` or its `values` alone;
    its
    `classes` must be there exactly where the class was asked for. confidence: of limits, in (0, 1). copies: how many
    times each image is counted on average, 1 or more, where an image may be drawn for several values: copies add no
    information; a second number is for unclassified images. unclassified: whole numbers of the same shape: images that
    the verifier saw and the classifier did not, chosen by row and answer alone.
    Returns: `Corrected`. A value for which no image was classified has NaN for its accuracy and limits, and 0 effective
    images.
    Raises: ValueError where shapes differ, counts are negative or not whole, or for the confidence or copies.
    """
    return corrected_runs([Run(right, wrong, calibration, copies, unclassified)], confidence)[0]


def corrected_runs(runs: Sequence[Run], confidence: float = 0.95) -> list[Corrected]:
    """Returns what `corrected` returns of each run, in their order."""
    data = [run.checked() for run in runs]
    copies, z = [run.each for run in runs], deviations(confidence)
    measured = [counts[..., :2].sum(axis=(1, 2)) > 0 for counts, _ in data]
    results = [_nothing(len(of_run)) for of_run in measured]
    nonempty = [i for i, of_run in enumerate(measured) if of_run.any()]
    for i, fit in zip(nonempty, fitted_together([data[i] for i in nonempty]), strict=True):
        results[i] = _described(replace(fit, images=fit.images / copies[i][0]), measured[i], copies[i], z)
    return results


def checked(
    right: ArrayLike, wrong: ArrayLike, unclassified: ArrayLike | None, calibration: ArrayLike | CalibrationCounts
) -> tuple[Floats, CalibrationCounts]:
    """Checks the input and returns counts (j, w, 3), right, wrong and unclassified, and the verifier's calibration."""
    checked_calibration = (
        calibration
        if isinstance(calibration, CalibrationCounts)
        else CalibrationCounts(np.asarray(calibration, dtype=np.float64))
    )
    r, x = np.asarray(right, dtype=np.float64), np.asarray(wrong, dtype=np.float64)
    u = np.zeros_like(r) if unclassified is None else np.asarray(unclassified, dtype=np.float64)
    extra = 0 if checked_calibration.classes is None else 1
    if r.ndim != 2 or r.shape[1] != r.shape[0] + extra or not r.shape == x.shape == u.shape:
        raise ValueError(
            "right, wrong and unclassified must have one square shape (values, values), with a column more where the "
            f"calibration holds the class, got {r.shape}, {x.shape} and {u.shape}"
        )
    checked_counts(r, r + x)
    checked_counts(u, u)
    shape = (len(r), len(r))
    for name, table, expected in (
        ("values", checked_calibration.values, shape),
        ("classes", checked_calibration.classes, (2, 2)),
    ):
        if table is not None and (table.shape != expected or not np.isfinite(table).all() or (table < 0).any()):
            raise ValueError(f"calibration ({name}) must hold numbers of 0 or more in shape {expected}, got {table}")
    return np.stack([r, x, u], axis=2), checked_calibration


def _nothing(n: int) -> Corrected:
    unknown, square = np.full(n, np.nan), np.full((n, n), np.nan)
    return Corrected(unknown, np.zeros(n), square, square, square, *(unknown,) * 7, float("nan"))


def _described(fit: Fit, measured: NDArray[np.bool_], copies: tuple[float, float], z: float) -> Corrected:
    uncertainty, n = covariance(fit, copies), len(measured)
    spread = uncertainty.parameters
    accuracy, smooth = fit.accuracy[:n], smoothed(fit)[:n]
    variance = np.diag(spread)[:n]
    effective = np.divide(smooth * (1 - smooth), variance, out=np.zeros(n), where=measured & (variance > 0))
    return Corrected(
        accuracy=np.where(measured, accuracy, np.nan),
        effective=effective,
        covariance=spread[:n, :n],
        from_verifier=uncertainty.verifier,
        **_purity(fit, measured, uncertainty, z),
        **_skill(fit, n),
    )


def _purity(fit: Fit, measured: NDArray[np.bool_], uncertainty: Covariance, z: float) -> dict[str, Any]:
    """Estimates what the classified images of each row show, with limits.

    Of row j the share in state k is a_jk / sum over l of a_jl, a_jk = sum over w of M_jk * C_kw * the share of the
    row's images with answer w that was classified: M_jk itself where all were.
    """
    n, states = len(measured), len(fit.accuracy)
    spread, of_shown, of_answers = uncertainty.parameters, uncertainty.shown, uncertainty.answers
    chance = fit.classified @ fit.answers.T  # (j, k): the chance of being classified
    mass = fit.shown * chance
    by_answer = np.einsum("jw,kwp->jkp", fit.classified, of_answers.reshape(states, states, -1), optimize=True)
    slope = chance[..., None] * of_shown.reshape(n, states, -1) + fit.shown[..., None] * by_answer  # of a_jk

    def share(part: Floats, among: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns the share of the states `part` among `among` (j, k), with limits."""
        top, bottom = (mass * part).sum(axis=1), _or_nan((mass * among).sum(axis=1))
        result = top / bottom
        tilt = np.einsum("jkp,jk->jp", slope, part - among * result[:, None]) / bottom[:, None]
        margin = z * np.sqrt(np.maximum(np.einsum("jp,pq,jq->j", tilt, spread, tilt), 0.0))
        return tuple(  # type: ignore[return-value]
            np.where(measured, np.clip(x, 0.0, 1.0), np.nan) for x in (result, result - margin, result + margin)
        )

    of_values = np.broadcast_to(np.arange(states) < n, mass.shape).astype(float)
    _, shown_low, shown_high = share(np.eye(n, states), of_values)
    shown = mass[:, :n] / _or_nan(mass[:, :n].sum(axis=1, keepdims=True))
    if states > n:
        class_shown, class_low, class_high = share(of_values, np.ones_like(mass))
    else:
        class_shown = class_low = class_high = np.full(n, np.nan)
    return {
        "shown": np.where(measured[:, None], shown, np.nan),
        "shown_low": shown_low,
        "shown_high": shown_high,
        "class_shown": class_shown,
        "class_low": class_low,
        "class_high": class_high,
    }


def _or_nan(divisor: Floats) -> Floats:
    """Returns NaN in place of 0: of no classified image nothing is known."""
    return np.where(divisor > 0, divisor, np.nan)


def _skill(fit: Fit, n: int) -> dict[str, Any]:
    """Computes the verifier's sensitivity and specificity. Specificity: of the images that show another value, the
    share for which the verifier does not name this one."""
    with_class = len(fit.accuracy) > n
    values, classes = fit.verifier
    others = fit.images[:n, None] * (1 - np.eye(n))  # (shows k, value)
    confirmed, among = (others * values).sum(axis=0), others.sum(axis=0)
    return {
        "sensitivity": np.diag(values).copy(),
        "specificity": 1 - np.divide(confirmed, among, out=np.zeros(n), where=among > 0),
        "class_sensitivity": float(classes[0, 0]) if with_class else float("nan"),
    }


# Tests whether a verifier's errors on a run's images agree with its calibration on images of known content.


LOOKS = (20, 60, 200)
"""Numbers of simulated runs after which the p-value is looked at; simulation goes on where a tenth or fewer of them fit
worse."""

ENOUGH = 1e-5
"""Estimates that change by less than this count as converged."""

LEAST_DEVIANCE = 3.84
"""The 95 % point of chi-square with one degree of freedom; below it no testable model is rejected."""

UNLIKELY_BELOW = 0.2
"""A rough test is followed by simulation where chi-square's p-value is smaller."""


def misfit_p_value(
    right: ArrayLike,
    wrong: ArrayLike,
    calibration: ArrayLike | CalibrationCounts,
    copies: float | tuple[float, float] = 1.0,
    unclassified: ArrayLike | None = None,
    seed: int = 0,
    rough: bool = False,
) -> float:
    """Tests that the calibration holds for a run and that, given what images show, the two err independently.

    The likelihood-ratio statistic compares the model of `stats.noisy_labels`, fitted to the run and the calibration
    together, with each row of the run and of the calibration having shares of its own:

        G2 = 2 * sum over all counts of n * log(share observed / share of the model)

    With as many rows as values the alternative has as many parameters as a run whose C is free of the calibration:
    C of the run and errors that depend on each other are tested at once. Cells of few images make chi-square a poor
    null, so runs of the fitted model are simulated and fitted again (Efron & Tibshirani 1993, chapter 16).

    Args: as `corrected`. seed: of the simulation. rough: spares the simulation where chi-square's p-value is above
    `UNLIKELY_BELOW`, for a decision that can be made again.
    Returns: float in (0, 1]; 1 where the data carry no information: too few images, or only one answer was ever
    classified; and where the simulation was spared.
    Raises: ValueError as `corrected` does.
    """
    return misfit_p_values([Run(right, wrong, calibration, copies, unclassified)], seed, rough)[0]


def misfit_p_values(runs: Sequence[Run], seed: int = 0, rough: bool = False) -> list[float]:
    """Returns what `misfit_p_value` returns of each run, in their order."""
    data = []
    for run in runs:
        (counts, calibration), copies = run.checked(), run.each
        data.append((np.round(counts / np.array([copies[0], copies[0], copies[1]])), calibration))
    nonempty = [i for i, (counts, _) in enumerate(data) if counts[..., :2].sum() > 0]
    results = [1.0] * len(data)
    for i, fit in zip(nonempty, fitted_together([data[i] for i in nonempty], ENOUGH), strict=True):
        results[i] = _misfit(fit, seed, rough)
    return results


def _misfit(fit: Fit, seed: int, rough: bool) -> float:
    observed = float(_deviance(fit))
    if observed < LEAST_DEVIANCE:
        return 1.0
    if rough and chdtrc(_degrees(fit), observed) > UNLIKELY_BELOW:
        return 1.0
    random, worse, done = np.random.default_rng(seed), 0, 0
    for runs in LOOKS:
        simulated = fitted(*_simulated(fit, runs - done, random), ENOUGH)
        worse, done = worse + int((_deviance(simulated) >= observed).sum()), runs
        if worse > done / 10:
            break
    return (worse + 1) / (done + 1)


def _degrees(fit: Fit) -> int:
    """Counts the free shares of the run's and the calibration's rows, less the parameters of the model."""
    rows, answers = fit.counts.shape[:2]
    values, asks_class = fit.known.values.shape[-1], fit.known.classes is not None
    # Each row: its answers' shares, and the share that is right of each answer. The calibration has its own rows in
    # both; what the verifier names where the class is not shown has no calibration.
    free = rows * (2 * answers - 1)
    model = len(fit.accuracy) + rows * (len(fit.accuracy) - 1) + (values - 1 if asks_class else 0)
    return max(int(free - model), 1)


def _deviance(fit: Fit) -> Floats:
    """Computes G2 of every run of the leading axes."""
    counts, calibration, totals = fit.counts, fit.known, fit.counts.sum(axis=-1)
    of_rows = _log_likelihood(totals) + _log_likelihood(counts[..., :2]).sum(axis=-1)
    difference = (of_rows - xlogy(counts, fit.chance).sum(axis=(-2, -1))).sum(axis=-1)
    values, classes = fit.verifier
    difference = difference + (
        _log_likelihood(calibration.values) - xlogy(calibration.values, values).sum(axis=-1)
    ).sum(axis=-1)
    if calibration.classes is not None:
        difference = difference + (
            _log_likelihood(calibration.classes) - xlogy(calibration.classes, classes).sum(axis=-1)
        ).sum(axis=-1)
    return np.asarray(2 * difference)


def _log_likelihood(counts: Floats) -> Floats:
    """Computes the log-likelihood of multinomial counts (last axis) under their observed shares."""
    totals = counts.sum(axis=-1, keepdims=True)
    return np.asarray(xlogy(counts, np.divide(counts, totals, out=np.ones_like(counts), where=totals > 0)).sum(axis=-1))


def _simulated(fit: Fit, runs: int, random: np.random.Generator) -> tuple[Floats, CalibrationCounts]:
    """Simulates runs of the fitted model with the same numbers of images and the same share of classified images for
    each row and answer."""
    counts, calibration = fit.counts, fit.known
    size = counts.sum(axis=(1, 2)).astype(int)
    totals = random.multinomial(size, fit.chance[..., 2], size=(runs, len(size)))
    classified = random.binomial(totals, fit.classified)
    right = random.binomial(classified, np.clip(fit.chance[..., 0] / fit.chance[..., 2], 0.0, 1.0))
    simulated = np.stack([right, classified - right, totals - classified], axis=-1).astype(float)
    values, classes = fit.verifier
    redrawn = CalibrationCounts(
        _redrawn(calibration.values, values, runs, random),
        None if calibration.classes is None else _redrawn(calibration.classes, classes, runs, random),
    )
    return simulated, redrawn


def _redrawn(counts: Floats, shares: Floats, runs: int, random: np.random.Generator) -> Floats:
    """Draws rows again from `shares`; a row whose count is fractional keeps its weight."""
    totals = counts.sum(axis=1)
    size = np.ceil(totals).astype(int)
    sample = random.multinomial(size, shares / shares.sum(axis=1, keepdims=True), size=(runs, len(size)))
    result: Floats = sample * np.divide(totals, size, out=np.zeros_like(totals), where=size > 0)[:, None]
    return result
