"""Intersections of two attributes: how far a cell's accuracy is from what the two attributes, taken alone, explain.

Knows tables of counts, one attribute down and the other across; knows nothing of images or of what the attributes are.
Intersections matter because a classifier can be fair on each of two attributes and unfair on their combination
(Buolamwini & Gebru 2018, Gender Shades; Kearns et al. 2018, fairness gerrymandering).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.contrasts import contrast_counts, contrast_interval, contrast_none_p_values, contrast_p_values
from c2b_ray.stats.intervals import benjamini_hochberg
from c2b_ray.stats.roots import checked_levels, checked_margin
from c2b_ray.stats.scores import Floats

Bools = NDArray[np.bool_]

_ESTIMABLE = 1e-9  # a cell whose share of its own prediction is this near to 1 is predicted by nothing else


@dataclass(frozen=True)
class CrossedCells:
    """The cells of two crossed attributes: arrays of shape (a, b), values of one attribute down, of the other across.

    correct, total: numbers of images, which need not be whole where accuracies were corrected (an effective number of
    images). aside: cells that are left out of other cells' predictions, because they deviate themselves or cannot be
    trusted. covariance: (a*b, a*b), of the accuracies in row-major order, where they are not independent: a sum that
    they make noisier than independent ones would be is taken as resting on fewer images.
    """

    correct: Floats
    total: Floats
    aside: Bools
    covariance: Floats | None = None

    def without(self, aside: Bools) -> CrossedCells:
        return replace(self, aside=aside)

    @property
    def accuracy(self) -> Floats:
        result: Floats = np.divide(
            self.correct, self.total, out=np.full(self.total.shape, np.nan), where=self.total > 0
        )
        return result


def crossed(
    correct: ArrayLike, total: ArrayLike, aside: ArrayLike | None = None, covariance: Floats | None = None
) -> CrossedCells:
    """Builds a table from numbers of right answers and of images. Raises ValueError for invalid counts or shapes that
    do not fit."""
    c, t = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
    if c.ndim != 2 or c.shape != t.shape:
        raise ValueError(f"need two tables of two axes and one shape, got shapes {c.shape} and {t.shape}")
    for index in np.argwhere(~((c >= 0) & (c <= t + 1e-9) & (t < np.inf))):
        i = tuple(index.tolist())
        raise ValueError(f"cell {i}: correct={c[i]}, total={t[i]}; need 0 <= correct <= total")
    set_aside = np.zeros(c.shape, dtype=bool) if aside is None else np.asarray(aside, dtype=bool)
    if set_aside.shape != c.shape or (covariance is not None and covariance.shape != (c.size, c.size)):
        raise ValueError(f"aside must have shape {c.shape}, the covariance {(c.size, c.size)}")
    return CrossedCells(np.minimum(c, t), t, set_aside, covariance)


def expected_accuracies(table: CrossedCells) -> Floats:
    """Predicts every cell's accuracy, within [0, 1], by the additive model of the two attributes fitted to the other
    cells.

    e_ij = mu + alpha_i + beta_j, clipped to [0, 1];   mu, alpha, beta by least squares over the cells that hold data
    and are not aside, ij itself left out

    Predictions are clipped to [0, 1]: two attributes' effects that would add up to 116 % right give 100 %.

    Returns: float64 (a, b). NaN where the other cells do not determine a prediction.
    """
    return np.clip(_predicted(table), 0.0, 1.0)


def interactions(table: CrossedCells) -> Floats:
    """Computes the interaction of every cell: its accuracy minus the accuracy expected from the two attributes.

    iota_ij = A_ij - e_ij,   e_ij as in `expected_accuracies`
            = gamma_ij * a*b / ((a-1)(b-1)) where every cell holds data and none is clipped or aside,
    gamma_ij = A_ij - mean of row i - mean of column j + mean of all:  the interaction of the two-way layout in Scheffe
    1959, section 4.1, with unweighted means

    Leaving the cell out of its own prediction is what phi of `bias_scores` does, A_j minus the mean of the other cells:
    so iota is in the same units and may be held against the same tau. With two values each it is the difference of
    differences, A_11 - A_12 - A_21 + A_22. It is a deleted residual (Allen 1974): residual / (1 - leverage). The scale
    is accuracy itself, as for phi: effects that add up on another scale (log-odds) need not add up here.

    Returns: float64 (a, b) in [-1, 1]. 0: the two attributes' own effects explain the cell. NaN where total is 0, and
    where the other cells do not determine a prediction (fewer than two values in a row or column, or a cell alone in
    its row or column). No cells in, none out.
    """
    return table.accuracy - expected_accuracies(table)


def interaction_interval(table: CrossedCells, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Computes the interval of every interaction, from the interval of the unclipped interaction and that of the cell's
    accuracy.

    iota = the median of (A - prediction, A - 1, A), so low = the median of (its low, low of A - 1, low of A), and high
    alike; the limits of each are `contrast_interval`'s

    Args: confidence: in (0, 1).
    Returns: (low, high), float64 (a, b), low <= iota <= high, within [-1, 1]. NaN where iota is NaN. Each interval
    stands alone.
    """
    checked_levels(confidence=confidence)
    counts = _counts(table)
    limits = contrast_interval(*counts, confidence)
    limits_of_cells = contrast_interval(*_counts_of_cells(table), confidence)
    is_defined = ~np.isnan(limits[0]) & (table.total.ravel() > 0)
    low, high = (
        np.where(is_defined, np.median(np.stack([of_sum, of_cell - 1, of_cell]), axis=0), np.nan).reshape(
            table.total.shape
        )
        for of_sum, of_cell in zip(limits, limits_of_cells, strict=True)
    )
    score = interactions(table)
    return np.fmin(low, score), np.fmax(high, score)


def interaction_p_values(table: CrossedCells, tau: float = 0.0) -> Floats:
    """Computes the p-value of every interaction for the interval null |iota| <= tau.

    p is the greater of two p-values of `contrast_p_values`: of the null for A - prediction, and of a null under which
    |iota| is within tau whatever the prediction: 1 - A <= tau (where the cell is worse than predicted) or A <= tau
    (where it is better). Both must be refuted (an intersection-union test, Berger 1982): a cell that is 99 % right is
    not unfair, whatever the additive model predicts.

    Args: tau: finite, 0 or more.
    Returns: float64 (a, b) in [0, 1]; 1 where |iota| <= tau. NaN where iota is NaN.
    """
    checked_margin(tau)
    correct, total, weights = _counts(table)
    p = contrast_p_values(correct, total, weights, tau)
    cell_correct, cell_total, weights = _counts_of_cells(table)
    worse = table.accuracy.ravel() < _predicted(table).ravel()
    opposite = np.where(worse[:, None], cell_total - cell_correct, cell_correct)
    return np.maximum(p, contrast_p_values(opposite, cell_total, weights, tau)).reshape(table.total.shape)


def interaction_none_p_values(table: CrossedCells, tau: float) -> Floats:
    """Computes the p-value of every interaction for the null |iota| >= tau: small where the two attributes certainly
    explain the cell.

    p is `contrast_none_p_values` of A - prediction; where the prediction leaves [0, 1], it is twice the smaller of that
    and the p-value for the clipped contrast, A - 1 or A.

    Returns: float64 (a, b) in [0, 1]; NaN where iota is NaN.
    """
    checked_margin(tau)
    p = contrast_none_p_values(*_counts(table), tau)
    correct, total, weights = _counts_of_cells(table)
    predicted = _predicted(table).ravel()
    opposite = np.where(predicted[:, None] > 1, total - correct, correct)
    clipped = np.minimum(2 * np.minimum(p, contrast_none_p_values(opposite, total, weights, tau)), 1.0)
    return np.where((predicted < 0) | (predicted > 1), clipped, p).reshape(table.total.shape)


def _predicted(table: CrossedCells) -> Floats:
    """Returns the predictions without clipping."""
    accuracy = np.nan_to_num(table.accuracy).ravel()
    predicted: Floats = accuracy - _weights(table) @ accuracy
    return predicted.reshape(table.total.shape)


def weighted_counts(table: CrossedCells, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Prepares sums of accuracies with these weights (sums, cells) for `stats.contrasts`: returns the right answers
    and the images behind each sum, and the weights."""
    return contrast_counts(table.accuracy.ravel(), table.total.ravel(), weights, table.covariance)


def _counts(table: CrossedCells) -> tuple[Floats, Floats, Floats]:
    return weighted_counts(table, _weights(table))


def _counts_of_cells(table: CrossedCells) -> tuple[Floats, Floats, Floats]:
    """Like `weighted_counts`, for each cell's accuracy alone."""
    size = table.total.size
    eye = np.where(np.eye(size, dtype=bool) & (table.total.ravel() == 0), np.nan, np.eye(size))
    shape = (size, size)
    return np.broadcast_to(table.correct.ravel(), shape), np.broadcast_to(table.total.ravel(), shape), eye


def _weights(table: CrossedCells) -> Floats:
    """(cells, cells): the weight of each cell's accuracy in each cell's interaction; a row of NaN where there is none.

    For a cell of the additive model: its row of the model's residual maker, divided by its diagonal entry. For a cell
    that is aside: 1 for itself, minus the weights of the model's prediction for it.
    """
    rows, columns = table.total.shape
    size = table.total.size
    has_images = (table.total > 0).ravel()
    row_of_cell, column_of_cell = np.divmod(np.arange(size), max(columns, 1))
    design = np.hstack([row_of_cell[:, None] == np.arange(rows), column_of_cell[:, None] == np.arange(columns)]).astype(
        np.float64
    )
    weights = np.full((size, size), np.nan)
    fitted = has_images & ~table.aside.ravel()
    if not fitted.any():
        return weights
    hat = design @ np.linalg.pinv(design[fitted])  # (cells, fitted cells): predictions with the cell in its own
    residual = np.zeros((size, size))
    residual[:, fitted] = -hat
    residual[np.arange(size), np.arange(size)] += 1.0
    # A cell aside is predicted where its own pattern of row and column is one of the others' patterns, combined.
    estimable = np.abs(hat @ design[fitted] - design).max(axis=1) < _ESTIMABLE
    leftover = np.diag(residual)[:, None]
    is_defined = (has_images & np.where(fitted, leftover[:, 0] > _ESTIMABLE, estimable))[:, None]
    scaled = np.divide(residual, leftover, out=np.full(residual.shape, np.nan), where=is_defined)
    scaled[np.abs(scaled) < _ESTIMABLE] = 0.0
    result: Floats = scaled
    return result


# Separates interactions that are findings from the shadows that a stronger cell casts on its table.
#
# One bad cell changes the accuracy that its row and column predict for all other cells, so these deviate too.


EFFECT = 0.1
"""The usual size of an attribute's main effect on accuracy: of readings that fit equally well, smaller effects are
likelier."""

SLACK = 0.02
"""The usual size of interactions that are not worth reporting."""

COST_AGAINST, COST_FOR = 4.0, 6.0
"""The cost of a deviating cell in log-likelihood: few cells deviate, and a drop is likelier than the opposite."""

MOST_READINGS = 2000
"""The most sets of cells that are compared; a table with more keeps the cells that were found one by one."""


@dataclass(frozen=True)
class Separated:
    """The result for one table, arrays of shape (a, b). `table`: with the findings aside. `p_value`, `q_value`: of
    every cell, against the additive model of the cells that are no findings. `folded`: the row-major number of the
    finding whose shadow the cell is, -1 where it is none."""

    table: CrossedCells
    p_value: Floats
    q_value: Floats
    findings: NDArray[np.bool_]
    folded: NDArray[np.int64]


def separated(tables: Sequence[CrossedCells], tau: float, alpha: float) -> list[Separated]:
    """Returns the findings of all tables as one family of tests, with their shadows folded into them.

    All cells are tested (`interaction_p_values`, Benjamini & Hochberg over the cells of all tables). In every table
    that has findings the one with the smallest p is set aside, so that no other cell's prediction rests on it; all
    cells are tested again, until no finding is left that was not set aside. A cell that is no finding in the end is
    taken back. A cell that was a finding at first and is none once the next cell is set aside is that cell's shadow.

    Some tables can be read in several ways. With two values of each attribute the four interactions are one number but
    for its sign; two bad cells in a row of three look like a bad row with one good cell. Where one or two cells were
    set aside, all sets of as many and up to two are compared, and the likeliest replaces them if all its cells are
    findings: the set S with the least

        sum over cells not in S of (A - e)^2 / 2(v + SLACK^2) + sum of the rows' and columns' effects^2 / 2 EFFECT^2
            + COST_AGAINST or COST_FOR for each cell in S

    e the additive model that minimises it, v the variance of A: the most probable one where effects are normal and
    deviations rare, and the worse cell rather than the better one.

    Forward selection of outliers in a two-way table (Daniel 1978; Hawkins 1980). p and q are those of the last round:
    given the cells aside, every other cell's p holds for a table that is additive but for these.

    Args: cells that are aside in `tables` are neither tested nor counted on. tau: 0 or more; alpha: in (0, 1).
    Returns: one per table. NaN p and q where a cell cannot be tested. No tables in, none out.
    """
    checked_margin(tau)
    checked_levels(alpha=alpha)
    runs = [_Run(table, tau) for table in tables]
    _search(runs, alpha)
    read_again = [run.read_again() for run in runs]
    if any(read_again):
        _judge(runs)
        for run in runs:
            run.keep_if_significant(alpha)
        _judge(runs)
        _search(runs, alpha)
    return [run.result(alpha) for run in runs]


class _Run:
    """The search in one table."""

    def __init__(self, table: CrossedCells, tau: float) -> None:
        self._first, self._tau = table, tau
        self.size = table.total.size
        self._chosen: list[int] = []
        self._kept: list[int] = []
        self._refused: set[int] = set()
        self._folded = np.full(self.size, -1, dtype=np.int64)
        self._before = np.zeros(self.size, dtype=bool)
        self.q = np.full(self.size, np.nan)
        self._test()

    def _test(self) -> None:
        set_aside = self._first.aside.ravel().copy()
        set_aside[self._chosen] = True
        self._table = self._first.without(set_aside.reshape(self._first.aside.shape))
        p = interaction_p_values(self._table, self._tau)
        self.p = np.where(self._first.aside, np.nan, p).ravel()

    def step(self, alpha: float) -> bool:
        """Sets one more cell aside, or takes one back; returns False where nothing is left to do."""
        is_finding = self.q <= alpha
        insignificant = [cell for cell in self._chosen if not is_finding[cell]]
        if insignificant:
            weakest = max(insignificant, key=lambda cell: (np.nan_to_num(self.p[cell], nan=2.0), cell))
            self._chosen.remove(weakest)
            self._refused.add(weakest)
        else:
            self._shade(is_finding)
            is_finding[[*self._chosen, *self._refused]] = False
            if not is_finding.any():
                return False
            score = interactions(self._table).ravel()
            # Of equal p (mirror images): the one that is worse than expected, and the lowest.
            first = np.lexsort((self._first.accuracy.ravel(), score > 0, np.round(self.p, 12), ~is_finding))[0]
            self._chosen.append(int(first))
        self._test()
        return True

    def _shade(self, is_finding: NDArray[np.bool_]) -> None:
        """Notes which findings of the previous round are no longer findings without the cell that was set aside
        last."""
        if self._chosen:
            self._folded[self._before & ~is_finding & (self._folded < 0)] = self._chosen[-1]
        self._before = is_finding.copy()

    def read_again(self) -> bool:
        """Sets the likeliest cells aside instead; returns False where these are the same."""
        self._kept = self._chosen
        if not 0 < len(self._chosen) <= 2:
            return False
        likeliest = _likeliest(self._first, len(self._chosen))
        if likeliest is None or set(likeliest) == set(self._chosen):
            return False
        self._chosen = list(likeliest)
        self._test()
        return True

    def keep_if_significant(self, alpha: float) -> None:
        if self._chosen != self._kept and not (self.q[self._chosen] <= alpha).all():
            self._chosen = self._kept
            self._test()

    def result(self, alpha: float) -> Separated:
        findings = np.zeros(self.size, dtype=bool)
        findings[[cell for cell in self._chosen if self.q[cell] <= alpha]] = True
        folded = self._folded.copy()
        # A reading that was replaced: its cell, and its shadows, are those of the nearest finding that replaced it.
        folded[[cell for cell in self._kept if not findings[cell]]] = -2
        for cell in np.flatnonzero((folded != -1) & ~np.isin(folded, np.flatnonzero(findings))):
            folded[cell] = self._nearest(int(cell), np.flatnonzero(findings))
        folded[findings] = -1
        shape = self._first.total.shape
        return Separated(
            self._table, self.p.reshape(shape), self.q.reshape(shape), findings.reshape(shape), folded.reshape(shape)
        )

    def _nearest(self, cell: int, findings: NDArray[np.int64]) -> int:
        """Returns the strongest finding, preferring one in the same row or column."""
        columns = self._first.total.shape[1]
        if not len(findings):
            return -1
        return int(
            min(
                findings,
                key=lambda f: (f // columns != cell // columns and f % columns != cell % columns, self.p[f], f),
            )
        )


def _search(runs: Sequence[_Run], alpha: float) -> None:
    _judge(runs)
    for _ in range(2 * max((run.size for run in runs), default=0)):
        changed = [run.step(alpha) for run in runs]
        if not any(changed):
            break
        _judge(runs)


def _judge(runs: Sequence[_Run]) -> None:
    if runs:
        q = benjamini_hochberg(np.concatenate([run.p for run in runs]))
        for run, part in zip(runs, np.split(q, np.cumsum([run.size for run in runs])[:-1]), strict=True):
            run.q = part


def _likeliest(table: CrossedCells, least: int) -> tuple[int, ...] | None:
    """Returns the likeliest set of `least` to two deviating cells; None where there are too many sets to compare."""
    rows, columns = table.total.shape
    cells = np.flatnonzero((table.total > 0).ravel() & ~table.aside.ravel())
    sets = [combination for size in range(least, 3) for combination in combinations(cells.tolist(), size)]
    if len(sets) > MOST_READINGS:
        return None
    total, correct = table.total.ravel()[cells], table.correct.ravel()[cells]
    accuracy, smooth = correct / total, (correct + 2) / (total + 4)
    weight = 1 / (smooth * (1 - smooth) / total + SLACK**2)
    row_of_cell, column_of_cell = np.divmod(cells, columns)
    design = np.hstack(
        [
            np.ones((len(cells), 1)),
            row_of_cell[:, None] == np.arange(rows),
            column_of_cell[:, None] == np.arange(columns),
        ]
    ).astype(np.float64)
    ridge = np.diag([0.0] + [EFFECT**-2] * (rows + columns))
    is_deviating = np.array([np.isin(cells, combination) for combination in sets])
    weights = np.where(is_deviating, 0.0, weight)
    normal = np.einsum("sc,cp,cq->spq", weights, design, design) + ridge
    effects = np.linalg.solve(normal, ((weights * accuracy) @ design)[..., None])[..., 0]
    gaps = accuracy - effects @ design.T
    cost = np.where(gaps < 0, COST_AGAINST, COST_FOR)
    loss = (weights * gaps**2).sum(axis=1) / 2 + (effects[:, 1:] ** 2).sum(axis=1) / (2 * EFFECT**2)
    return sets[int(np.argmin(loss + (is_deviating * cost).sum(axis=1)))]
