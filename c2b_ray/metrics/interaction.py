"""Intersections of two attributes: how far a cell's accuracy is from what the two attributes, taken alone, explain.

Knows tables of counts, one attribute down and the other across; knows nothing of images or of what the attributes are.
Cells are taken as independent samples. Why intersections are asked for at all: a classifier can be fair on each of two
attributes and unfair on their combination (Buolamwini & Gebru 2018, Gender Shades; Kearns et al. 2018, fairness
gerrymandering).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from c2b_ray.metrics.intervals import HALVINGS, wilson
from c2b_ray.metrics.levels import MOST_DEVIATIONS, deviations
from c2b_ray.metrics.scores import Floats, Ints, accuracies, checked_counts

__all__ = ["interaction_interval", "interaction_p_values", "interactions"]

_ESTIMABLE = 1e-9  # a cell whose share of its own prediction is this near to 1 is predicted by nothing else


def interactions(correct: ArrayLike, total: ArrayLike) -> Floats:
    """Interaction of every cell of a two-way table: its accuracy minus what the additive model of its two attributes,
    fitted to all other cells, predicts for it.

    iota_ij = A_ij - (mu + alpha_i + beta_j),   mu, alpha, beta by least squares over the cells that hold data, ij aside
            = gamma_ij * a*b / ((a-1)(b-1)) where every cell holds data,
    gamma_ij = A_ij - mean of row i - mean of column j + mean of all:  the interaction of the two-way layout in Scheffe
    1959, section 4.1, with unweighted means

    Leaving the cell out of its own prediction is what phi of `bias_scores` does, A_j minus the mean of the other cells:
    so iota is in the same units and may be held against the same tau. With two values each it is the difference of
    differences, A_11 - A_12 - A_21 + A_22. It is a deleted residual (Allen 1974): residual / (1 - leverage). The scale
    is accuracy itself, as for phi: near 0 and 1 effects that add up on another scale (log-odds) need not add up here.

    Args: correct, total: integers of shape (a, b), the values of one attribute down, of the other across.
    Returns: float64 (a, b). 0: the two attributes' own effects explain the cell. NaN where total is 0, and where no
    other cells say what to expect (fewer than two values in a row or column, or a cell alone in its row or column). No
    cells in, none out.
    Raises: ValueError where not 0 <= correct <= total in whole numbers, or where there are not two axes.
    """
    c, t = _checked(correct, total)
    accuracy, _ = accuracies(c, t)
    return _scores(accuracy, _weights(t)).reshape(c.shape)


def interaction_interval(correct: ArrayLike, total: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Interval of every interaction, built from the Wilson limits [l, u] of the cells' accuracies.

    low  = iota - sqrt(sum of w^2 (A - l)^2 over cells with weight w > 0 + sum of w^2 (u - A)^2 over those with w < 0)
    high = iota + the same with l and u exchanged,   iota = sum of w * A over the cells, w = 1 for the cell itself

    MOVER (Zou, Huang & Zhang 2009) for a linear function of independent binomial proportions, as `bias_score_interval`
    is for phi; its large-sample limit is iota -+ z * sqrt(sum of w^2 A(1-A)/n).

    Args: as for `interactions`; confidence: in (0, 1).
    Returns: (low, high), float64 (a, b), low <= iota <= high, within the values that iota can take ([-2, 2] with two
    values each). NaN where iota is NaN; no cells in, none out. Each interval stands alone.
    Raises: ValueError as `interactions` does, or for the confidence.
    """
    c, t = _checked(correct, total)
    weights = _weights(t)
    accuracy, _ = accuracies(c, t)
    score = _scores(accuracy, weights)
    below, above = _reach(c, t, weights, np.full(c.size, deviations(confidence)))
    most = np.where(weights > 0, weights, 0.0).sum(axis=1)
    return np.clip(score - below, -most, most).reshape(c.shape), np.clip(score + above, -most, most).reshape(c.shape)


def interaction_p_values(correct: ArrayLike, total: ArrayLike, tau: float = 0.0) -> Floats:
    """p-value of every interaction for the interval null |iota| <= tau.

    p = the smallest alpha at which the 1-alpha interval of `interaction_interval` lies wholly above tau or wholly below
    -tau, by bisection on the normal deviate, as `bias_score_p_values` for phi: both tails are counted, so for tau > 0
    the test is conservative.

    Args: as for `interactions`; tau: finite, 0 or more.
    Returns: float64 (a, b) in [0, 1]; 1 where |iota| <= tau. NaN where iota is NaN; no cells in, none out.
    Raises: ValueError as `interactions` does, or for tau.
    """
    c, t = _checked(correct, total)
    if not 0 <= tau < np.inf:
        raise ValueError(f"tau = {tau} must be finite and 0 or more")
    weights = _weights(t)
    accuracy, _ = accuracies(c, t)
    score = _scores(accuracy, weights)
    excluded, included = np.zeros(c.size), np.full(c.size, MOST_DEVIATIONS)
    for _ in range(HALVINGS):
        middle = (excluded + included) / 2
        below, above = _reach(c, t, weights, middle)
        beyond = np.where(score > 0, score - below > tau, score + above < -tau)
        excluded, included = np.where(beyond, middle, excluded), np.where(beyond, included, middle)
    p = np.where(np.abs(score) <= tau, 1.0, 2.0 * ndtr(-excluded))
    return np.where(np.isnan(score), np.nan, p).reshape(c.shape)


def _checked(correct: ArrayLike, total: ArrayLike) -> tuple[Ints, Ints]:
    c, t = checked_counts(correct, total)
    if c.ndim != 2:
        raise ValueError(f"need a table of two axes, got shape {c.shape}")
    return c, t


def _weights(total: Ints) -> Floats:
    """(cells, cells): the weight of each cell's accuracy in each cell's interaction; a row of NaN where there is none.

    The residual maker of the additive model over the cells that hold data, each row divided by its own diagonal.
    """
    rows, columns = total.shape
    held = (total > 0).ravel()
    down, across = np.divmod(np.arange(total.size), max(columns, 1))
    design = np.hstack([down[:, None] == np.arange(rows), across[:, None] == np.arange(columns)]).astype(np.float64)
    weights = np.full((total.size, total.size), np.nan)
    if not held.any():
        return weights
    own = design[held]
    residual = np.eye(len(own)) - own @ np.linalg.pinv(own)
    leftover = np.diag(residual)[:, None]
    scaled = np.divide(residual, leftover, out=np.full(residual.shape, np.nan), where=leftover > _ESTIMABLE)
    scaled[np.abs(scaled) < _ESTIMABLE] = 0.0
    filled = np.zeros((len(own), total.size))
    filled[:, held] = scaled
    weights[held] = filled
    return weights


def _scores(accuracy: Floats, weights: Floats) -> Floats:
    found: Floats = weights @ np.nan_to_num(accuracy.ravel())
    return found


def _reach(correct: Ints, total: Ints, weights: Floats, z: Floats) -> tuple[Floats, Floats]:
    """How far below and above each interaction its limits lie, every cell's Wilson limits taken at the row's own z."""
    seen = np.maximum(total.ravel(), 1)[None, :]
    right = correct.ravel()[None, :]
    low, high = wilson(right, seen, z[:, None])
    accuracy = right / seen
    down, up = ((accuracy - low) * weights) ** 2, ((high - accuracy) * weights) ** 2
    positive = weights > 0
    return np.sqrt(np.where(positive, down, up).sum(axis=1)), np.sqrt(np.where(positive, up, down).sum(axis=1))
