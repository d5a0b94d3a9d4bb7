"""The figures of an evaluation's page: biases of one class (Figures 3 to 5), and recall (Figure 6), as SVG texts.

They have the page's style, like the kit's plots. It knows rows of results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import pyarrow as pa

from c2b_ray.report.evaluate.grids import TESTED, Row, number
from c2b_ray.report.kit import words
from c2b_ray.report.kit.forest import BAND, RULE, Forest, ForestRow, forest_svg
from c2b_ray.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERDICTS = {1: "for", -1: "against", 0: "undetermined"}
ENDS = ("← worse", "better →")
MOST_ROWS = 12
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 400, 220, 40, 34, 10
KINDS = {"class": ("classes", "for"), "value": ("values", "against"), "both": ("both", "undetermined")}


def bias_figure(detected: pa.Table, key: tuple[str, str, str], tau: float, salt: str) -> str:
    """φ of every value of the attributes that a method detects a bias of, for one classifier and class."""
    rows = [
        row
        for row in detected.to_pylist()
        if (row["source"], row["classifier"], row["target_class"]) == key and row["score"] is not None
    ]
    biased = {row["attribute"] for row in rows if row[TESTED]}
    shown = sorted((row for row in rows if row["attribute"] in biased), key=lambda row: row["score"])
    if len(shown) > MOST_ROWS:
        half = MOST_ROWS // 2
        shown = [*shown[:half], *shown[-half:]]
    nan = float("nan")
    forest_rows = [
        ForestRow(f"{row['attribute']}: {row['value']}", number(row["score"]), nan, nan, VERDICTS[row[TESTED]])
        for row in shown
    ]
    said = "; ".join(f"{row.label} {words.signed(row.value)}" for row in forest_rows)
    forest = Forest(forest_rows, f"φ for {key[2]}, band ±{words.decimal(tau)}: {said}.", ENDS)
    return forest_svg(forest, lambda axes: _dress(axes, forest_rows, tau), salt)


def _dress(axes: Axes, rows: Sequence[ForestRow], tau: float) -> None:
    reach = 1.1 * max([abs(row.value) for row in rows] + [2 * tau, 0.02])
    axes.set_xlim(-reach, reach)
    axes.axvspan(-tau, tau, color=BAND, linewidth=0, clip_on=False)
    axes.axvline(0, color=RULE, linewidth=1, clip_on=False)


def recall_means(rows: Sequence[Row]) -> dict[str, list[tuple[float, float, float]]]:
    """Returns by kind (A, mean recall relative to A·K images, mean recall relative to all K), over its captions."""
    sums: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row["relevant"] and row["reachable"] is not None:
            sums[row["kind"], row["share"]].append((row["reachable"], row["recall"]))
    result: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for (kind, share), pairs in sorted(sums.items()):
        result[kind].append((share, sum(p[0] for p in pairs) / len(pairs), sum(p[1] for p in pairs) / len(pairs)))
    return dict(result)


def recall_figure(means: Mapping[str, Sequence[tuple[float, float, float]]]) -> str:
    """Draws Figure 6: recall@A·K, relative to what A·K images can hold, over A."""
    inner, height = WIDTH - LEFT - 14, HEIGHT - TOP - BOTTOM
    parts = []
    for step in range(5):
        y = TOP + height * (1 - step / 4)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 14}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{25 * step}%</text>')
    for share in (0.01, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + inner * share
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{share:g}</text>')
    for at, (kind, points) in enumerate(means.items()):
        name, colour = KINDS[kind]
        line = " ".join(f"{LEFT + inner * a:.1f},{TOP + height * (1 - r):.1f}" for a, r, _ in points)
        paint = f"var(--mark-{colour})"
        parts.append(f'<polyline points="{line}" fill="none" stroke="{paint}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 8 + 90 * at}" y="{HEIGHT - 2}" fill="{paint}">{escape(name)}</text>')
    curves = (
        f"{KINDS[kind][0]}: " + ", ".join(f"{a:g} → {r:.2f}" for a, r, _ in points) for kind, points in means.items()
    )
    said = escape(visible("recall over A: " + "; ".join(curves)))
    opening = (
        f'<svg class="forest" role="img" aria-label="{said}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-size="11" fill="var(--muted)" xmlns="http://www.w3.org/2000/svg">'
    )
    return opening + "".join(parts) + "</svg>"
