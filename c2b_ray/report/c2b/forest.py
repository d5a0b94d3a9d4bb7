"""A group's forest plot: φ of every value with its interval, the band within ±τ shaded, as an SVG text.

The verdict is told by colour and by the marker's shape. Colours are names of the page's CSS variables, so that the plot
follows its light, dark and printed dress. The same cells give the same text. Knows cells; knows nothing of pages.
"""

from __future__ import annotations

import math
import re
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from c2b_ray.report.c2b.ranking import Cell, Group
from c2b_ray.report.kit import words
from c2b_ray.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, TOP, BOTTOM, MARGIN = 400, 26, 6, 44, 14  # pixels
LONGEST_LABEL = 24  # characters
LETTER = 6.4  # pixels
FONT = 12  # pixels
_POINTS = 72  # a point a pixel: the SVG backend writes points

# matplotlib wants colours, the page has variables: each stand-in is replaced by its variable.
_INK, _MUTED, _RULE, _BAND = "#010101", "#020202", "#030303", "#040404"
_VERDICT_COLOURS = {"against": "#050505", "for": "#060606", "none": "#070707", "undetermined": "#080808"}
_PAPER = "#090909"
_VARIABLES = {
    _INK: "ink",
    _MUTED: "muted",
    _RULE: "rule-strong",
    _BAND: "band",
    _PAPER: "paper",
    **{colour: f"mark-{verdict}" for verdict, colour in _VERDICT_COLOURS.items()},
}
_MARKERS = {"against": "v", "for": "^", "none": "o", "undetermined": "D"}
_SIZES = {"against": 9.0, "for": 9.0, "none": 7.0, "undetermined": 6.0}


def forest_plot(group: Group, tau: float, salt: str) -> str:
    """An <svg> element, a row per cell in the group's order. `salt` keeps its ids apart from other plots' on a page."""
    # Here, because whoever imports the report to rank scores need not wait for matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    labels = [words.shortened(cell.bias_class, LONGEST_LABEL) for cell in group.cells]
    left = min(max((len(label) for label in labels), default=1) * LETTER + 16, 0.45 * WIDTH)
    height = TOP + ROW * len(group.cells) + BOTTOM
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": FONT, "path.simplify": False}):
        figure = Figure(figsize=(WIDTH / _POINTS, height / _POINTS))
        plot_box = (left / WIDTH, BOTTOM / height, (WIDTH - left - MARGIN) / WIDTH, (height - TOP - BOTTOM) / height)
        axes = figure.add_axes(plot_box)
        figure.patch.set_visible(False)
        _frame(axes, group.cells, tau)
        for row, cell in enumerate(group.cells):
            _row(axes, row, cell)
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _for_page(buffer.getvalue(), labels, description(group, tau), height)


def description(group: Group, tau: float) -> str:
    """What a reader who cannot see the plot is told."""
    rows = [
        f"{cell.bias_class} {words.signed(cell.phi)} ({words.signed_range(cell.phi_low, cell.phi_high)})"
        if not math.isnan(cell.phi)
        else f"{cell.bias_class} without data"
        for cell in group.cells
    ]
    return f"φ by {group.attribute} for {group.target_class}, band ±{words.decimal(tau)}: {'; '.join(rows)}."


def _frame(axes: Axes, cells: tuple[Cell, ...], tau: float) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = _limits(cells, tau)
    axes.patch.set_visible(False)
    axes.set_xlim(low, high)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(_RULE)
    axes.axvspan(-tau, tau, color=_BAND, linewidth=0, clip_on=False)
    axes.axvline(0, color=_RULE, linewidth=1, clip_on=False)
    axes.yaxis.set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.tick_params(axis="x", colors=_MUTED, length=3, labelsize=FONT - 1)
    below: dict[str, Any] = {"transform": axes.transAxes, "va": "top", "color": _MUTED, "fontsize": FONT - 1}
    offset = -(BOTTOM - 18) / (ROW * len(cells))
    axes.text(0, offset, "← worse than the others", ha="left", **below)
    axes.text(1, offset, "better →", ha="right", **below)


def _limits(cells: tuple[Cell, ...], tau: float) -> tuple[float, float]:
    known = [limit for cell in cells for limit in (cell.phi_low, cell.phi_high, cell.phi) if not math.isnan(limit)]
    least, most = min([*known, -2 * tau, -0.02]), max([*known, 2 * tau, 0.02])
    room = 0.04 * (most - least)
    return least - room, most + room


def _tick(value: float) -> str:
    digits = f"{abs(value):.2f}".rstrip("0").rstrip(".")
    return f"{words.MINUS}{digits}" if value < 0 and digits != "0" else digits


def _row(axes: Axes, row: int, cell: Cell) -> None:
    # The label is a stand-in: matplotlib would read $ as mathematics and warn about letters that its font lacks.
    axes.annotate(
        f"@{row}@", (0, row), xycoords=("axes fraction", "data"), xytext=(-10, 0), textcoords="offset points",
        ha="right", va="center_baseline", color=_INK, annotation_clip=False,
    )  # fmt: skip
    if math.isnan(cell.phi):
        axes.text(0, row, "no data", ha="center", va="center_baseline", color=_MUTED, fontsize=FONT - 1)
        return
    colour = _VERDICT_COLOURS[cell.verdict]
    if not math.isnan(cell.phi_low + cell.phi_high):
        axes.plot([cell.phi_low, cell.phi_high], [row, row], color=colour, linewidth=2, clip_on=False)
    axes.plot(
        [cell.phi], [row], color=colour, marker=_MARKERS[cell.verdict], markersize=_SIZES[cell.verdict],
        markerfacecolor=_PAPER if cell.verdict == "undetermined" else colour, markeredgewidth=1.5, clip_on=False,
    )  # fmt: skip


def _for_page(svg: str, labels: list[str], description: str, height: int) -> str:
    """The <svg> alone, without style attributes (the page's policy forbids them), foreign fonts or bare ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<(g|path|text) id=\"(?!m[0-9a-f]{10}\")[^\"]*\"", r"<\1", svg)
    svg = re.sub(r'style="([^"]*)"', lambda match: _attributes(match[1]), svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    opening = (
        f'<svg class="forest" role="img" aria-label="{escape(visible(description))}" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" xmlns="http://www.w3.org/2000/svg">'
    )
    svg = re.sub(r"^<svg[^>]*>", lambda _: opening, svg).replace("xlink:href", "href")
    svg = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", svg)).strip()
    return re.sub(r"@(\d+)@", lambda match: escape(visible(labels[int(match[1])])), svg)


def _attributes(style: str) -> str:
    pairs = [part.split(":", 1) for part in style.split(";") if ":" in part]
    return " ".join(f'{name.strip()}="{value.strip()}"' for name, value in pairs if name.strip() != "font-family")
