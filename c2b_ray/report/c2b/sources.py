"""Agreement of retrieved and generated images on a classifier, as counts and the cells that differ.

Knows rows of `schemas.AGREEMENT` and words; does not know how images were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.report.kit import words
from c2b_ray.steps.agreement import MARGIN
from c2b_ray.steps.draw import GENERATE, RETRIEVE

MOST = 20
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """φ of one source's images."""

    phi: str
    interval: str
    images: str


@dataclass(frozen=True)
class Differing:
    classifier: str
    target_class: str
    attribute: str
    bias_class: str
    retrieved: Side
    generated: Side
    difference: str
    interval: str


@dataclass(frozen=True)
class Sources:
    """`present` tells whether the run drew from two sources; `margin` is the difference up to which two φ count as
    equal."""

    present: bool
    line: str = ""
    differing: tuple[Differing, ...] = ()
    more: int = 0
    margin: str = ""


def sources(table: pa.Table, names: Mapping[str, str], tau: float) -> Sources:
    """Returns the view, largest difference first."""
    rows = table.to_pylist()
    if not rows:
        return Sources(present=False)
    differing = sorted(
        (row for row in rows if row["agreement"] == "different"), key=lambda row: -abs(row["difference"])
    )
    return Sources(
        present=True,
        line=_line(rows),
        differing=tuple(_differing(row, names) for row in differing[:MOST]),
        more=max(len(differing) - MOST, 0),
        margin=words.decimal(MARGIN * tau),
    )


def _line(rows: Sequence[Row]) -> str:
    said = [row["agreement"] for row in rows]
    same, different, left = (said.count(name) for name in ("same", "different", "undetermined"))
    line = (
        f"Of {words.plural(len(rows), 'cell')}, φ of retrieved and of generated images is the same in "
        f"{words.count(same)}, different in {words.count(different)} and undetermined in {words.count(left)}."
    )
    if not different:
        return line
    return (
        f"{line} Where it differs, one source shows more than its captions say: look at both before believing either."
    )


def _differing(row: Row, names: Mapping[str, str]) -> Differing:
    return Differing(
        classifier=names[row["classifier"]],
        target_class=row["target_class"],
        attribute=row["attribute"],
        bias_class=row["bias_class"],
        retrieved=_side(row, RETRIEVE),
        generated=_side(row, GENERATE),
        difference=words.signed(row["difference"]),
        interval=words.signed_range(row["difference_low"], row["difference_high"]),
    )


def _side(row: Row, source: str) -> Side:
    return Side(
        phi=words.signed(row[f"phi_{source}"]),
        interval=words.signed_range(row[f"phi_low_{source}"], row[f"phi_high_{source}"]),
        images=words.plural(row[f"n_{source}"], "image"),
    )
