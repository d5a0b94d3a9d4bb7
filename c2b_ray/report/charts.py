"""Small line charts over the unit square, as SVG that takes the page's colours. Knows nothing of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import escape
from numpy.typing import NDArray

from c2b_ray.text import visible

LEFT, TOP, SIDE = 34, 8, 190
MOST_POINTS = 200


@dataclass(frozen=True)
class Line:
    """Points in [0, 1]; `dots` where each is a measurement."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    dots: bool = False


def chart(lines: Sequence[Line], x_name: str, y_name: str, description: str, diagonal: bool = False) -> str:
    """Returns an <svg> element. `description`: for readers who cannot see it."""
    parts = [f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>']
    if diagonal:
        parts.append(f'<line class="diagonal" x1="{LEFT}" y1="{TOP + SIDE}" x2="{LEFT + SIDE}" y2="{TOP}"/>')
    for line in lines:
        chosen = np.unique(np.linspace(0, len(line.x) - 1, min(len(line.x), MOST_POINTS)).astype(int))
        points = [(LEFT + SIDE * float(line.x[i]), TOP + SIDE * (1 - float(line.y[i]))) for i in chosen]
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        if line.dots:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
    bottom, middle, height = TOP + SIDE, LEFT + SIDE / 2, TOP + SIDE / 2
    for share, name in ((0, "0"), (0.5, "0.5"), (1, "1")):
        parts.append(f'<text x="{LEFT + SIDE * share:.0f}" y="{bottom + 13}" text-anchor="middle">{name}</text>')
        parts.append(f'<text x="{LEFT - 5}" y="{bottom - SIDE * share + 3:.0f}" text-anchor="end">{name}</text>')
    parts.append(f'<text x="{middle}" y="{bottom + 27}" text-anchor="middle">{escape(visible(x_name))}</text>')
    turned = f'transform="rotate(-90 9 {height})"'
    parts.append(f'<text x="9" y="{height}" text-anchor="middle" {turned}>{escape(visible(y_name))}</text>')
    label = escape(visible(f"{y_name} by {x_name}. {description}"))
    box = f"0 0 {LEFT + SIDE + 12} {bottom + 32}"
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
