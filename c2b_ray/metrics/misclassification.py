"""Accuracies and bias scores of an attribute's classes where images may show another class than they were drawn for.

Knows counts: of the images drawn for one class, how many a verifier said to show each class, and how many of them the
classifier got right; and how the verifier does on images of known content. Knows nothing of images, captions or models.

The model, of one image drawn for class j: it shows class k with probability M_jk; the verifier then answers w with
probability C_kw and, independently of that, the classifier is right with probability A_k. So

    P(answer w, right | drawn for j) = sum over k of M_jk * C_kw * A_k

and images of known content give C alone. All three are estimated together by maximum likelihood (EM). For two classes
the estimate of M from the answers' shares is Rogan & Gladen's (1978); the whole is the latent-class model of Hui &
Walter (1980) and Dawid & Skene (1979) with a calibrated second rater. What it assumes: whether the classifier is right
depends on what an image shows, not on what it was drawn for nor on whether the verifier errs.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.intervals import reach, smallest_excluding
from c2b_ray.metrics.levels import checked_margin, deviations
from c2b_ray.metrics.scores import Floats, checked_counts

__all__ = ["Corrected", "corrected"]

ITERATIONS = 1000
CLOSE = 1e-7
PSEUDO = 0.5
"""Images' worth of even answers and even content added to every row of C and of M: no share is ever exactly 0."""


@dataclass(frozen=True)
class Corrected:
    """What is estimated of n classes; every array is float64.

    `accuracy`, `accuracy_low`, `accuracy_high` (n,): of images that show a class. `phi`, `phi_low`, `phi_high`,
    `p_value` (n,): as `bias_scores`, `bias_score_interval`, `bias_score_p_values` define them, with an interval that
    carries the doubt about what images show. `effective` (n,): as many images of sure content would tell as much of
    the class's accuracy. `shown` (n, n): M, rows are what was drawn for. `shown_low`, `shown_high` (n,): limits of the
    share that shows what it was drawn for. `sensitivity`, `specificity` (n,): of the verifier, one class against the
    others as they occur in these images.
    """

    accuracy: Floats
    accuracy_low: Floats
    accuracy_high: Floats
    phi: Floats
    phi_low: Floats
    phi_high: Floats
    p_value: Floats
    effective: Floats
    shown: Floats
    shown_low: Floats
    shown_high: Floats
    sensitivity: Floats
    specificity: Floats


def corrected(
    right: ArrayLike,
    wrong: ArrayLike,
    calibration: ArrayLike,
    tau: float = 0.0,
    confidence: float = 0.95,
    copies: float = 1.0,
) -> Corrected:
    """Bias scores corrected for what images really show.

    The covariance of the estimates is the inverse of their Fisher information, in which the calibration's size counts.
    Limits and p-values are those of `bias_score_interval` (Wilson's limits, combined by MOVER) for as many images of
    sure content as would give phi that variance: limits that behave where accuracies are near 1.

    Args: right, wrong: whole numbers of shape (n, n): images drawn for class j (row) that the verifier said to show w
    (column), and that the classifier got right or wrong. calibration: numbers of shape (n, n), 0 or more: images known
    to show k (row) of which it said w (column). tau: of the p-values' null |phi| <= tau. confidence: in (0, 1). copies:
    how many times each image is counted on average, 1 or more, where an image may be drawn for several classes: it
    tells no more for that.
    Returns: `Corrected`. A class for which nothing was drawn has NaN in accuracy, phi and limits, and is left out of
    the others' mean; with fewer than two classes that were drawn phi is NaN.
    Raises: ValueError where shapes differ, counts are negative or not whole, or for tau, the confidence or copies.
    """
    r, x = _checked(right, wrong)
    if not copies >= 1:
        raise ValueError(f"copies = {copies} must be 1 or more")
    known = np.asarray(calibration, dtype=np.float64)
    if known.shape != r.shape or not np.isfinite(known).all() or (known < 0).any():
        raise ValueError(f"calibration must hold numbers of 0 or more in shape {r.shape}, got shape {known.shape}")
    checked_margin(tau)
    z = deviations(confidence)
    held = (r + x).sum(axis=1) > 0
    n = len(held)
    if not held.any():
        nothing = np.full(n, np.nan)
        return Corrected(*(nothing,) * 7, np.zeros(n), np.full((n, n), np.nan), *(nothing,) * 4)
    fit = _fitted(r, x, known)
    fit = replace(fit, images=fit.images / copies)
    covariance = _covariance(fit, (r + x).sum(axis=1) / copies, known)
    return _described(fit, covariance, held, tau, z)


@dataclass(frozen=True)
class _Fit:
    accuracy: Floats  # A (k,)
    shown: Floats  # M (j, k)
    answers: Floats  # C (k, w)
    images: Floats  # (k,) expected number of distinct images that show k


def _checked(right: ArrayLike, wrong: ArrayLike) -> tuple[Floats, Floats]:
    r, x = np.asarray(right, dtype=np.float64), np.asarray(wrong, dtype=np.float64)
    if r.ndim != 2 or r.shape[0] != r.shape[1] or r.shape != x.shape:
        raise ValueError(f"right and wrong must have one square shape (classes, classes), got {r.shape} and {x.shape}")
    checked_counts(r, r + x)
    return r, x


def _fitted(right: Floats, wrong: Floats, known: Floats) -> _Fit:
    """EM: which classes the images of every (drawn for j, answered w, right or wrong) show, then all three anew."""
    n = len(right)
    counts = np.stack([right, wrong], axis=2)  # (j, w, y)
    answers = _rows(known + np.eye(n))
    shown = _rows(counts.sum(axis=2) + 1.0)
    accuracy = np.full(n, (right.sum() + 1) / (counts.sum() + 2))
    for _ in range(ITERATIONS):
        outcome = np.stack([accuracy, 1 - accuracy], axis=1)  # (k, y)
        joint = np.einsum("jk,kw,ky->jkwy", shown, answers, outcome)
        whole = joint.sum(axis=1, keepdims=True)
        expected = counts[:, None] * np.divide(joint, whole, out=np.zeros_like(joint), where=whole > 0)
        images = expected.sum(axis=(0, 2, 3))
        correct = expected[..., 0].sum(axis=(0, 2))
        new = np.divide(correct, images, out=accuracy.copy(), where=images > CLOSE)
        before, shown = shown, _rows(expected.sum(axis=(2, 3)))
        answers = _rows(known + expected.sum(axis=(0, 3)))
        moved, accuracy = max(np.abs(new - accuracy).max(), np.abs(shown - before).max()), new
        if moved < CLOSE:
            break
    return _Fit(accuracy, shown, answers, images)


def _rows(counts: Floats) -> Floats:
    smoothed: Floats = counts + PSEUDO / counts.shape[1]
    shares: Floats = smoothed / smoothed.sum(axis=1, keepdims=True)
    return shares


def _covariance(fit: _Fit, drawn: Floats, known: Floats) -> Floats:
    """Of all parameters: A (n), then the free entries of M, then those of C, each row's diagonal being dependent."""
    n = len(drawn)
    # Smoothed as Agresti & Coull's interval is: at 1 exactly, the information would be infinite.
    smooth = (fit.accuracy * fit.images + 2) / (fit.images + 4)
    outcome = np.stack([smooth, 1 - smooth], axis=1)
    free = [(a, b) for a in range(n) for b in range(n) if a != b]
    slopes = np.zeros((n + 2 * len(free), n, n, 2))  # of P(w, y | j)
    for k in range(n):
        slopes[k] = fit.shown[:, k, None, None] * fit.answers[k][None, :, None] * np.array([1.0, -1.0])
    for position, (j, k) in enumerate(free):
        slopes[n + position, j] = fit.answers[k][:, None] * outcome[k] - fit.answers[j][:, None] * outcome[j]
    for position, (k, w) in enumerate(free):
        at = slopes[n + len(free) + position]
        at[:, w] += fit.shown[:, k, None] * outcome[k]
        at[:, k] -= fit.shown[:, k, None] * outcome[k]
    chance = np.einsum("jk,kw,ky->jwy", fit.shown, fit.answers, outcome)
    flat = slopes.reshape(len(slopes), -1)
    weight = (drawn[:, None, None] / chance).ravel()
    information = (flat * weight) @ flat.T
    information += _of_rows(n, n, free, fit.shown, np.full(n, PSEUDO))
    information += _of_rows(n, n + len(free), free, fit.answers, known.sum(axis=1) + PSEUDO)
    information[np.arange(n), np.arange(n)] += 1e-6  # a class that no image shows has no information of its own
    found: Floats = np.linalg.pinv(information, hermitian=True)
    return found


def _of_rows(n: int, offset: int, free: list[tuple[int, int]], shares: Floats, counts: Floats) -> Floats:
    """Information of multinomial rows (`counts` draws each) on the free entries of `shares`, from `offset` on."""
    size = n + 2 * len(free)
    found = np.zeros((size, size))
    for p, (row, column) in enumerate(free):
        for q, (other, _) in enumerate(free):
            if other == row:
                found[offset + p, offset + q] = counts[row] / shares[row, row]
        found[offset + p, offset + p] += counts[row] / shares[row, column]
    return found


def _described(fit: _Fit, covariance: Floats, held: NDArray[np.bool_], tau: float, z: float) -> Corrected:
    n = len(held)
    smooth = (fit.accuracy * fit.images + 2) / (fit.images + 4)
    effective = np.where(held, smooth * (1 - smooth) / np.diag(covariance)[:n], 0.0)
    others = max(int(held.sum()) - 1, 1)
    weights = np.where(np.eye(n, dtype=bool), 1.0, -1.0 / others) * held  # (j, k) of phi_j
    defined = held & (held.sum() >= 2)
    whole = np.einsum("jk,kl,jl->j", weights, covariance[:n, :n], weights)
    apart = (weights**2) @ np.diag(covariance)[:n]
    # Estimates that share doubtful images err in opposite directions: fewer images, until independent ones err as much.
    inflation = np.maximum(np.divide(whole, apart, out=np.ones(n), where=apart > 0), 1.0)
    total = effective[None, :] / inflation[:, None]
    correct = fit.accuracy * total
    phi = np.where(defined, weights @ fit.accuracy, np.nan)

    def limits(z: Floats) -> tuple[Floats, Floats]:
        return reach(correct, total, np.abs(weights), z)

    below, above = limits(np.full(n, z))
    p_value = np.where(defined, smallest_excluding(np.nan_to_num(phi), limits, tau), np.nan)
    down, up = reach(fit.accuracy[:, None] * effective[:, None], effective[:, None], np.ones((n, 1)), np.full(n, z), 0)
    accuracy = np.where(held, fit.accuracy, np.nan)
    free = [(a, b) for a in range(n) for b in range(n) if a != b]
    own = np.array([[row == j for row, _ in free] for j in range(n)], dtype=float)
    block = covariance[n : n + len(free), n : n + len(free)]
    shares, spread = np.diag(fit.shown), np.sqrt(np.maximum(np.einsum("jp,pq,jq->j", own, block, own), 0.0))
    return Corrected(
        accuracy=accuracy,
        accuracy_low=accuracy - down,
        accuracy_high=accuracy + up,
        phi=phi,
        phi_low=np.clip(phi - below, -1.0, 1.0),
        phi_high=np.clip(phi + above, -1.0, 1.0),
        p_value=p_value,
        effective=effective,
        shown=np.where(held[:, None], fit.shown, np.nan),
        shown_low=np.where(held, np.clip(shares - z * spread, 0.0, 1.0), np.nan),
        shown_high=np.where(held, np.clip(shares + z * spread, 0.0, 1.0), np.nan),
        sensitivity=np.diag(fit.answers).copy(),
        specificity=_specificity(fit),
    )


def _specificity(fit: _Fit) -> Floats:
    """Of images that show another class, the share for which the verifier does not say this one."""
    others = fit.images[:, None] * (1 - np.eye(len(fit.images)))  # (shows k, class)
    said = (others * fit.answers).sum(axis=0)
    among = others.sum(axis=0)
    found: Floats = 1 - np.divide(said, among, out=np.zeros_like(said), where=among > 0)
    return found
