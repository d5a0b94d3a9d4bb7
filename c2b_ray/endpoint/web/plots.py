"""Draws one cell's φ from audit to audit as a small inline SVG: points with their intervals around zero.

Colours come from the style sheet by class, so the pictures follow light and dark mode. This module knows no audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import escape

from c2b_ray.report.kit.words import signed

WIDTH, HEIGHT, MARGIN = 220.0, 76.0, 8.0
_MARKS = {"against": "against", "for": "for", "none": "none"}


@dataclass(frozen=True)
class Point:
    """φ with its interval. `verdict`: against, for, none, undetermined. `n`: the number of images."""

    phi: float
    low: float | None
    high: float | None
    verdict: str
    n: int


def sparkline(points: Sequence[Point | None], title: str, audits: int) -> str:
    """Returns the SVG. All share one scale from −1 to +1, so that small multiples can be compared by eye."""
    words = escape(_words(points, title))
    parts = [
        f'<svg class="history" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{words}">',
        f'<line class="zero" x1="0" x2="{WIDTH:.0f}" y1="{_y(0):.1f}" y2="{_y(0):.1f}"></line>',
    ]
    known = [(_x(i, audits), point) for i, point in enumerate(points) if point is not None]
    path = " ".join(f"{x:.1f},{_y(point.phi):.1f}" for x, point in known)
    parts.append(f'<polyline class="path" points="{path}"></polyline>')
    for x, point in known:
        if point.low is not None and point.high is not None:
            ends = f'y1="{_y(point.low):.1f}" y2="{_y(point.high):.1f}"'
            parts.append(f'<line class="interval" x1="{x:.1f}" x2="{x:.1f}" {ends}></line>')
        mark = _MARKS.get(point.verdict, "undetermined")
        parts.append(f'<circle class="{mark}" cx="{x:.1f}" cy="{_y(point.phi):.1f}" r="3.5"></circle>')
    return "".join([*parts, "</svg>"])


def _x(number: int, audits: int) -> float:
    return WIDTH / 2 if audits < 2 else MARGIN + (WIDTH - 2 * MARGIN) * number / (audits - 1)


def _y(phi: float) -> float:
    return MARGIN + (HEIGHT - 2 * MARGIN) * (1.0 - max(-1.0, min(1.0, phi))) / 2.0


def _words(points: Sequence[Point | None], title: str) -> str:
    scored = [point for point in points if point is not None]
    if not scored:
        return f"{title}: no audit has a score"
    first, last = scored[0], scored[-1]
    return f"{title}: φ from {signed(first.phi)} to {signed(last.phi)} over {len(scored)} of {len(points)} audits"
