"""Spurious correlations: how much a model's outputs lean on an attribute, beyond what the truth does.

Works on indicator arrays of attributes, targets and predictions; does not know their meaning or the models that made
them.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats, Ints

__all__ = ["SignRule", "amplification_of_counts", "directional_bias_amplification", "directions_of", "leakage"]

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
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape:
        raise ValueError(f"confidence and correct must both have shape (N,), got {sure.shape} and {right.shape}")
    if not ((sure >= 0) & (sure <= 1)).all() or not np.isin(right, (0, 1)).all():
        raise ValueError("confidence must lie in [0, 1] and correct must be 0 or 1")
    return float((sure * right).mean()) if sure.size else float("nan")


def _indicators(name: str, values: ArrayLike) -> Ints:
    array = np.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"{name} must have two axes, got shape {array.shape}")
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold 0 and 1 only")
    return array.astype(np.int64)
