"""The objective of a latent-space search in NumPy: total variation, orthogonality, projection onto a hyperplane.

Knows predictions along a walk and vectors of a latent space; knows nothing of generators, classifiers or gradients.
These are the values that a search's differentiable version is checked against.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import qr

from c2b_ray.metrics.scores import Floats

__all__ = [
    "alignment",
    "consistent_change_loss",
    "orthogonality_penalty",
    "project_to_hyperplane",
    "signed_orthogonality",
    "spanned",
    "total_variation_loss",
]

FLOOR = 1e-10  # the code's; the paper's Eq. 3 has none and is infinite for a constant prediction
RANK_TOLERANCE = 1e-10  # relative to the largest: a smaller pivot is a direction that the others already span


def total_variation_loss(predictions: ArrayLike) -> float:
    """Measures how little the classifier's answer moves along the walk: the loss that the search minimises.

    L_V = -log(1e-10 + mean of |p_(i+1) - p_i|), natural logarithm

    Li & Xu 2021, Eq. 3. The paper has no 1e-10 and states one walk; the code adds it and takes one logarithm of the
    mean over batch and steps. The code's version is the default and the only one: it is finite, and equal to the
    paper's for one walk.

    Args: predictions: probabilities of shape (steps,) or (batch, steps), in the order of the walk.
    Returns: float in [-1e-10, 23.03]. 0: every step flips the answer from 0 to 1 or back; 23.03 = -log(1e-10): it never
    moves. NaN for fewer than two steps or an empty batch, and where a prediction is NaN.
    Raises: ValueError for another number of axes.
    """
    p = np.asarray(predictions, dtype=np.float64)
    if p.ndim not in (1, 2):
        raise ValueError(f"predictions must have shape (steps,) or (batch, steps), got {p.shape}")
    changes = np.abs(np.diff(p, axis=-1))
    return -float(np.log(FLOOR + changes.mean())) if changes.size else float("nan")


def consistent_change_loss(answers: ArrayLike) -> float:
    """Measures how little the walks' answers move in the same direction: total variation in which opposite changes
    cancel.

    L_C = -log(1e-10 + |mean over walks of (p_N - p_1)| / (N - 1)), natural logarithm

    Not in Li & Xu. A walk that moves the target itself, up in some images and down in others, counts in their Eq. 3 but
    not here. Never below `total_variation_loss` of the same answers, and equal where every step goes one way.

    Args: answers: probabilities or log odds of shape (steps,) or (walks, steps), in the order of the walk.
    Returns: float, at most 23.03 = -log(1e-10): the walks' changes cancel out. At least -1e-10 for probabilities. NaN
    for fewer than two steps or no walk, and where an answer is NaN.
    Raises: ValueError for another number of axes.
    """
    p = np.asarray(answers, dtype=np.float64)
    if p.ndim not in (1, 2):
        raise ValueError(f"answers must have shape (steps,) or (walks, steps), got {p.shape}")
    if p.shape[-1] < 2 or not p.size:
        return float("nan")
    change = (p[..., -1] - p[..., 0]).mean() / (p.shape[-1] - 1)
    return -float(np.log(FLOOR + abs(change)))


def signed_orthogonality(normal: ArrayLike, others: ArrayLike) -> float:
    """Computes the paper's penalty: the sum of w.w_k, signed and unnormalised.

    Li & Xu 2021, Eq. 4. Unbounded below: a normal that grows against the others lowers it without end, so that
    minimising it aligns the normal with the others, backwards. Kept for comparison; `orthogonality_penalty` is the
    code's penalty.

    Args: normal: shape (d,), not zero; others: shape (K, d).
    Returns: float in (-inf, inf); 0: orthogonal on balance, or no others.
    Raises: ValueError for a zero normal or for shapes that do not fit.
    """
    w = _normal(normal)
    rows = np.asarray(others, dtype=np.float64)
    return float((_fitting(rows, w) @ w).sum()) if rows.size else 0.0


def alignment(direction: ArrayLike, bias: ArrayLike, target: ArrayLike) -> tuple[float, float, float]:
    """Measures how near a direction is to the biased attribute's normal, to the target's normal, and the first minus
    the second.

    |cos(d, w_b)|, |cos(d, w_t)|, their difference

    Li & Xu 2021, section 5, metrics 1 to 3.

    Args: three vectors of shape (d,), none of them zero, of any lengths and signs.
    Returns: two floats in [0, 1] and one in [-1, 1]; 1: the direction is the biased attribute's and none of the target.
    Raises: ValueError for a zero vector or for shapes that do not fit.
    """
    w, b, t = (_normal(vector) / np.linalg.norm(_normal(vector)) for vector in (direction, bias, target))
    if not w.shape == b.shape == t.shape:
        raise ValueError(f"vectors of one space have one length, not {w.size}, {b.size} and {t.size}")
    to_bias, to_target = min(abs(float(w @ b)), 1.0), min(abs(float(w @ t)), 1.0)
    return to_bias, to_target, to_bias - to_target


def orthogonality_penalty(normal: ArrayLike, others: ArrayLike) -> float:
    """Measures how much a normal leans into the span of other normals.

    mean over i of (q_i . w/|w|)^2,   q = an orthonormal basis of the span of the others

    Li & Xu 2021, section 4.3. The paper's Eq. 4 is the signed, unnormalised sum of w.w_k, which is unbounded below, so
    that anti-alignment wins; the code uses this mean over QR-orthonormalised normals, target included, and it is the
    default and the only one here. The value does not depend on the basis. Others that depend on one another count once
    (the code's QR would invent directions for them).

    Args: normal: shape (d,), not zero; others: shape (K, d), any lengths.
    Returns: float in [0, 1/rank of others]. 0: orthogonal to all of them, or no others (K = 0, or all of them zero).
    Raises: ValueError for a zero normal or for shapes that do not fit.
    """
    w = _normal(normal)
    rows = np.asarray(others, dtype=np.float64)
    if rows.size == 0:
        return 0.0
    dots = spanned(_fitting(rows, w)) @ (w / np.linalg.norm(w))
    return float((dots**2).mean()) if dots.size else 0.0


def spanned(normals: ArrayLike) -> Floats:
    """Returns an orthonormal basis of the span of the normals, which may be linearly dependent.

    Args: normals: shape (K, d), any lengths; zero rows and K = 0 span nothing.
    Returns: shape (rank, d), by QR with column pivoting.
    Raises: ValueError for another number of axes.
    """
    rows = np.asarray(normals, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"normals must have shape (K, d), got {rows.shape}")
    if not rows.any():
        return np.zeros((0, rows.shape[1]))
    basis, triangle, _ = qr(rows.T, mode="economic", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    result: Floats = basis[:, pivots > RANK_TOLERANCE * pivots[0]].T
    return result


def project_to_hyperplane(points: ArrayLike, normal: ArrayLike, offset: float) -> Floats:
    """Projects points onto the hyperplane w.x + o = 0.

    p - w * (p.w + o) / |w|^2

    Li & Xu 2021, section 4.2. The authors' code computes p - w * (p.w + o/|w|^2), which is right only for |w| = 1; here
    is the right one.

    Args: points: shape (..., d); normal w: shape (d,), not zero; offset o.
    Returns: float64 of the points' shape; a point that lies on the hyperplane comes back as it is. No points in, none
    out.
    Raises: ValueError for a zero normal or for shapes that do not fit.
    """
    w = _normal(normal)
    p = np.asarray(points, dtype=np.float64)
    if p.ndim == 0 or p.shape[-1] != w.size:
        raise ValueError(f"normal has shape {w.shape}; points must have shape (..., {w.size}), got {p.shape}")
    projected: Floats = p - ((p @ w + offset) / (w @ w))[..., None] * w
    return projected


def _fitting(others: Floats, normal: Floats) -> Floats:
    if others.ndim != 2 or others.shape[1] != normal.size:
        raise ValueError(
            f"normal has shape {normal.shape}; others must have shape (K, {normal.size}), got {others.shape}"
        )
    return others


def _normal(normal: ArrayLike) -> Floats:
    w = np.asarray(normal, dtype=np.float64)
    if w.ndim != 1 or not np.isfinite(w).all() or not w.any():
        raise ValueError(f"a normal is a finite vector (d,) other than zero, got {normal!r}")
    return w
