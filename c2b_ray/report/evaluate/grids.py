"""The tables of an evaluation's page as grids of cells. It knows results and typography; it computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.report.kit import words
from c2b_ray.report.kit.redact import clean, clean_setting

Row = Mapping[str, Any]
TESTED, PAPER = "tested", "paper"
TO_DETECTED, TO_TRUTH = "truth_to_detected", "detected_to_truth"
RULES = {TESTED: "tested", PAPER: "the paper’s rule, |φ| > τ alone"}
KINDS = {"set": "the threshold that was set", "calibrated": "the calibrated threshold"}
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


def share(value: float | None, good: bool = True) -> Cell:
    size = number(value)
    if size != size:
        return Cell(words.UNKNOWN, "", "empty")
    return Cell(words.percent(size), "", f"{'for' if good else 'against'} d{1 + sum(size >= d for d in _DEPTHS)}")


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
        of = [r for r in rows if r["classifier"] == "" and r["rule"] == rule and r["threshold_kind"] == kind]
        lines = []
        for method in dict.fromkeys(row["method"] for row in of):
            by = {row["direction"]: row for row in of if row["method"] == method}
            cells = [cell for direction in (TO_DETECTED, TO_TRUTH) for cell in _outcome(by[direction])]
            lines.append(Line(clean(method), tuple(cells)))
        if lines:
            head = ("HIT", "FH", "MISS", "HIT − FH", "biases")
            title = f"{KINDS[kind].capitalize()}, cosine {threshold:.2f}; {RULES[rule]}"
            said = "The first five columns start from the ground truth’s biases, the last five from the detected ones"
            grids.append(Grid(title, said, (*head, *head), tuple(lines)))
    return grids


def _outcome(row: Row) -> tuple[Cell, ...]:
    limits = (row["hit_minus_false"], row["hit_minus_false_low"], row["hit_minus_false_high"])
    count = Cell(words.count(row["biases"]))
    return share(row["hit"]), share(row["false_hit"], False), share(row["miss"], False), signed(*limits), count


def difference_grid(rows: Sequence[Row]) -> Grid:
    pairs = dict.fromkeys((row["method_a"], row["method_b"]) for row in rows)
    wanted = dict.fromkeys((row["rule"], row["threshold_kind"], row["direction"]) for row in rows)
    short = {TO_DETECTED: "from the truth", TO_TRUTH: "from the detected"}
    lines = []
    for a, b in pairs:
        by = {
            (r["rule"], r["threshold_kind"], r["direction"]): r
            for r in rows
            if (r["method_a"], r["method_b"]) == (a, b)
        }
        cells = [signed(by[w]["difference"], by[w]["difference_low"], by[w]["difference_high"]) for w in wanted]
        lines.append(Line(f"{clean(a)} − {clean(b)}", tuple(cells)))
    columns = tuple(f"{rule}, {kind}, {short[direction]}" for rule, kind, direction in wanted)
    return Grid("Differences in HIT − FH", "With intervals over classifiers and classes", columns, tuple(lines))


def agreement_grids(rows: Sequence[Row], rule: str) -> list[Grid]:
    """Builds Tables 3 and 4, and the 3 × 3 table of each method."""
    of = [row for row in rows if row["rule"] == rule]
    classifiers = list(dict.fromkeys(row["classifier"] for row in of))
    methods = list(dict.fromkeys(row["method"] for row in of))
    by = {(row["method"], row["classifier"]): row for row in of}
    lines = []
    for classifier in classifiers:
        cells = [
            Cell(signed(row["agreement"]).text, _of_biased(row)) if row is not None else Cell(words.UNKNOWN)
            for row in (by.get((method, classifier)) for method in methods)
        ]
        lines.append(Line(clean_setting(classifier) or "all", tuple(cells)))
    said = "+1 the same case, −1 opposite directions, 0 else; beneath, of those that either side calls biased"
    title = f"Agreement with pseudo-labels, {RULES[rule]}"
    grids = [Grid(title, said, tuple(map(clean, methods)), tuple(lines))] if methods else []
    for method in methods:
        row = by[method, ""]
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
        of = [
            row
            for row in rows
            if (row["method"], row["rule"], row["direction"], row["many"]) == (method, TESTED, TO_DETECTED, many)
        ]
        taus = sorted({row["tau"] for row in of})
        by = {(row["threshold"], row["tau"]): row for row in of}
        gains = {key: number(row["hit"]) - number(row["false_hit"]) for key, row in by.items()}
        lines = [
            Line(words.decimal(threshold), tuple(signed(gains[threshold, tau]) for tau in taus))
            for threshold in sorted({row["threshold"] for row in of})
        ]
        said = "HIT − FH of the ground truth’s biases; a line for each least cosine, a column for each τ"
        grids.append(Grid(clean(method), said, tuple(f"τ = {words.decimal(tau)}" for tau in taus), tuple(lines)))
    return grids
