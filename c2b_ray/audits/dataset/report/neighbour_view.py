"""Failures beside the reference images nearest to them (Figs. 9 to 11 of Wiles et al. 2022), as pictures on a page.

Knows rows of `schemas.NEIGHBOURS` and encoded images; knows no features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.redact import clean
from c2b_ray.report.thumbnails import WRONG, Gallery, Picture, thumbnail_or_nothing

SIDE = 192


@dataclass(frozen=True)
class FailureWithNeighbours:
    """A failure's bytes, its neighbours (rows of `schemas.NEIGHBOURS`), and the bytes of reference rows by number."""

    image: bytes
    neighbours: Sequence[Mapping[str, Any]]
    pictures: Mapping[int, bytes | None]


@dataclass(frozen=True)
class Failure:
    title: str
    galleries: tuple[Gallery, ...]


def failure_view(shown: FailureWithNeighbours) -> Failure:
    first = shown.neighbours[0]
    label, predicted = first["label"], first["predicted"] or "several labels alike"
    itself = Picture(
        source=thumbnail_or_nothing(shown.image, SIDE),
        key=clean(first["image_id"]),
        alt=f"{words.article(label)}{label}, taken for {predicted}".capitalize(),
        label=f"taken for {predicted}",
        probability="",
        stands_for="",
        caption="",
    )
    galleries = [Gallery("wrong", WRONG, "The failure", (itself,))]
    for among, title in (("all", "Nearest of all"), ("same_label", f"Nearest that show {words.article(label)}{label}")):
        rows = sorted((row for row in shown.neighbours if row["among"] == among), key=lambda row: int(row["rank"]))
        if rows:
            galleries.append(Gallery("right", "", title, tuple(_neighbour(row, shown.pictures) for row in rows)))
    return Failure(f"{label}, taken for {predicted}", tuple(galleries))


def _neighbour(row: Mapping[str, Any], pictures: Mapping[int, bytes | None]) -> Picture:
    data = pictures.get(row["row"])
    label = row["neighbour_label"] or "no label"
    return Picture(
        source="" if data is None else thumbnail_or_nothing(data, SIDE),
        key=clean(row["key"]),
        alt=f"{label}, cosine similarity {row['similarity']:.2f}",
        label=label,
        probability=f"{row['similarity']:.2f}",
        stands_for="",
        caption="",
    )
