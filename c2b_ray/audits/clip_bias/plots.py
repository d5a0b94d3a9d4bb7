"""Plots as SVG texts in the page's style: scatter plots, histograms and maps of numbers.

Colours are classes of the style sheet, so plots follow its light, dark and print styles. Labels are escaped. Knows
numbers and labels, not what they measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from c2b_ray.audits.clip_bias import wording
from c2b_ray.report import words
from c2b_ray.text import visible

WIDTH, HEIGHT = 320, 240
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 12, 38
LONGEST = 26
LETTER = 5.6
MOST_DIGITS = 9


@dataclass(frozen=True)
class Axis:
    """An axis; a number on it is at `at(value)`, 0 to 1."""

    label: str
    low: float
    high: float

    @staticmethod
    def over(label: str, values: Sequence[float], zero: bool = False) -> Axis:
        """Builds an axis from the least to the largest value, with a margin; `zero`: includes 0."""
        finite = [value for value in values if math.isfinite(value)] + ([0.0] if zero else [])
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        margin = 0.06 * (high - low) or 0.05 * (abs(high) or 1.0)
        return Axis(label, low - margin, high + margin)

    def at(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Returns numbers at equal distances with their texts, of as many digits as tell them apart."""
        numbers = self._numbers()
        texts = [wording.amount(number) for number in numbers]
        for digits in range(4, MOST_DIGITS + 1):
            if len(set(texts)) == len(texts):
                break
            texts = [wording.amount(number, digits) for number in numbers]
        return list(zip(numbers, texts, strict=True))

    def _numbers(self) -> list[float]:
        step = 10 ** math.floor(math.log10((self.high - self.low) / 3))
        step = next(step * by for by in (1, 2, 5, 10) if (self.high - self.low) / (step * by) <= 4.5)
        first = math.ceil(self.low / step)
        return [round(number * step, 12) for number in range(first, math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Point:
    """A point of a plot. `reach_x`, `reach_y`: half the lengths of its whiskers, 0 for none. `kind`: plain, marked or
    faint."""

    label: str
    x: float
    y: float
    kind: str = "plain"
    reach_x: float = 0.0
    reach_y: float = 0.0


def scatter(points: Sequence[Point], axes: tuple[Axis, Axis], description: str, quadrants: bool = False) -> str:
    """Points with their whiskers; `quadrants`: I and III shaded as one, II and IV as another."""
    x, y = axes
    marks = [_quadrants(x, y)] if quadrants else []
    for point in points:
        if not math.isfinite(point.x + point.y):
            continue
        px, py = _px(x, point.x), _py(y, point.y)
        title = f"<title>{_text(point.label)}: {point.x:.4g}, {point.y:.4g}</title>"
        marks += [f'<path class="whisker" d="{ends}"/>' for ends in _whiskers(point, axes)]
        marks.append(f'<circle class="dot-{point.kind}" cx="{px}" cy="{py}" r="4">{title}</circle>')
    return _plot(marks, axes, description)


def window(points: Sequence[Point], axes: tuple[Axis, Axis], ends: tuple[float, float] | None, description: str) -> str:
    """A scatter plot with two bars across it at `ends` of the horizontal axis."""
    plot = scatter(points, axes, description)
    if ends is None:
        return plot
    bars = [
        f'<path class="limit" d="M{_px(axes[0], end)} {TOP}V{HEIGHT - BOTTOM}"/>'
        for end in ends
        if axes[0].low <= end <= axes[0].high
    ]
    return plot.replace("</svg>", f"{''.join(bars)}</svg>")


def histogram(
    series: Sequence[tuple[str, Sequence[float]]], span: tuple[float, float], axis: str, description: str
) -> str:
    """Draws the numbers of values in 20 bins; a second series is drawn over the first."""
    edges = np.linspace(span[0], span[1], 21)
    counts = [np.histogram(np.clip(values, span[0], span[1]), edges)[0] for _, values in series]
    most = max([int(count.max()) for count in counts if count.size] or [1]) or 1
    x, y = Axis(axis, *span), Axis("count", 0, most * 1.08)
    marks = []
    for number, count in enumerate(counts):
        for start, end, height in zip(edges[:-1], edges[1:], count.tolist(), strict=True):
            if height:
                top = _py(y, height)
                width = _px(x, end) - _px(x, start) - 0.5
                marks.append(
                    f'<rect class="bin-{number}" x="{_px(x, start)}" y="{top}" width="{width:.1f}" '
                    f'height="{HEIGHT - BOTTOM - top:.1f}"/>'
                )
    key = [
        f'<text class="key-{number}" x="{LEFT + 6}" y="{TOP + 12 + 14 * number}">{_text(name)}</text>'
        for number, (name, _) in enumerate(series)
        if name
    ]
    return _plot(marks + key, (x, y), description)


@dataclass(frozen=True)
class MapCell:
    """A cell of a map. `depth`: its shade, 0 to 1, NaN where unknown; `title`: what a pointer above it tells; `marked`:
    whether it is highlighted."""

    depth: float
    title: str
    marked: bool = False


def heat_map(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[MapCell]], description: str, side: int = 26
) -> str:
    """A map of rows by columns, in a stronger colour where `depth` is larger."""
    names = [words.shortened(name, LONGEST) for name in (*rows, *columns)]
    margin = int(max(len(name) for name in names[: len(rows)]) * LETTER) + 12
    bottom = int(max(len(name) for name in names[len(rows) :]) * LETTER * 0.78) + 22
    width, height = margin + side * len(columns) - side // 2 + bottom, side * len(rows) + bottom
    parts = []
    for i, name in enumerate(names[: len(rows)]):
        parts.append(f'<text class="row" x="{margin - 8}" y="{i * side + side / 2 + 4}">{_text(name)}</text>')
    for i, name in enumerate(names[len(rows) :]):
        x, y = margin + i * side + side / 2, side * len(rows) + 12
        parts.append(f'<text class="column" transform="translate({x} {y}) rotate(45)">{_text(name)}</text>')
    for row, row_cells in enumerate(cells):
        for column, cell in enumerate(row_cells):
            parts.append(_cell(cell, margin + column * side, row * side, side))
    return _svg(parts, (width, height), description, "map")


def _cell(cell: MapCell, x: int, y: int, side: int) -> str:
    unknown = math.isnan(cell.depth)
    shade = "" if unknown else f' fill-opacity="{0.06 + 0.94 * min(max(cell.depth, 0), 1):.3f}"'
    kind = "unknown" if unknown else "shade"
    title = f"<title>{_text(cell.title)}</title>"
    box = f'<rect class="{kind}" x="{x}" y="{y}" width="{side - 2}" height="{side - 2}"{shade}>{title}</rect>'
    ring = f'<rect class="ring" x="{x + 1}" y="{y + 1}" width="{side - 4}" height="{side - 4}"/>' if cell.marked else ""
    return box + ring


def _quadrants(x: Axis, y: Axis) -> str:
    zero_x, zero_y = _px(x, 0.0), _py(y, 0.0)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    boxes = [
        ("same", zero_x, TOP, right, zero_y), ("same", LEFT, zero_y, zero_x, bottom),
        ("other", LEFT, TOP, zero_x, zero_y), ("other", zero_x, zero_y, right, bottom),
    ]  # fmt: skip
    shapes = [
        f'<rect class="quadrant-{kind}" x="{a}" y="{b}" width="{max(c - a, 0):.1f}" height="{max(d - b, 0):.1f}"/>'
        for kind, a, b, c, d in boxes
    ]
    return f'{"".join(shapes)}<path class="zero" d="M{zero_x} {TOP}V{bottom}M{LEFT} {zero_y}H{right}"/>'


def _whiskers(point: Point, axes: tuple[Axis, Axis]) -> list[str]:
    (x, y), result = axes, []
    px, py = _px(x, point.x), _py(y, point.y)
    if point.reach_x > 0:
        low, high = (_px(x, min(max(point.x + s * point.reach_x, x.low), x.high)) for s in (-1, 1))
        result.append(f"M{low} {py}H{high}")
    if point.reach_y > 0:
        low, high = (_py(y, min(max(point.y + s * point.reach_y, y.low), y.high)) for s in (-1, 1))
        result.append(f"M{px} {low}V{high}")
    return result


def _plot(marks: Sequence[str], axes: tuple[Axis, Axis], description: str) -> str:
    x, y = axes
    frame = f'<path class="frame" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    ticks = [
        f'<text class="tick" x="{_px(x, value)}" y="{HEIGHT - BOTTOM + 14}">{text}</text>' for value, text in x.ticks()
    ]
    ticks += [f'<text class="tick-y" x="{LEFT - 6}" y="{_py(y, value) + 3}">{text}</text>' for value, text in y.ticks()]
    middle, upright = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    labels = [
        f'<text class="axis" x="{middle}" y="{HEIGHT - 6}">{_text(x.label)}</text>',
        f'<text class="axis" transform="translate(11 {upright}) rotate(-90)">{_text(y.label)}</text>',
    ]
    return _svg([*marks, frame, *ticks, *labels], (WIDTH, HEIGHT), description, "plain")


def _svg(parts: Sequence[str], size: tuple[int, int], description: str, kind: str) -> str:
    width, height = size
    opening = (
        f'<svg class="drawn {kind}" role="img" aria-label="{_text(description)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg">'
    )
    return f"{opening}{''.join(parts)}</svg>"


def _px(axis: Axis, value: float) -> float:
    return round(LEFT + axis.at(value) * (WIDTH - LEFT - RIGHT), 1)


def _py(axis: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - axis.at(value) * (HEIGHT - TOP - BOTTOM), 1)


def _text(text: str) -> str:
    return escape(visible(text))
