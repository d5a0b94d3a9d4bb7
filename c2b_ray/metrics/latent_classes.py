"""A joint estimate of what images show, of the verifier's error rates, and of a classifier's accuracy.

An image drawn for row j is in state k with probability M_jk: it shows the class with one of n values or, where the
verifier is asked for the class too, something else with one of the n values (states n to 2n - 1). The verifier answers
w with probability C_kw and, independently of that, the classifier is right with probability A_k:

    P(answer w, right | row j) = sum over k of M_jk * C_kw * A_k

Where the class is asked for, the answers are a value and whether the class was confirmed (w < n) or not. Of the images
that show the class s are confirmed, of those that show something else with value v f_v are, since what is taken for a
class depends on what else an image shows:

    C_kw = s * V_kw and C_k,n+w = (1 - s) * V_kw for k < n,   C_n+v,w = f_v * V_vw and C_n+v,n+w = (1 - f_v) * V_vw

Else C = V. All states that do not show the class have one accuracy. An image that the classifier was not shown adds
P(answer w | row j) to the likelihood, which is enough where it was left out for what it was drawn for and what the
verifier said. EM maximises the likelihood; the covariance is the inverse of its Fisher information.

Images of known content inform V, and they alone say what s and f are: a run can hold ten thousand images that do not
show the class, and would otherwise choose the s and f that make its classes' accuracies fit best. The uncertainty of s
and f is added to that of the rest (a two-step estimate: Murphy & Topel 1985). The f_v are shrunk to their mean by how
much they differ (a beta prior whose weight is estimated by the method of moments, Kleinman 1973).
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

OFTEN, WORTH = 0.15, 4.0
"""What is assumed of a classifier before any of its answers: it takes something else for the class in this share of
images, as if that had been seen on so many. Where only images were classified that the verifier took for the class,
nothing else says it; any share from 0 to .5 is then within the limits."""


@dataclass(frozen=True)
class Known:
    """Calibration counts of the verifier. `values` (..., n, n): images that show value k (row) and were answered with w
    (column).

    `classes` (..., 1 + n, 2): images that show the class, and images that do not with each of the values (rows), by the
    answers that they show the class and that they do not (columns); None where the verifier is not asked for the class.
    `assumed`: `classes` is a guess, which the run's own answers then correct.
    """

    values: Floats
    classes: Floats | None = None
    assumed: bool = False


@dataclass(frozen=True)
class Fit:
    """Estimates: `accuracy` A (..., k), `shown` M (..., j, k), `answers` C (..., k, w); and the data that they were
    fitted to.

    `counts` (..., j, w, y) with y = right, wrong, not classified. `images` (..., k): expected number of classified
    images behind A_k.
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
        """Returns V, and s and every f_v with their complements (..., 1 + n, 2); the second is empty where the verifier
        is not asked for the class."""
        n = self.known.values.shape[-1]
        if self.known.classes is None:
            return self.answers, np.empty((0, 0))
        confirmed = self.answers[..., :n].sum(axis=-1)
        rates = np.concatenate([confirmed[..., :1], confirmed[..., n:]], axis=-1)
        return self.answers[..., :n, :n] + self.answers[..., :n, n:], np.stack([rates, 1 - rates], axis=-1)

    @property
    def classified(self) -> Floats:
        """Returns the share of the images of row j with answer w that were classified, (..., j, w)."""
        whole, seen = self.counts.sum(axis=-1), self.counts[..., :2].sum(axis=-1)
        rows, drawn = whole.sum(axis=-1, keepdims=True), seen.sum(axis=-1, keepdims=True)
        usual = np.divide(drawn, rows, out=np.ones_like(rows), where=rows > 0)
        result: Floats = np.divide(seen, whole, out=np.broadcast_to(usual, whole.shape).copy(), where=whole > 0)
        return result


@dataclass(frozen=True)
class Covariance:
    """`parameters` (p, p): of the free parameters, of which A of the n values are the first. `shown` (jk, p), `answers`
    (kw, p): derivatives of M and of C by them. `verifier` (n, n): the part of the covariance of these A that comes from
    not knowing C; runs and classes with the same verifier share it."""

    parameters: Floats
    shown: Floats
    answers: Floats
    verifier: Floats


def fitted(counts: Floats, known: Known, close: float = CLOSE, iterations: int = ITERATIONS) -> Fit:
    """Fits the model to counts (..., j, w, 3) with w = n answers, or 2n where `known.classes` is present."""
    n, states = known.values.shape[-1], counts.shape[-2]
    answers = _answers(known, None)
    shown = _first_shown(counts.sum(axis=-1), answers)
    seen = counts[..., :2].sum(axis=(-3, -2, -1))
    start = (counts[..., 0].sum(axis=(-2, -1)) + 1) / (seen + 2)
    accuracy = np.repeat(start[..., None], states, axis=-1)
    prior = np.array([0.0] * n + [WORTH] * (states - n))
    accuracy[..., n:] = OFTEN
    for _ in range(iterations):
        outcome = np.stack([accuracy, 1 - accuracy, np.ones_like(accuracy)], axis=-1)
        joint = (answers[..., None] * outcome[..., None, :]).reshape(*accuracy.shape, -1)  # (..., k, wy)
        chance = shown @ joint
        flat = counts.reshape(chance.shape)
        ratio = np.divide(flat, chance, out=np.zeros_like(chance), where=flat > 0)
        content = shown * (ratio @ np.swapaxes(joint, -1, -2))
        expected = (joint * (np.swapaxes(shown, -1, -2) @ ratio)).reshape(*accuracy.shape, -1, 3)
        images = _tied(expected[..., :2].sum(axis=(-2, -1)), n)
        correct = _tied(expected[..., 0].sum(axis=-1), n) + prior * OFTEN
        new = np.minimum(np.divide(correct, images + prior, out=accuracy.copy(), where=images + prior > CLOSE), 1.0)
        before, shown = shown, rows(content)
        answers = _answers(known, expected.sum(axis=-1))
        moved = max(np.abs(new - accuracy).max(initial=0.0), np.abs(shown - before).max(initial=0.0))
        accuracy = new
        if moved < close:
            break
    return Fit(accuracy, shown, answers, images, counts, known)


def covariance(fit: Fit, copies: tuple[float, float]) -> Covariance:
    """Computes the covariance of one fit's free parameters. `copies`: how many times each classified and each
    unclassified image is counted."""
    counts, known = fit.counts, fit.known
    (drawn, answers), states = counts.shape[:2], len(fit.accuracy)
    n, smooth = known.values.shape[-1], smoothed(fit)
    joint = fit.answers[..., None] * np.stack([smooth, 1 - smooth, np.ones(states)], axis=1)[:, None]  # (k, w, y)
    of_accuracy = np.eye(states)[:, : min(states, n + 1)]
    of_accuracy[n:, n:] = 1.0
    levels = of_accuracy.shape[1]
    of_shown, shown_information = _free_rows(fit.shown, np.full(drawn, PSEUDO))
    of_answers, answer_information = _free_answers(fit, n)
    slopes = np.zeros((levels + of_shown.shape[1] + of_answers.shape[1], drawn, answers, 3))
    by_state = np.einsum("jk,kw,y->kjwy", fit.shown, fit.answers, np.array([1.0, -1.0]))
    slopes[:levels, ..., :2] = np.tensordot(of_accuracy.T, by_state, axes=1)
    by_content = of_shown.reshape(drawn, states, -1)
    first, last = levels, levels + of_shown.shape[1]
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
    # A value that no image shows has no information of its own.
    ridge = np.where(np.arange(levels) < n, 1e-6, WORTH / (OFTEN * (1 - OFTEN)))
    information[np.arange(levels), np.arange(levels)] += ridge
    result = _in_two_steps(information, answer_information, last, fit)
    own = np.linalg.pinv(information[:last, :last], hermitian=True)[:n, :n]
    zeros = np.zeros((of_shown.shape[0], levels)), np.zeros((of_shown.shape[0], of_answers.shape[1]))
    shown_slopes = np.hstack([zeros[0], of_shown, zeros[1]])
    answer_slopes = np.hstack([np.zeros((of_answers.shape[0], last)), of_answers])
    return Covariance(result, shown_slopes, answer_slopes, result[:n, :n] - own)


def _in_two_steps(run: Floats, calibration: Floats, last: int, fit: Fit) -> Floats:
    """Returns the covariance of all parameters, from the information of the run on all of them and that of the
    calibration on the verifier's, which begin at `last`. s and f are estimated from the calibration alone."""
    known = fit.known
    together = run.copy()
    together[last:, last:] += calibration
    if known.classes is None or known.assumed:
        return np.asarray(np.linalg.pinv(together, hermitian=True))
    split = len(run) - known.classes.shape[-2]
    rest = np.linalg.pinv(together[:split, :split], hermitian=True)
    own = np.linalg.inv(together[split:, split:] - run[split:, split:])
    moves = -rest @ run[:split, split:]
    both = moves @ own
    result: Floats = np.block([[rest + both @ moves.T, both], [both.T, own]])
    return result


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


def _first_shown(answered: Floats, answers: Floats) -> Floats:
    """Returns where the search for M begins: the contents that give the answers' shares exactly, and where that is less
    than none, nearly none."""
    shares = rows(answered)
    exact = shares @ np.linalg.pinv(answers)
    result: Floats = np.maximum(exact, 0.05 * shares)
    return np.asarray(result / result.sum(axis=-1, keepdims=True))


def _tied(numbers: Floats, n: int) -> Floats:
    """Sums the numbers of the states that do not show the class, which have one accuracy."""
    if numbers.shape[-1] == n:
        return numbers
    others = np.broadcast_to(numbers[..., n:].sum(axis=-1, keepdims=True), (*numbers.shape[:-1], n))
    return np.concatenate([numbers[..., :n], others], axis=-1)


def _answers(known: Known, expected: Floats | None) -> Floats:
    """Estimates C from images of known content and, for V, `expected` (..., k, w) others."""
    n = known.values.shape[-1]
    if known.classes is None:
        return rows(known.values + (np.eye(n) if expected is None else expected))
    blocks = None if expected is None else expected.reshape(*expected.shape[:-2], 2, n, 2, n)
    values = rows(known.values + (np.eye(n) if blocks is None else blocks[..., 0, :, :, :].sum(axis=-2)))
    classes = known.classes
    if blocks is not None and known.assumed:
        showing = blocks[..., 0, :, :, :].sum(axis=(-3, -1))[..., None, :]
        classes = classes + np.concatenate([showing, blocks[..., 1, :, :, :].sum(axis=-1)], axis=-2)
    rate = confirmed_rates(classes)[0]
    said = np.stack([rate, 1 - rate], axis=-1)  # (..., 1 + n, 2)
    said = np.concatenate([np.repeat(said[..., :1, :], n, axis=-2), said[..., 1:, :]], axis=-2)  # (..., k, 2)
    twice = np.concatenate([values, values], axis=-2)  # (..., k, w)
    result: Floats = np.concatenate([said[..., :1] * twice, said[..., 1:] * twice], axis=-1)
    return result


def confirmed_rates(classes: Floats) -> tuple[Floats, Floats]:
    """Estimates s and every f_v, and the number of images that each is known from.

    f_v = (x_v + k * f) / (n_v + k),   f = (x + 1/2) / (n + 1) over all values,   k = f(1 - f) / v - 1

    v the variance of f_v between values by the method of moments; as many images as values have in all where it is 0,
    when f_v is known from all of them.

    Args: classes: (..., 1 + n, 2) as in `Known`. Returns: two arrays (..., 1 + n).
    """
    whole = classes.sum(axis=-1)
    sure = (classes[..., :1, 0] + PSEUDO / 2) / (whole[..., :1] + PSEUDO)
    x, n = classes[..., 1:, 0], whole[..., 1:]
    every = n.sum(axis=-1, keepdims=True)
    mean = (x.sum(axis=-1, keepdims=True) + PSEUDO) / (every + 2 * PSEUDO)
    share = np.divide(x, n, out=np.broadcast_to(mean, n.shape).copy(), where=n > 0)
    chance = mean * (1 - mean)
    excess = (n * (share - mean) ** 2).sum(axis=-1, keepdims=True) - chance * ((n > 0).sum(axis=-1, keepdims=True) - 1)
    room = every - np.divide((n**2).sum(axis=-1, keepdims=True), every, out=np.zeros_like(every), where=every > 0)
    spread = np.divide(np.maximum(excess, 0.0), room, out=np.zeros_like(room), where=room > 0)
    most = every + 2 * PSEUDO
    prior = np.clip(np.divide(chance, spread, out=most.copy(), where=spread * most > chance) - 1, 2 * PSEUDO, most)
    rates = (x + prior * mean) / (n + prior)
    images = np.minimum(n + prior, most)
    return np.concatenate([sure, rates], axis=-1), np.concatenate([whole[..., :1] + PSEUDO, images], axis=-1)


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
    """Like `_free_rows`, for C, whose parameters are V, then s and every f_v where the verifier is asked for the class;
    the information is the calibration's."""
    known, answers = fit.known, fit.answers
    if known.classes is None:
        return _free_rows(answers, known.values.sum(axis=1) + PSEUDO)
    values, classes = fit.verifier
    rate = classes[:, 0]
    of_values, values_information = _free_rows(values, known.values.sum(axis=1) + PSEUDO)
    p, state = of_values.shape[1], np.arange(n)
    by_value = of_values.reshape(n, n, p)
    slopes = np.zeros((2, n, 2, n, p + 1 + n))  # (shows the class or not, k, confirmed or not, w, parameter)
    for shows, said in ((0, np.full(n, rate[0])), (1, rate[1:])):
        slopes[shows, :, 0, :, :p] = said[:, None, None] * by_value
        slopes[shows, :, 1, :, :p] = (1 - said)[:, None, None] * by_value
    slopes[0, :, 0, :, p], slopes[0, :, 1, :, p] = values, -values
    slopes[1, state, 0, :, p + 1 + state], slopes[1, state, 1, :, p + 1 + state] = values, -values
    information = np.zeros((p + 1 + n,) * 2)
    information[:p, :p] = values_information
    images = confirmed_rates(known.classes)[1]
    at = np.arange(p, p + 1 + n)
    information[at, at] = images / np.maximum(rate * (1 - rate), 1e-6)
    return slopes.reshape((2 * n) ** 2, -1), information
