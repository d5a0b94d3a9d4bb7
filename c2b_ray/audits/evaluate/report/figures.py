"""The figures of an evaluation's page: biases of one class (Figures 3 to 5), and recall (Figure 6), as SVG texts.

They have the page's style, like the kit's plots. It knows rows of results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from c2b_ray.report import words
from c2b_ray.report.forest import BAND, RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.redact import clean, clean_setting
from c2b_ray.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# The tables of an evaluation's page as grids of cells. It knows results and typography; it computes nothing.


Row = Mapping[str, Any]
TESTED, PAPER = "tested", "paper"
TO_DETECTED, TO_TRUTH = "truth_to_detected", "detected_to_truth"
RULES = {TESTED: "tested", PAPER: "the paper’s rule, |φ| > τ alone"}
THRESHOLD_KINDS = {"set": "the threshold that was set", "calibrated": "the calibrated threshold"}
CASES = ("against", "none", "for")
_DEPTHS = (0.25, 0.5, 0.75)
_NAN = float("nan")


@dataclass(frozen=True)
class Cell:
    """A text, the small text beneath it, and the cell's colour."""

    text: str
    small: str = ""
    style: str = ""


@dataclass(frozen=True)
class Line:
    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Grid:
    title: str
    caption: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]


def number(value: float | None) -> float:
    return _NAN if value is None else value


def share(value: float | None, is_good: bool = True) -> Cell:
    size = number(value)
    if size != size:
        return Cell(words.UNKNOWN, "", "empty")
    return Cell(words.percent(size), "", f"{'for' if is_good else 'against'} d{1 + sum(size >= d for d in _DEPTHS)}")


def signed(value: float | None, low: float | None = None, high: float | None = None) -> Cell:
    size = number(value)
    if size != size:
        return Cell(words.UNKNOWN, "", "empty")
    limits = words.signed_range(number(low), number(high))
    colour = "for" if size >= 0 else "against"
    depth = f"{colour} d{1 + sum(abs(size) >= d for d in _DEPTHS)}" if round(size, 2) else ""
    return Cell(words.signed(size), "" if limits == words.UNKNOWN else limits, depth)


def outcome_grids(rows: Sequence[Row], rule: str, tables: Mapping[str, float]) -> list[Grid]:
    """Builds Tables 1 and 2, one for each threshold."""
    grids = []
    for kind, threshold in tables.items():
        selected = [r for r in rows if r["classifier"] == "" and r["rule"] == rule and r["threshold_kind"] == kind]
        lines = []
        for method in dict.fromkeys(row["method"] for row in selected):
            row_of_direction = {row["direction"]: row for row in selected if row["method"] == method}
            cells = [cell for direction in (TO_DETECTED, TO_TRUTH) for cell in _outcome(row_of_direction[direction])]
            lines.append(Line(clean(method), tuple(cells)))
        if lines:
            head = ("HIT", "FH", "MISS", "HIT − FH", "biases")
            title = f"{THRESHOLD_KINDS[kind].capitalize()}, cosine {threshold:.2f}; {RULES[rule]}"
            caption = (
                "The first five columns start from the ground truth’s biases, the last five from the detected ones"
            )
            grids.append(Grid(title, caption, (*head, *head), tuple(lines)))
    return grids


def _outcome(row: Row) -> tuple[Cell, ...]:
    limits = (row["hit_minus_false"], row["hit_minus_false_low"], row["hit_minus_false_high"])
    count = Cell(words.count(row["biases"]))
    return share(row["hit"]), share(row["false_hit"], False), share(row["miss"], False), signed(*limits), count


def difference_grid(rows: Sequence[Row]) -> Grid:
    pairs = dict.fromkeys((row["method_a"], row["method_b"]) for row in rows)
    column_keys = dict.fromkeys((row["rule"], row["threshold_kind"], row["direction"]) for row in rows)
    short = {TO_DETECTED: "from the truth", TO_TRUTH: "from the detected"}
    lines = []
    for a, b in pairs:
        row_of_column = {
            (r["rule"], r["threshold_kind"], r["direction"]): r
            for r in rows
            if (r["method_a"], r["method_b"]) == (a, b)
        }
        cells = [
            signed(
                row_of_column[w]["difference"], row_of_column[w]["difference_low"], row_of_column[w]["difference_high"]
            )
            for w in column_keys
        ]
        lines.append(Line(f"{clean(a)} − {clean(b)}", tuple(cells)))
    columns = tuple(f"{rule}, {kind}, {short[direction]}" for rule, kind, direction in column_keys)
    return Grid("Differences in HIT − FH", "With intervals over classifiers and classes", columns, tuple(lines))


def agreement_grids(rows: Sequence[Row], rule: str) -> list[Grid]:
    """Builds Tables 3 and 4, and the 3 × 3 table of each method."""
    selected = [row for row in rows if row["rule"] == rule]
    classifiers = list(dict.fromkeys(row["classifier"] for row in selected))
    methods = list(dict.fromkeys(row["method"] for row in selected))
    row_of_cell = {(row["method"], row["classifier"]): row for row in selected}
    lines = []
    for classifier in classifiers:
        cells = [
            Cell(signed(row["agreement"]).text, _of_biased(row)) if row is not None else Cell(words.UNKNOWN)
            for row in (row_of_cell.get((method, classifier)) for method in methods)
        ]
        lines.append(Line(clean_setting(classifier) or "all", tuple(cells)))
    caption = "+1 the same case, −1 opposite directions, 0 else; beneath, of those that either side calls biased"
    title = f"Agreement with pseudo-labels, {RULES[rule]}"
    grids = [Grid(title, caption, tuple(map(clean, methods)), tuple(lines))] if methods else []
    for method in methods:
        row = row_of_cell[method, ""]
        lines = [
            Line(f"detected {a}", tuple(Cell(words.count(row[f"{a}_{b}"]), "", _case(a, b)) for b in CASES))
            for a in CASES
        ]
        columns = tuple(f"pseudo-labels {b}" for b in CASES)
        grids.append(Grid(clean(method), "How often which case met which", columns, tuple(lines)))
    return grids


def _of_biased(row: Row) -> str:
    return f"{words.signed(number(row['agreement_of_biased']))} of the biased"


def _case(a: str, b: str) -> str:
    if a == b:
        return "for d2"
    return "against d3" if "none" not in (a, b) else ""


def threshold_grids(rows: Sequence[Row], many: str) -> list[Grid]:
    """Builds App. C: HIT − FH from the ground truth, as tested."""
    grids = []
    for method in dict.fromkeys(row["method"] for row in rows):
        selected = [
            row
            for row in rows
            if (row["method"], row["rule"], row["direction"], row["many"]) == (method, TESTED, TO_DETECTED, many)
        ]
        taus = sorted({row["tau"] for row in selected})
        row_of_cell = {(row["threshold"], row["tau"]): row for row in selected}
        gains = {key: number(row["hit"]) - number(row["false_hit"]) for key, row in row_of_cell.items()}
        lines = [
            Line(words.decimal(threshold), tuple(signed(gains[threshold, tau]) for tau in taus))
            for threshold in sorted({row["threshold"] for row in selected})
        ]
        caption = "HIT − FH of the ground truth’s biases; a line for each least cosine, a column for each τ"
        grids.append(Grid(clean(method), caption, tuple(f"τ = {words.decimal(tau)}" for tau in taus), tuple(lines)))
    return grids


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
    biased_rows = sorted((row for row in rows if row["attribute"] in biased), key=lambda row: row["score"])
    if len(biased_rows) > MOST_ROWS:
        half = MOST_ROWS // 2
        biased_rows = [*biased_rows[:half], *biased_rows[-half:]]
    nan = float("nan")
    forest_rows = [
        ForestRow(f"{row['attribute']}: {row['value']}", number(row["score"]), nan, nan, VERDICTS[row[TESTED]])
        for row in biased_rows
    ]
    description = "; ".join(f"{row.label} {words.signed(row.value)}" for row in forest_rows)
    forest = Forest(forest_rows, f"φ for {key[2]}, band ±{words.decimal(tau)}: {description}.", ENDS)
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
    for position, (kind, points) in enumerate(means.items()):
        name, colour = KINDS[kind]
        line = " ".join(f"{LEFT + inner * a:.1f},{TOP + height * (1 - r):.1f}" for a, r, _ in points)
        paint = f"var(--mark-{colour})"
        parts.append(f'<polyline points="{line}" fill="none" stroke="{paint}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 8 + 90 * position}" y="{HEIGHT - 2}" fill="{paint}">{escape(name)}</text>')
    curves = (
        f"{KINDS[kind][0]}: " + ", ".join(f"{a:g} → {r:.2f}" for a, r, _ in points) for kind, points in means.items()
    )
    description = escape(visible("recall over A: " + "; ".join(curves)))
    opening = (
        f'<svg class="forest" role="img" aria-label="{description}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-size="11" fill="var(--muted)" xmlns="http://www.w3.org/2000/svg">'
    )
    return opening + "".join(parts) + "</svg>"
