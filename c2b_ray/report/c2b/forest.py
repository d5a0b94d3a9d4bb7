"""A group's forest plot: φ of every value with its interval, the band within ±τ shaded, as an SVG text.

Knows cells; knows nothing of pages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from c2b_ray.report.c2b.ranking import Cell, Group
from c2b_ray.report.kit import words
from c2b_ray.report.kit.forest import BAND, RULE, Forest, ForestRow, forest_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    known = [limit for cell in cells for limit in (cell.phi_low, cell.phi_high, cell.phi) if not math.isnan(limit)]
    least, most = min([*known, -2 * tau, -0.02]), max([*known, 2 * tau, 0.02])
    room = 0.04 * (most - least)
    return least - room, most + room


def _tick(value: float) -> str:
    digits = f"{abs(value):.2f}".rstrip("0").rstrip(".")
    return f"{words.MINUS}{digits}" if value < 0 and digits != "0" else digits
