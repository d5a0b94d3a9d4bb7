"""Intersections: cells of two attributes at once, and how their captions are distinguished from those of one attribute.

A pair's captions and draws are in the same tables as the others, with the kind INTERSECTION; its scores are in a
separate table, written by `score_pairs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise

FIELD = "intersections"
ATTRIBUTE, INTERSECTION = "attribute", "intersection"
"""Kinds of captions (`schemas.CAPTIONS`)."""
TIMES = "×"
"""Between the ids of two proposals, and between the names of two attributes."""


class ProposalRow(TypedDict):
    """The columns of `schemas.PROPOSALS` that concern pairs."""

    proposal_id: str
    target_class: str
    attribute: str
    bias_classes: list[str]
    merged_from: list[str]


@dataclass(frozen=True)
class Pair:
    """Two attributes of one class: rows of `schemas.PROPOSALS`."""

    a: ProposalRow
    b: ProposalRow

    @property
    def proposal_id(self) -> str:
        return f"{self.a['proposal_id']}{TIMES}{self.b['proposal_id']}"

    @property
    def target_class(self) -> str:
        return str(self.a["target_class"])

    @property
    def attribute(self) -> str:
        return f"{self.a['attribute']} {TIMES} {self.b['attribute']}"

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.a["bias_classes"]), len(self.b["bias_classes"])

    def as_proposal(self) -> dict[str, str]:
        """Returns the columns of a caption that refer to its proposal."""
        names = ("proposal_id", "target_class", "attribute")
        return {"kind": INTERSECTION, **{name: getattr(self, name) for name in names}}

    def cells(self) -> Iterator[tuple[str, str]]:
        """Yields (value of a, value of b), row by row."""
        for x in self.a["bias_classes"]:
            for y in self.b["bias_classes"]:
                yield x, y


def of_kind(captions: pa.Table, kind: str) -> pa.Table:
    """Returns the captions of single attributes, or of intersections."""
    return captions.filter(pc.equal(captions["kind"], kind))


def bias_class(x: str, y: str) -> str:
    return f"{x}, {y}"


def pairs(proposals: pa.Table, intersections: Sequence[tuple[str, str]]) -> list[Pair]:
    """Returns the pairs of every class that has both attributes, under their names or names that were merged into them.

    Raises ConfigError, which names an attribute that no class has, or a pair of which no class has both.
    """
    of_class: dict[str, dict[str, ProposalRow]] = defaultdict(dict)
    for row in proposals.to_pylist():
        for name in (*row["merged_from"], row["attribute"]):
            of_class[row["target_class"]][normalise(name)] = row
    known = {name for rows in of_class.values() for name in rows}
    result = []
    for a, b in intersections:
        for name in (a, b):
            if normalise(name) not in known:
                raise ConfigError(FIELD, f"no class has an attribute {name!r} to pair; {nearest(name, known)}")
        both = [
            Pair(rows[normalise(a)], rows[normalise(b)])
            for rows in of_class.values()
            if normalise(a) in rows and normalise(b) in rows
        ]
        if not both or any(pair.a is pair.b for pair in both):
            problem = "are one attribute: they were merged" if both else "are not both attributes of any one class"
            raise ConfigError(FIELD, f"{a!r} and {b!r} {problem}")
        result += both
    return result


def of_run(proposals: pa.Table, captions: pa.Table) -> list[Pair]:
    """Returns the pairs that have captions, in the order of the captions."""
    of_pairs = of_kind(captions, INTERSECTION)
    if not of_pairs.num_rows:
        return []
    of_class: dict[str, list[ProposalRow]] = defaultdict(list)
    for row in proposals.filter(pc.is_in(proposals["target_class"], of_pairs["target_class"].unique())).to_pylist():
        of_class[row["target_class"]].append(row)
    all_pairs = (Pair(a, b) for rows in of_class.values() for a, b in permutations(rows, 2))
    by_id = {pair.proposal_id: pair for pair in all_pairs}
    return [by_id[proposal] for proposal in of_pairs["proposal_id"].unique().to_pylist()]
