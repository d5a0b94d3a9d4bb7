"""A group of cells in detail: a row for each value, and a forest plot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from c2b_ray.audits.c2b.report.findings import NAMES, SIGNS, Finding, caveats, paper_word
from c2b_ray.audits.c2b.report.method import DerivedValues, shown, shown_range
from c2b_ray.audits.c2b.report.ranking import Cell, Group
from c2b_ray.report import words
from c2b_ray.report.forest import BAND, RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.pictures import Gallery

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_CORRECTION = 0.01  # of φ, to be worth reporting


@dataclass(frozen=True)
class ValueRow:
    """A value's numbers as text, empty where there is none. `range`: of a value that was cut from numbers;
    `wanted`: the number of images planned for the cell, where it got fewer; `basis`: the evidence of a finding,
    where it is neither labels nor a calibrated verifier, and where it is one caption's. `verdict` is the term in
    the scores, `verdict_name` the page's; `phi_observed` is empty where the correction for what images show hardly
    changed φ."""

    value: str
    range: str
    lead: bool
    right: str
    images: str
    wanted: str
    errors: str
    accuracy: str
    accuracy_interval: str
    phi: str
    phi_interval: str
    phi_observed: str
    phi_confirmed: str
    q: str
    verdict: str
    verdict_name: str
    sign: str
    basis: str
    because: str
    paper: str
    disagrees: bool


@dataclass(frozen=True)
class GroupView:
    """`forest` is an <svg> element, empty for a group that is shown as a table alone."""

    link: str
    target_class: str
    attribute: str
    finding: Finding
    rows: tuple[ValueRow, ...]
    forest: str
    shared_caption: str
    galleries: tuple[Gallery, ...]


def value_rows(group: Group, derived: DerivedValues | None = None) -> tuple[ValueRow, ...]:
    lead = group.lead
    return tuple(_row(cell, cell is lead, derived) for cell in group.cells)


def _row(cell: Cell, lead: bool, derived: DerivedValues | None) -> ValueRow:
    return ValueRow(
        value=cell.bias_class,
        range=derived.range_of(cell.target_class, cell.attribute, cell.bias_class) if derived else "",
        lead=lead,
        right=words.count(cell.correct),
        images=words.count(cell.n),
        wanted=f"{words.count(cell.wanted)} asked for" if cell.wanted and cell.wanted > cell.n else "",
        errors=f"{words.count(cell.errors)} failed" if cell.errors else "",
        accuracy=shown(cell.metric, cell.accuracy),
        accuracy_interval=shown_range(cell.metric, cell.accuracy_low, cell.accuracy_high),
        phi=words.signed(cell.phi),
        phi_interval=words.signed_range(cell.phi_low, cell.phi_high),
        phi_observed=words.signed(cell.phi_observed) if abs(cell.phi - cell.phi_observed) > LEAST_CORRECTION else "",
        phi_confirmed=""
        if math.isnan(cell.phi_confirmed)
        else f"{words.signed(cell.phi_confirmed)} "
        f"({words.signed_range(cell.phi_confirmed_low, cell.phi_confirmed_high)})",
        q=words.small_probability(cell.q_value),
        verdict=cell.verdict,
        verdict_name=NAMES[cell.verdict],
        sign=SIGNS[cell.verdict],
        basis=", ".join(caveats(cell)) if cell.is_finding else "",
        because=cell.because if cell.verdict == "undetermined" else "",
        paper=paper_word(cell),
        disagrees=cell.disagrees,
    )


# A group's forest plot: φ of every value with its interval, the band within ±τ shaded, as an SVG text.


ENDS = ("← worse than the others", "better →")


def forest_plot(group: Group, tau: float, salt: str) -> str:
    """An <svg> element, a row per cell in the group's order. `salt` keeps its ids apart from other plots' on a page."""
    rows = [ForestRow(cell.bias_class, cell.phi, cell.phi_low, cell.phi_high, cell.verdict) for cell in group.cells]
    forest = Forest(rows, description(group, tau), ENDS)
    return forest_svg(forest, lambda axes: _dress(axes, group.cells, tau), salt)


def description(group: Group, tau: float) -> str:
    """The text for a reader who cannot see the plot."""
    rows = [
        f"{cell.bias_class} {words.signed(cell.phi)} ({words.signed_range(cell.phi_low, cell.phi_high)})"
        if not math.isnan(cell.phi)
        else f"{cell.bias_class} without data"
        for cell in group.cells
    ]
    return f"φ by {group.attribute} for {group.target_class}, band ±{words.decimal(tau)}: {'; '.join(rows)}."


def _dress(axes: Axes, cells: tuple[Cell, ...], tau: float) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(*_limits(cells, tau))
    axes.axvspan(-tau, tau, color=BAND, linewidth=0, clip_on=False)
    axes.axvline(0, color=RULE, linewidth=1, clip_on=False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _limits(cells: tuple[Cell, ...], tau: float) -> tuple[float, float]:
    finite = [limit for cell in cells for limit in (cell.phi_low, cell.phi_high, cell.phi) if not math.isnan(limit)]
    least, most = min([*finite, -2 * tau, -0.02]), max([*finite, 2 * tau, 0.02])
    margin = 0.04 * (most - least)
    return least - margin, most + margin


def _tick(value: float) -> str:
    digits = f"{abs(value):.2f}".rstrip("0").rstrip(".")
    return f"{words.MINUS}{digits}" if value < 0 and digits != "0" else digits
