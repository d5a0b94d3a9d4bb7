"""The objective of a latent-space search in NumPy: total variation, orthogonality, projection onto a hyperplane.

Knows predictions along a walk and vectors of a latent space; knows nothing of generators, classifiers or gradients.
These are the values that a search's differentiable version is checked against.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from c2b_ray.stats.intervals import wilson_interval
from c2b_ray.stats.scores import Floats

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
    basis, triangle, _ = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
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


# Hyperplanes that separate the two values of an attribute in a latent space, and how good they are.


_RIDGE = 1e-3  # of the mean loss, for coordinates of variance 1: it decides where classes are separable
_RESAMPLES = 16
_ROWS_A_TERM = 8  # of a curved fit: fewer latents than so many a coefficient, and it follows single latents
_EACH = 2  # latents of each value in either half: fewer say nothing of accuracy


@dataclass(frozen=True)
class Hyperplane:
    """w.x + o = 0, |w| = 1, w towards the value 1. `accuracy`: mean of both values' shares of held-out latents on their
    own side, with its 95 % limits. `angle`: the angle in radians to the normal that another sample of as many latents
    would give, not exceeded in 95 of 100 samples. `count`: the number of labelled latents, both halves."""

    normal: Floats
    offset: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    angle: float
    count: int


def fit_hyperplane(latents: ArrayLike, labels: ArrayLike, seed: int, held_out: float = 0.2) -> Hyperplane:
    """Fits the hyperplane by a logistic regression in which both values weigh the same.

    Li & Xu 2021, App. A.3: labelled latents, held-out accuracy; hyperplanes below 0.9 are left out there. Accuracy here
    is balanced: for an attribute that 95 % of images have, always answering yes would otherwise be 95 % accurate.

    Args: latents: shape (n, d), finite; labels: shape (n,), true or false; held_out: the share that accuracy is of.
    Raises: ValueError for shapes that do not fit, a latent that is not finite, or an attribute with one value, or with
    fewer than two latents of a value in either part.
    """
    z, y = np.asarray(latents, np.float64), np.asarray(labels).astype(bool)
    if z.ndim != 2 or y.shape != (len(z),):
        raise ValueError(f"latents of shape (n, d) and labels of shape (n,) belong together, got {z.shape}, {y.shape}")
    if not np.isfinite(z).all():
        raise ValueError("a latent holds a value that is not finite")
    if y.all() or not y.any():
        raise ValueError(f"all {len(y)} latents have one value; a hyperplane separates two")
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(z))
    test, train = np.split(order, [round(held_out * len(z))])
    for part in (test, train):
        if min(y[part].sum(), (~y[part]).sum()) < _EACH:
            raise ValueError(f"{len(part)} latents, fewer than {_EACH} of one of the two values; label more")
    normal, offset = _fitted(z[train], y[train])
    right = ((z[test] @ normal + offset) > 0) == y[test]
    shares = [(int(right[y[test] == value].sum()), int((y[test] == value).sum())) for value in (False, True)]
    limits = np.array([wilson_interval(*share) for share in shares]).mean(axis=0)
    accuracy = float(np.mean([hits / total for hits, total in shares]))
    angle = _angle(z[train], y[train], normal, generator)
    return Hyperplane(normal, offset, accuracy, float(limits[0]), float(limits[1]), angle, len(z))


def curved_scores(latents: ArrayLike, labels: ArrayLike, scored: ArrayLike) -> Floats | None:
    """Computes how far other latents lie on the attribute's side of a quadratic surface, in log odds.

    Fits a logistic regression on coordinates, their squares and products, in which both values weigh the same.
    Attributes bend in learned spaces, which a hyperplane's coordinate cannot express.

    Args: latents: shape (n, d); labels: shape (n,), true or false; of: shape (m, d), latents that are not among the
    labelled ones.
    Returns: shape (m,). None where n is too small for that many terms, or where only one value occurs.
    """
    z, y, z_of = np.asarray(latents, np.float64), np.asarray(labels).astype(bool), np.asarray(scored, np.float64)
    terms = z.shape[1] * (z.shape[1] + 3) // 2
    if len(z) < _ROWS_A_TERM * terms or y.all() or not y.any():
        return None
    normal, offset = _fitted(_second_order(z), y)
    scores: Floats = _second_order(z_of) @ normal + offset
    return scores


def _second_order(z: Floats) -> Floats:
    first, second = np.triu_indices(z.shape[1])
    return np.concatenate([z, z[:, first] * z[:, second]], axis=1)


def _fitted(z: Floats, y: NDArray[np.bool_], start: Floats | None = None) -> tuple[Floats, float]:
    mean, scale = z.mean(axis=0), z.std(axis=0)
    x = (z - mean) / np.where(scale > 0, scale, 1)
    sign = np.where(y, 1.0, -1.0)
    weight = np.where(y, 0.5 / y.sum(), 0.5 / (~y).sum())

    def loss(parameters: Floats) -> tuple[float, Floats]:
        w, o = parameters[:-1], parameters[-1]
        margin = sign * (x @ w + o)
        slope = -weight * sign * expit(-margin)
        value = float(weight @ np.logaddexp(0, -margin) + _RIDGE / 2 * w @ w)
        return value, np.append(x.T @ slope + _RIDGE * w, slope.sum())

    first = np.zeros(z.shape[1] + 1) if start is None else start
    solution = scipy.optimize.minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    w = np.where(scale > 0, solution[:-1] / np.where(scale > 0, scale, 1), 0.0)
    length = float(np.linalg.norm(w))
    if length == 0:
        raise ValueError("the latents of both values are alike in every coordinate")
    return w / length, float(solution[-1] - w @ mean) / length


def _angle(z: Floats, y: NDArray[np.bool_], normal: Floats, generator: np.random.Generator) -> float:
    """Computes the angle between this normal and those of resampled latents: mean + 1.645 standard deviations."""
    angles = []
    for _ in range(_RESAMPLES):
        rows = generator.integers(0, len(z), len(z))
        if y[rows].any() and not y[rows].all():
            angles.append(np.arccos(np.clip(abs(_fitted(z[rows], y[rows])[0] @ normal), 0, 1)))
    return float(np.mean(angles) + 1.645 * np.std(angles, ddof=1)) if len(angles) > 1 else float(np.pi / 2)


# Whether a classifier's answers move along a direction of a latent space beyond what the target's own movement
# does.
#
# The latents must be others than those that the direction was found on. Random directions are no yardstick: answers
# depend on latents nearly linearly, so the best direction beats a random one by the square root of the dimension
# whatever the classifier, and the best one of an unbiased classifier moves the target itself. The target, as far as it
# is known for the same images, tells a biased classifier from an unbiased one.


_LEAST_ROWS = 20


@dataclass(frozen=True)
class Target:
    """The target's values for n latents. `coordinate`: along its hyperplane's normal. `measured`: its label in each
    image, or other classifiers' answer on it, in [0, 1]; None where single images are not labelled. `angle`: the
    possible error of the normal in radians, ignored where `measured` is present. `scores`: the values of a curved fit
    to other labelled latents (`curved_scores`)."""

    coordinate: Floats
    measured: Floats | None = None
    angle: float = 0.0
    scores: Floats | None = None


@dataclass(frozen=True)
class Evidence:
    """`effect`: the change of P(label) from one standard deviation below the mean to one above, the target held fixed,
    on the best straight line: twice the mean slope of normal latents, less than what a latent gains that is moved so
    far where P saturates. `low`, `high`: its limits at `level`; `margin`: the least effect that counts; `p_value`: of
    the null that the effect, of either sign, does not exceed it; `count`: the number of latents; `error`: the standard
    error of `effect`. Where the target is held fixed in two ways, the limits are the outer ones of both, and all else
    is of the weaker evidence."""

    effect: float
    low: float
    high: float
    margin: float
    p_value: float
    count: int
    error: float

    def passes(self, level: float) -> bool:
        return bool(self.p_value <= level)


def measured_target(labels: ArrayLike | None, references: ArrayLike) -> Floats | None:
    """The target as measured in each of n latents: the mean of its label and of what references say, P(label).

    References that go against the labels are turned round: labels may call 0 what P(label) calls 1, and the mean of
    both would say nothing.

    Args: labels: shape (n,), true or false, or None; references: shape (n, K), in [0, 1].
    Returns: shape (n,), in [0, 1]; None without labels and references.
    """
    measures = list(np.asarray(references, np.float64).T)
    if labels is not None:
        of_labels = np.asarray(labels, np.float64)
        centred = of_labels - of_labels.mean()
        measures = [of_labels, *(1 - measure if centred @ measure < 0 else measure for measure in measures)]
    return np.asarray(np.mean(measures, axis=0)) if measures else None


def weigh_direction(
    answers: ArrayLike, along: ArrayLike, target: Target | None, margin: float = 0.05, level: float = 0.05
) -> Evidence:
    """Estimates the effect of one direction on the answers, the target held fixed, and tests whether it exceeds a
    margin.

    answers = a + b * along / sd(along) + c * t + error;   effect = 2 b;   t: the target as measured, instrumented by
    its coordinate; or the coordinate itself

    A label is a step where an answer is graded, so holding labels fixed does not hold the target fixed; the instrument
    asks how much of the answers' slope along the direction is not the measured target's slope times their common ratio,
    which is 0 for whatever function of the target (Brillinger 1982, of normal latents). Errors hold whatever the
    variances (HC3; MacKinnon & White 1985), and include that of sd, which is the sample's. The hypothesis is |effect|
    <= margin + tan(angle) * |effect of the coordinate|, the last where nothing is measured: a normal known to within
    `angle` leaves so much of the target in a direction that seems orthogonal to it. p is the largest chance under it of
    so large an effect of either sign.

    Where the target bends in the latent space, what a graded answer and a label have in common with a direction differ
    in more than one ratio. With `scores` the target is held fixed a second way: answers = a + b * along + a cubic
    spline of the scores' ranks + c * measured + error, by least squares. The weaker evidence of both counts. Its own
    limits held the truth in .77 to 1 of samples, for errors of the scores enter them; those of both in .93 or more.

    Args: answers: P(label) of n held-out latents; along: their coordinate along the direction; target: None where every
    image shows the same of it.
    Returns: NaN effects with p = 1 for constant answers or coordinates, or fewer than 20 latents.
    Raises: ValueError for shapes that do not fit.
    """
    y, s = np.asarray(answers, np.float64), np.asarray(along, np.float64)
    columns = _checked(y, s, target)
    if len(y) < _LEAST_ROWS or min(map(np.ptp, (y, s, *columns))) == 0:
        return Evidence(float("nan"), float("nan"), float("nan"), margin, 1.0, len(y), float("nan"))
    results: list[Evidence] = []
    threshold = margin
    for x, z in _designs(s, target):
        slopes, errors = _robust(x, z, y)
        if target is not None and not results:
            threshold += _left_over(target, slopes[2])
        results.append(_tested(slopes[1], errors[1], len(y) - len(slopes), threshold, level, len(y)))
    weaker = max(results, key=lambda evidence: evidence.p_value)
    return replace(weaker, low=min(result.low for result in results), high=max(result.high for result in results))


def _designs(coordinate: Floats, target: Target | None) -> list[tuple[Floats, Floats]]:
    """Returns, for each way of holding the target fixed, the regressors (second column the coordinate along the
    direction, third the target) and as many instruments."""
    columns = [np.ones(len(coordinate)), _standard(coordinate)]
    references = [] if target is None else [_standard(target.coordinate)]
    measured = references if target is None or target.measured is None else [_standard(target.measured)]
    designs = [(np.column_stack([*columns, *measured]), np.column_stack([*columns, *references]))]
    if target is not None and target.measured is not None and target.scores is not None:
        curved = np.column_stack([*columns, *measured, *_spline(target.scores)])
        designs.append((curved, curved))
    return designs


def _checked(answers: Floats, coordinate: Floats, target: Target | None) -> list[Floats]:
    """Checks that all arrays have one shape and returns those of the target."""
    columns = [] if target is None else [target.coordinate, target.measured]
    target_columns = [np.asarray(column, np.float64) for column in columns if column is not None]
    if answers.ndim != 1 or any(column.shape != answers.shape for column in (coordinate, *target_columns)):
        shapes = ", ".join(str(column.shape) for column in (answers, coordinate, *target_columns))
        raise ValueError(f"answers, along and what is known of the target have one shape (n,), got {shapes}")
    return target_columns


def _tested(slope: float, its_error: float, free: int, threshold: float, level: float, count: int) -> Evidence:
    effect, error = 2 * slope, 2 * its_error
    margin = scipy.stats.t.ppf(1 - level / 2, free) * error
    p_value = float(abs(effect) <= threshold)
    if error > 0:  # a direction's sign is that of its effect, so that both tails count
        p_value = float(
            scipy.stats.t.sf([(abs(effect) - threshold) / error, (abs(effect) + threshold) / error], free).sum()
        )
    low, high = float(effect - margin), float(effect + margin)
    return Evidence(float(effect), low, high, float(threshold), p_value, count, float(error))


def _spline(scores: Floats) -> list[Floats]:
    """Returns columns that span the cubic splines of the scores' normal ranks with knots at -1, 0 and 1,
    standardised."""
    x = scipy.stats.norm.ppf(scipy.stats.rankdata(scores) / (len(scores) + 1))
    return [_standard(column) for column in (x, x**2, x**3, *(np.maximum(x - knot, 0) ** 3 for knot in (-1, 0, 1)))]


def _left_over(target: Target, slope: float) -> float:
    """Computes the largest effect of the target that a direction may still have although it is orthogonal to the
    estimated normal."""
    if target.measured is not None:
        return 0.0
    return float(np.tan(min(target.angle, np.pi / 2 - 1e-6))) * 2 * abs(slope)


def _standard(values: ArrayLike) -> Floats:
    column = np.asarray(values, np.float64)
    standard: Floats = (column - column.mean()) / column.std()
    return standard


def _robust(x: Floats, z: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Computes the coefficients of x by as many instruments z, and their standard errors: (z'x)^-1 z' diag(e^2 / (1 -
    h)^2) z (x'z)^-1 with the leverages h of z. Where x is z these are least squares and HC3. The second coefficient is
    per standard deviation of its column in this sample; the error of that deviation is part of its own."""
    inverse = np.linalg.pinv(z.T @ x)
    slopes = inverse @ (z.T @ y)
    leverage = np.einsum("ij,jk,ik->i", z, np.linalg.pinv(z.T @ z), z)
    scaled = (y - x @ slopes) / np.maximum(1 - leverage, 1e-8)
    influence = (z * scaled[:, None]) @ inverse.T
    influence[:, 1] += slopes[1] * (x[:, 1] ** 2 - 1) / 2 / len(y)  # of the deviation on what is measured in it
    return slopes, np.sqrt((influence**2).sum(axis=0))
