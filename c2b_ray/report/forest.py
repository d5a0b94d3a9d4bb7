"""A forest plot: a value with its interval in each row, as an SVG text in the page's style.

The verdict is shown by colour and by the marker's shape. Colours are names of the page's CSS variables, so the plot
follows its light, dark and print styles. The same rows give the same text. Knows numbers and labels, not what they
measure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from c2b_ray.report import words
from c2b_ray.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, TOP, BOTTOM, MARGIN = 400, 26, 6, 44, 14  # pixels
LONGEST_LABEL = 24  # characters
LETTER = 6.4  # pixels
FONT = 12  # pixels
_POINTS = 72  # a point a pixel: the SVG backend writes points

# matplotlib wants colours, the page has variables: each stand-in is replaced by its variable.
INK, MUTED, RULE, BAND, PAPER = "#010101", "#020202", "#030303", "#040404", "#090909"
_VERDICT_COLOURS = {"against": "#050505", "for": "#060606", "none": "#070707", "undetermined": "#080808"}
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule-strong",
    BAND: "band",
    PAPER: "paper",
    **{colour: f"mark-{verdict}" for verdict, colour in _VERDICT_COLOURS.items()},
}
_MARKERS = {"against": "v", "for": "^", "none": "o", "undetermined": "D"}
_SIZES = {"against": 9.0, "for": 9.0, "none": 7.0, "undetermined": 6.0}


@dataclass(frozen=True)
class ForestRow:
    """`verdict`: against, for, none or undetermined. NaN: a value or limit that is not known."""

    label: str
    value: float
    low: float
    high: float
    verdict: str


@dataclass(frozen=True)
class Forest:
    """`description`: the text for a reader who cannot see the plot. `ends`: what the left and the right end mean."""

    rows: Sequence[ForestRow]
    description: str
    ends: tuple[str, str]


def forest_svg(forest: Forest, dress: Callable[[Axes], None], salt: str) -> str:
    """An <svg> element. `dress` sets the limits, scale, ticks and bands of the horizontal axis; `salt` keeps ids apart
    from other plots' on a page."""
    # Here, so that code that imports the report only to rank scores does not wait for matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    labels = [words.shortened(row.label, LONGEST_LABEL) for row in forest.rows]
    label_width = min(max((len(label) for label in labels), default=1) * LETTER + 16, 0.45 * WIDTH)
    height = TOP + ROW * len(forest.rows) + BOTTOM
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": FONT, "path.simplify": False}):
        figure = Figure(figsize=(WIDTH / _POINTS, height / _POINTS))
        plot_box = (
            label_width / WIDTH,
            BOTTOM / height,
            (WIDTH - label_width - MARGIN) / WIDTH,
            (height - TOP - BOTTOM) / height,
        )
        axes = figure.add_axes(plot_box)
        figure.patch.set_visible(False)
        _frame(axes, forest)
        dress(axes)
        for number, row in enumerate(forest.rows):
            _row(axes, number, row)
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _for_page(buffer.getvalue(), labels, forest.description, height)


def _frame(axes: Axes, forest: Forest) -> None:
    axes.patch.set_visible(False)
    axes.set_ylim(len(forest.rows) - 0.5, -0.5)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.yaxis.set_visible(False)
    axes.tick_params(axis="x", which="both", colors=MUTED, length=3, labelsize=FONT - 1)
    offset = -(BOTTOM - 18) / (ROW * max(len(forest.rows), 1))
    for x, end, side in zip((0, 1), forest.ends, ("left", "right"), strict=True):
        axes.text(x, offset, end, ha=side, va="top", transform=axes.transAxes, color=MUTED, fontsize=FONT - 1)


def _row(axes: Axes, number: int, row: ForestRow) -> None:
    # The label is a stand-in: matplotlib would read $ as mathematics and warn about letters that its font lacks.
    axes.annotate(
        f"@{number}@", (0, number), xycoords=("axes fraction", "data"), xytext=(-10, 0), textcoords="offset points",
        ha="right", va="center_baseline", color=INK, annotation_clip=False,
    )  # fmt: skip
    if math.isnan(row.value):
        middle = sum(axes.get_xlim()) / 2
        axes.text(middle, number, "no data", ha="center", va="center_baseline", color=MUTED, fontsize=FONT - 1)
        return
    colour = _VERDICT_COLOURS[row.verdict]
    if not math.isnan(row.low + row.high):
        axes.plot([row.low, row.high], [number, number], color=colour, linewidth=2, clip_on=False)
    axes.plot(
        [row.value], [number], color=colour, marker=_MARKERS[row.verdict], markersize=_SIZES[row.verdict],
        markerfacecolor=PAPER if row.verdict == "undetermined" else colour, markeredgewidth=1.5, clip_on=False,
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
