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

Arrays may have leading axes: as many independent fits at once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ITERATIONS = 1000
CLOSE = 1e-7
PSEUDO = 0.5
"""Images' worth of even answers and even content added to every row of C and of M: no share is ever exactly 0."""


@dataclass(frozen=True)
class Known:
    """Calibration counts of the verifier. `values` (..., n, n): images that show value k (row) and were answered with w
    (column).

    `classes` (..., 2, 2): images that show the class and images that do not (rows), by the answers that they show it
    and that they do not (columns); None where the verifier is not asked for the class.
    """

    values: Floats
    classes: Floats | None = None


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
    known: Known

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
        whole, seen = self.counts.sum(axis=-1), self.counts[..., :2].sum(axis=-1)
        rows, drawn = whole.sum(axis=-1, keepdims=True), seen.sum(axis=-1, keepdims=True)
        usual = np.divide(drawn, rows, out=np.ones_like(rows), where=rows > 0)
        result: Floats = np.divide(seen, whole, out=np.broadcast_to(usual, whole.shape).copy(), where=whole > 0)
        return result


def fitted(counts: Floats, known: Known, close: float = CLOSE) -> Fit:
    """Fits the model to counts (..., j, w, 3) with w = n answers, or n + 1 where `known.classes` is present."""
    n, states = known.values.shape[-1], counts.shape[-2]
    answers = _answers(known, np.concatenate([np.eye(n), np.zeros((states - n, n))]) if states > n else np.eye(n))
    shown = rows(counts.sum(axis=-1) + 1.0)
    seen = counts[..., :2].sum(axis=(-3, -2, -1))
    start = (counts[..., 0].sum(axis=(-2, -1)) + 1) / (seen + 2)
    accuracy = np.repeat(start[..., None], states, axis=-1)
    # The class not shown is a nuisance that may have no image at all: an image's worth of even outcomes holds it.
    prior = np.array([0.0] * n + [PSEUDO] * (states - n))
    for _ in range(ITERATIONS):
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
        before, shown = shown, rows(content)
        answers = _answers(known, expected.sum(axis=-1))
        moved = max(np.abs(new - accuracy).max(initial=0.0), np.abs(shown - before).max(initial=0.0))
        accuracy = new
        if moved < close:
            break
    return Fit(accuracy, shown, answers, images, counts, known)


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
    counts, known = fit.counts, fit.known
    (drawn, answers), states = counts.shape[:2], len(fit.accuracy)
    n, smooth = known.values.shape[-1], smoothed(fit)
    joint = fit.answers[..., None] * np.stack([smooth, 1 - smooth, np.ones(states)], axis=1)[:, None]  # (k, w, y)
    of_shown, shown_information = _free_rows(fit.shown, np.full(drawn, PSEUDO))
    of_answers, answer_information = _free_answers(fit, n)
    slopes = np.zeros((states + of_shown.shape[1] + of_answers.shape[1], drawn, answers, 3))
    slopes[:states, ..., :2] = np.einsum("jk,kw,y->kjwy", fit.shown, fit.answers, np.array([1.0, -1.0]))
    by_content = of_shown.reshape(drawn, states, -1)
    first, last = states, states + of_shown.shape[1]
    slopes[first:last] = np.einsum("jkp,kwy->pjwy", by_content, joint, optimize=True)
    by_answer = of_answers.reshape(states, answers, -1)
    outcome = np.stack([smooth, 1 - smooth, np.ones(states)], axis=1)
    mixed = np.einsum("jk,ky->kjy", fit.shown, outcome).reshape(states, -1)
    slopes[last:] = (
        np.einsum("kr,kwp->prw", mixed, by_answer, optimize=True).reshape(-1, drawn, 3, answers).swapaxes(2, 3)
    )
    whole, classified = counts.sum(axis=(1, 2)), fit.classified
    share = np.stack([classified, classified, 1 - classified], axis=2)
    each = np.array([copies[0], copies[0], copies[1]])
    weight = whole[:, None, None] * share / each / _chance(fit.shown, fit.answers, smooth)
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


def _answers(known: Known, expected: Floats) -> Floats:
    """Estimates C from images of known content and `expected` (..., k, w) others."""
    n = known.values.shape[-1]
    values = rows(known.values + expected[..., :n, :n])
    if known.classes is None:
        return values
    if expected.shape[-1] == n:  # where to begin: nothing is expected yet
        of_class, other = known.classes + np.eye(2), np.zeros_like(values[..., 0, :])
    else:
        confirmed = expected[..., :n].sum(axis=-1)
        both = np.stack([confirmed, expected[..., n]], axis=-1)  # (..., k, confirmed or not)
        of_class = known.classes + np.stack([both[..., :n, :].sum(axis=-2), both[..., n, :]], axis=-2)
        other = expected[..., n, :n]
    of_class, other = rows(of_class), rows(other)
    by_value = np.concatenate(
        [of_class[..., :1, :1] * values, np.broadcast_to(of_class[..., :1, 1:], (*values.shape[:-1], 1))], -1
    )
    last = np.concatenate([of_class[..., 1, :1] * other, of_class[..., 1, 1:]], axis=-1)
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
        at = row * (width - 1) + np.arange(width - 1)
        slopes[row * width + free, at] = 1.0
        slopes[row * width + dependent, at] = -1.0
        block = counts[row] * (np.diag(1 / shares[row, free]) + 1 / shares[row, dependent])
        information[np.ix_(at, at)] = block
    return slopes, information


def _free_answers(fit: Fit, n: int) -> tuple[Floats, Floats]:
    """Like `_free_rows`, for C, whose parameters are V, then s, t and U where the verifier is asked for the class."""
    known, answers = fit.known, fit.answers
    if known.classes is None:
        return _free_rows(answers, known.values.sum(axis=1) + PSEUDO)
    values, ((s, _), (_, t)) = fit.verifier
    other = answers[n, :n] / (1 - t)
    of_values, values_information = _free_rows(values, known.values.sum(axis=1) + PSEUDO)
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
    draws = known.classes.sum(axis=1) + PSEUDO
    information[p, p], information[p + 1, p + 1] = draws / np.maximum([s * (1 - s), t * (1 - t)], 1e-6)
    return slopes.reshape((n + 1) ** 2, -1), information
