"""Merged names with their reasons, as rows of words. Knows rows of `schemas.PROPOSALS`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.report.kit import words

MOST = 60
_WHY = {
    "values": "much the same values",
    "spelling": "one word, in two forms",
    "head word": "the same head word, and near in the encoder",
    "language model": "near in the encoder, and the language model says so",
}


@dataclass(frozen=True)
class Merged:
    kind: str
    name: str
    into: str
    why: str
    similarity: str
    classes: str


@dataclass(frozen=True)
class Merges:
    rows: tuple[Merged, ...]
    more: int


def merges(proposals: pa.Table) -> Merges:
    """Returns a row per merge, with the classes that it concerns, commonest first."""
    merges_by_rule: dict[tuple[str, str, str, str], list[tuple[str, float | None]]] = {}
    for row in proposals.to_pylist():
        for merge in row.get("merged") or ():
            into = merge["into"] if merge["kind"] == "attribute" else f"{row['attribute']}: {merge['into']}"
            rule = (merge["kind"], merge["from"], into, merge["rule"])
            merges_by_rule.setdefault(rule, []).append((row["target_class"], merge["similarity"]))
    ordered = sorted(merges_by_rule.items(), key=lambda item: -len(item[1]))
    rows = tuple(
        Merged(kind, name, into, _WHY.get(rule, rule), _similarity(of[0][1]), _classes([name for name, _ in of]))
        for (kind, name, into, rule), of in ordered[:MOST]
    )
    return Merges(rows, max(len(ordered) - MOST, 0))


def _similarity(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _classes(names: Sequence[str]) -> str:
    return words.listed(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
