"""Scores as cells and groups, in order of importance.

A group is one attribute of one target class as one classifier sees it: its φ sum to 0, so it is read as one finding.
Knows the columns of `tables.SCORES`; knows nothing of words, pictures or pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

FINDINGS = ("against", "for")
_PAPER = {"for": 1, "against": -1}
_TIE = 1e-9

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Cell:
    """One row of the scores. Numbers that are not known are NaN; `images_to_settle` is None."""

    classifier: str
    target_class: str
    attribute: str
    bias_class: str
    n: int
    correct: int
    errors: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    phi: float
    phi_low: float
    phi_high: float
    q_value: float
    verdict: str
    paper_verdict: int
    images_to_settle: int | None = None
    metric: str = "accuracy"  # what `accuracy` and φ are values of
    mistaken_for: str | None = None
    mistaken: int = 0
    answered_bias_class: int | None = None
    group: int | None = None
    group_reason: str = ""
    phi_observed: float = math.nan  # before it was corrected for what images show
    doubt: str = ""  # why the cell's images cannot be trusted
    because: str = ""  # why it is undetermined
    basis: str = ""  # labels, captions, verifier, calibrated
    captions: int | None = None
    clusters: int | None = None  # of the cell's images; None where images are independent
    caption_spread: float = math.nan  # standard deviation of the accuracy between captions of one cell
    wanted: int | None = None  # distinct images that the cell wanted
    undecided: int = 0
    shared: int = 0
    repeats: int = 0
    phi_shrunken: float = math.nan
    detectable: float = math.nan  # the smallest |φ| that two stages find in four of five audits
    phi_confirmed: float = math.nan  # on images that had no part in selecting it
    phi_confirmed_low: float = math.nan
    phi_confirmed_high: float = math.nan

    @property
    def is_finding(self) -> bool:
        return self.verdict in FINDINGS

    @property
    def one_caption(self) -> bool:
        return on_one_caption(self.captions, self.caption_spread)

    @property
    def others(self) -> float:
        """Mean accuracy, or value of another metric, on the attribute's other values."""
        return self.accuracy - self.phi

    @property
    def disagrees(self) -> bool:
        """Tells whether the paper's rule and the verdict disagree about a bias."""
        return _PAPER.get(self.verdict, 0) != self.paper_verdict

    @property
    def size(self) -> float:
        """|φ|, −1 where φ is not known, so that the unknown comes last."""
        return -1.0 if math.isnan(self.phi) else abs(self.phi)

    @property
    def weight(self) -> float:
        """What cells are ranked by: |φ| on fresh images, as far as it has the sign of φ; else |φ| drawn towards 0 by
        its noise; else |φ|; −1 where φ is not known."""
        if math.isnan(self.phi):
            return -1.0
        if not math.isnan(self.phi_confirmed):
            return max(math.copysign(1.0, self.phi) * self.phi_confirmed, 0.0)
        return self.size if math.isnan(self.phi_shrunken) else abs(self.phi_shrunken)


def on_one_caption(captions: int | None, spread: float | None) -> bool:
    """Tells whether one caption drew the images of each cell, and so no cell showed how much captions differ."""
    return bool(captions) and spread is not None and math.isnan(spread)


_FIELDS = tuple(field.name for field in fields(Cell))
_NUMBERS = tuple(field.name for field in fields(Cell) if field.type == "float")


@dataclass(frozen=True)
class Group:
    """The cells of one (classifier, target class, attribute), lowest φ first, unknown φ last."""

    classifier: str
    target_class: str
    attribute: str
    cells: tuple[Cell, ...]

    @property
    def key(self) -> Key:
        return (self.classifier, self.target_class, self.attribute)

    @property
    def lead(self) -> Cell | None:
        """Returns the finding with the largest `weight`, on ties the larger |φ|, then `against`; None without a
        finding."""
        findings = [cell for cell in self.cells if cell.is_finding]
        return min(findings, key=strongest_first, default=None)

    @property
    def strength(self) -> tuple[float, float]:
        """Returns the largest `weight` among the findings, then among all cells; −1 where there is none."""
        return (self.lead.weight if self.lead else -1.0, max(cell.weight for cell in self.cells))


def cells_of(scores: pa.Table) -> list[Cell]:
    """Returns a cell per row of `tables.SCORES`, in order."""
    return [_cell(row) for row in scores.to_pylist()]


def ranked(scores: pa.Table) -> list[Group]:
    """Returns every group, with classifiers in the order of the scores; within a classifier by strongest finding, then
    by strongest cell."""
    members: dict[Key, list[Cell]] = {}
    for cell in cells_of(scores):
        members.setdefault((cell.classifier, cell.target_class, cell.attribute), []).append(cell)
    position = {classifier: i for i, classifier in enumerate(dict.fromkeys(key[0] for key in members))}
    groups = [Group(*key, tuple(sorted(cells, key=_by_phi))) for key, cells in members.items()]
    return sorted(
        groups, key=lambda g: (position[g.classifier], *(-s for s in g.strength), g.target_class, g.attribute)
    )


def worst_first(groups: list[Group]) -> list[Group]:
    """Returns the groups of all classifiers with a finding, strongest first."""
    with_lead = [group for group in groups if group.lead is not None]
    return sorted(with_lead, key=lambda g: strongest_first(g.lead) if g.lead else (0, 0, 0.0))


def leading(groups: Sequence[Group]) -> list[tuple[Group, list[Group]]]:
    """Returns the groups with an independent finding, strongest first, each with the groups folded beneath it."""
    by_lead = folded(groups)
    hidden = {group.key for similar in by_lead.values() for group in similar}
    return [(group, by_lead.get(group.key, [])) for group in worst_first(list(groups)) if group.key not in hidden]


def folded(groups: Sequence[Group]) -> dict[Key, list[Group]]:
    """Returns the groups that repeat a stronger group's finding, by the key of that group: groups of another attribute
    whose finding rests on largely the same images."""
    leaders: dict[tuple[str, str, int | None], Key] = {
        (cell.classifier, cell.target_class, cell.group): group.key
        for group in groups
        for cell in group.cells
        if cell.group is not None and not cell.group_reason
    }
    ordered, top_of = worst_first(list(groups)), dict[Key, Key]()
    for group in ordered:
        lead = group.lead
        if lead is not None and lead.group is not None:
            top = leaders.get((lead.classifier, lead.target_class, lead.group), group.key)
            if top != group.key:
                top_of[group.key] = top
    by_lead: dict[Key, list[Group]] = {}
    for group in ordered:  # of groups that repeat each other, the strongest is shown
        if _top(group.key, top_of) == group.key:
            top_of.pop(group.key, None)
    for group in ordered:
        if group.key in top_of:
            by_lead.setdefault(_top(group.key, top_of), []).append(group)
    return by_lead


def _top(key: Key, top_of: Mapping[Key, Key]) -> Key:
    """Follows the chain of groups with the same finding to its end; returns `key` itself where the chain leads back to
    it."""
    chain = [key]
    while (above := top_of.get(chain[-1])) is not None:
        if above in chain:
            return above
        chain.append(above)
    return chain[-1]


def strongest_first(cell: Cell) -> tuple[int, int, float]:
    """Sort key of findings in all lists: by `weight`, on ties by |φ|, then `against`."""
    return (-round(cell.weight / _TIE), -round(cell.size / _TIE), cell.phi)


def _by_phi(cell: Cell) -> tuple[bool, float]:
    return (math.isnan(cell.phi), 0.0 if math.isnan(cell.phi) else cell.phi)


def _cell(row: Mapping[str, Any]) -> Cell:
    """Builds a cell from a row. Missing values keep the field's default; missing numbers are NaN."""
    values = {name: row[name] for name in _FIELDS if row.get(name) is not None}
    unknown = {name: math.nan for name in _NUMBERS if name not in values}
    settle = values.get("images_to_settle")
    return Cell(
        **values
        | unknown
        | {
            "images_to_settle": settle if settle and settle > 0 else None,
            "because": row.get("undetermined_because") or row.get("doubt") or "",
        }
    )
