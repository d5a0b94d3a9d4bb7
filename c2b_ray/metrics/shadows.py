"""Separates interactions that are findings from the shadows that a stronger cell casts on its table.

One bad cell changes the accuracy that its row and column predict for all other cells, so these deviate too. Knows
tables of counts and levels; the formulas of single cells are `metrics.interaction`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from c2b_ray.metrics.interaction import Crossed, interaction_p_values, interactions
from c2b_ray.metrics.levels import checked_levels, checked_margin
from c2b_ray.metrics.scores import Floats
from c2b_ray.metrics.testing import benjamini_hochberg

__all__ = ["Separated", "separated"]

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

    table: Crossed
    p_value: Floats
    q_value: Floats
    findings: NDArray[np.bool_]
    folded: NDArray[np.int64]


def separated(tables: Sequence[Crossed], tau: float, alpha: float) -> list[Separated]:
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

    def __init__(self, table: Crossed, tau: float) -> None:
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
        aside = self._first.aside.ravel().copy()
        aside[self._chosen] = True
        self._table = self._first.without(aside.reshape(self._first.aside.shape))
        p = interaction_p_values(self._table, self._tau)
        self.p = np.where(self._first.aside, np.nan, p).ravel()

    def step(self, alpha: float) -> bool:
        """Sets one more cell aside, or takes one back; returns False where nothing is left to do."""
        is_finding = self.q <= alpha
        gone = [cell for cell in self._chosen if not is_finding[cell]]
        if gone:
            weakest = max(gone, key=lambda cell: (np.nan_to_num(self.p[cell], nan=2.0), cell))
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
        moved = [run.step(alpha) for run in runs]
        if not any(moved):
            break
        _judge(runs)


def _judge(runs: Sequence[_Run]) -> None:
    if runs:
        q = benjamini_hochberg(np.concatenate([run.p for run in runs]))
        for run, part in zip(runs, np.split(q, np.cumsum([run.size for run in runs])[:-1]), strict=True):
            run.q = part


def _likeliest(table: Crossed, least: int) -> tuple[int, ...] | None:
    """Returns the likeliest set of `least` to two deviating cells; None where there are too many sets to compare."""
    rows, columns = table.total.shape
    seen = np.flatnonzero((table.total > 0).ravel() & ~table.aside.ravel())
    sets = [chosen for size in range(least, 3) for chosen in combinations(seen.tolist(), size)]
    if len(sets) > MOST_READINGS:
        return None
    total, correct = table.total.ravel()[seen], table.correct.ravel()[seen]
    accuracy, smooth = correct / total, (correct + 2) / (total + 4)
    weight = 1 / (smooth * (1 - smooth) / total + SLACK**2)
    down, across = np.divmod(seen, columns)
    design = np.hstack(
        [np.ones((len(seen), 1)), down[:, None] == np.arange(rows), across[:, None] == np.arange(columns)]
    ).astype(np.float64)
    ridge = np.diag([0.0] + [EFFECT**-2] * (rows + columns))
    out = np.array([np.isin(seen, chosen) for chosen in sets])
    weights = np.where(out, 0.0, weight)
    normal = np.einsum("sc,cp,cq->spq", weights, design, design) + ridge
    effects = np.linalg.solve(normal, ((weights * accuracy) @ design)[..., None])[..., 0]
    gaps = accuracy - effects @ design.T
    cost = np.where(gaps < 0, COST_AGAINST, COST_FOR)
    loss = (weights * gaps**2).sum(axis=1) / 2 + (effects[:, 1:] ** 2).sum(axis=1) / (2 * EFFECT**2)
    return sets[int(np.argmin(loss + (out * cost).sum(axis=1)))]
