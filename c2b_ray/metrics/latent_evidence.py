"""Whether a classifier's answers move along a direction of a latent space beyond what the target's own movement does.

Knows answers and coordinates of held-out latents; knows nothing of generators, classifiers, or how a direction was
found. The latents must be others than those that the direction was found on.

Random directions are no yardstick: answers depend on latents nearly linearly, so the best direction beats a random one
by the square root of the dimension whatever the classifier, and the best one of an unbiased classifier moves the target
itself. The target, as far as it is known for the same images, tells a biased classifier from an unbiased one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from c2b_ray.metrics.scores import Floats

__all__ = ["Evidence", "Target", "measured_target", "weigh_direction"]

_LEAST_ROWS = 20


@dataclass(frozen=True)
class Target:
    """The target's values for n latents. `coordinate`: along its hyperplane's normal. `measured`: its label in each
    image, or other classifiers' answer on it, in [0, 1]; None where single images are not labelled. `angle`: the
    possible error of the normal in radians, ignored where `measured` is present. `scores`: the values of a curved fit
    to other labelled latents (`hyperplanes.curved_scores`)."""

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
        measures = [of_labels, *(1 - said if centred @ said < 0 else said for said in measures)]
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
    beyond = margin
    for x, z in _designs(s, target):
        slopes, errors = _robust(x, z, y)
        if target is not None and not results:
            beyond += _left_over(target, slopes[2])
        results.append(_tested(slopes[1], errors[1], len(y) - len(slopes), beyond, level, len(y)))
    weaker = max(results, key=lambda evidence: evidence.p_value)
    return replace(weaker, low=min(one.low for one in results), high=max(one.high for one in results))


def _designs(along: Floats, target: Target | None) -> list[tuple[Floats, Floats]]:
    """Returns, for each way of holding the target fixed, the regressors (second column the coordinate along the
    direction, third the target) and as many instruments."""
    held = [np.ones(len(along)), _standard(along)]
    known = [] if target is None else [_standard(target.coordinate)]
    measured = known if target is None or target.measured is None else [_standard(target.measured)]
    designs = [(np.column_stack([*held, *measured]), np.column_stack([*held, *known]))]
    if target is not None and target.measured is not None and target.scores is not None:
        curved = np.column_stack([*held, *measured, *_spline(target.scores)])
        designs.append((curved, curved))
    return designs


def _checked(answers: Floats, along: Floats, target: Target | None) -> list[Floats]:
    """Checks that all arrays have one shape and returns those of the target."""
    columns = [] if target is None else [target.coordinate, target.measured]
    known = [np.asarray(column, np.float64) for column in columns if column is not None]
    if answers.ndim != 1 or any(column.shape != answers.shape for column in (along, *known)):
        shapes = ", ".join(str(column.shape) for column in (answers, along, *known))
        raise ValueError(f"answers, along and what is known of the target have one shape (n,), got {shapes}")
    return known


def _tested(slope: float, its_error: float, free: int, beyond: float, level: float, count: int) -> Evidence:
    effect, error = 2 * slope, 2 * its_error
    reach = stats.t.ppf(1 - level / 2, free) * error
    p_value = float(abs(effect) <= beyond)
    if error > 0:  # a direction's sign is that of its effect, so that both tails count
        p_value = float(stats.t.sf([(abs(effect) - beyond) / error, (abs(effect) + beyond) / error], free).sum())
    low, high = float(effect - reach), float(effect + reach)
    return Evidence(float(effect), low, high, float(beyond), p_value, count, float(error))


def _spline(scores: Floats) -> list[Floats]:
    """Returns columns that span the cubic splines of the scores' normal ranks with knots at -1, 0 and 1,
    standardised."""
    x = stats.norm.ppf(stats.rankdata(scores) / (len(scores) + 1))
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
