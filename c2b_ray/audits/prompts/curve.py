"""What λ trades: mean frequency against perplexity, as a plot in the page's style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 220, 46, 60, 14, 34


@dataclass(frozen=True)
class Point:
    """`frequency` in [0, 1]; `perplexity` above 0, or None."""

    label: str
    frequency: float
    perplexity: float | None


def curve_svg(points: Sequence[Point], description: str) -> str:
    """An <svg> element: frequency as a line on the left scale, perplexity as diamonds on the right, logarithmic one."""
    step = (WIDTH - LEFT - RIGHT) / max(1, len(points) - 1)
    xs = [LEFT + step * i for i in range(len(points))]
    body = [_text(x, HEIGHT - 12, "middle", point.label) for x, point in zip(xs, points, strict=True)]
    for share in (0.0, 0.5, 1.0):
        y = _y(share)
        body.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(_text(LEFT - 8, y + 4, "end", f"{100 * share:.0f} %"))
    line = " ".join(f"{x:.1f},{_y(point.frequency):.1f}" for x, point in zip(xs, points, strict=True))
    body.append(f'<polyline class="frequency" points="{line}"/>')
    body += [
        f'<circle class="frequency" cx="{x:.1f}" cy="{_y(point.frequency):.1f}" r="4"/>'
        for x, point in zip(xs, points, strict=True)
    ]
    body += _perplexities(xs, points)
    return (
        f'<svg class="curve" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{escape(description, quote=True)}">'
        f"{''.join(body)}</svg>"
    )


def _perplexities(xs: Sequence[float], points: Sequence[Point]) -> list[str]:
    logarithms = [(x, math.log10(p.perplexity)) for x, p in zip(xs, points, strict=True) if p.perplexity]
    if not logarithms:
        return []
    low = math.floor(min(value for _, value in logarithms))
    high = max(low + 1, math.ceil(max(value for _, value in logarithms)))
    body = [
        _text(WIDTH - RIGHT + 10, _y((power - low) / (high - low)) + 4, "start", f"{10**power:g}")
        for power in range(low, high + 1)
    ]
    for x, value in logarithms:
        y = _y((value - low) / (high - low))
        body.append(f'<path class="perplexity" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"/>')
    return body


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
