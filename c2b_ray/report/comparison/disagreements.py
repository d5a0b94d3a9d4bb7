"""The images that one of two classifiers got right and the other wrong, of the cells that changed.

Knows rows of `schemas.COMPARISON` and `COMPARISON_POOLED`, ids and pictures; knows nothing of how cells are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import WRONG, Gallery, Picture, Shelf
from c2b_ray.report.kit.pictures import read_pictures
from c2b_ray.report.kit.redact import clean
from c2b_ray.report.kit.thumbnails import thumbnails
from c2b_ray.steps.cells import CellName
from c2b_ray.steps.sides import Disagreement
from c2b_ray.store.c2b_run import C2BRun

MOST_CELLS = 24
MOST_PICTURES = 6  # of each side
MOST_NAMED = 3  # images of a cell, where only names are shown
CHANGED = ("worse", "better")
Answered = tuple[str, str, str]
"""An image's id, its class, and the wrong side's answer."""


@dataclass(frozen=True)
class SideBySide:
    """One changed cell, or one value over all classes, with the images that only one of the two classifiers got
    right."""

    verdict: str
    sign: str
    title: str
    galleries: tuple[Gallery, ...]


def changed_cells(cells: pa.Table, pooled: pa.Table) -> list[CellName]:
    """Returns the cells that changed, and the cells of values that changed over all classes together."""
    values = {(row["attribute"], row["bias_class"]) for row in pooled.to_pylist() if row["change"] in CHANGED}
    return [
        CellName(row["target_class"], row["attribute"], row["bias_class"])
        for row in cells.to_pylist()
        if row["change"] in CHANGED or ((row["attribute"], row["bias_class"]) in values and row["doubt"] is None)
    ]


def image_lines(cells: pa.Table, disagreements: Mapping[CellName, Disagreement], run: C2BRun) -> list[str]:
    """Returns, for each changed cell in the order of the tables, the first images that only the worse side got
    wrong."""
    keys = _keys(run)
    lines = []
    for row in sorted(_by_difference(cells), key=lambda row: CHANGED.index(row["change"])):
        cell = CellName(row["target_class"], row["attribute"], row["bias_class"])
        side, images = (
            ("B", disagreements[cell].only_a) if row["change"] == "worse" else ("A", disagreements[cell].only_b)
        )
        named = ", ".join(clean(keys[image]) for image, _ in images[:MOST_NAMED])
        more = f" and {words.count(len(images) - MOST_NAMED)} more" if len(images) > MOST_NAMED else ""
        lines.append(f"{cell[0]}, {cell[1]}: {cell[2]}: {side} alone is wrong on {named}{more}")
    return lines


def _keys(run: C2BRun) -> dict[str, str]:
    images = run.read("images", ["image_id", "key"])
    return dict(zip(images["image_id"].to_pylist(), images["key"].to_pylist(), strict=True))


def disagreement_pictures(run: C2BRun, disagreements: Mapping[CellName, Disagreement]) -> Shelf:
    """Returns the thumbnails and names of the first images of each cell, which are all that a page shows."""
    ids = [
        image
        for cell in disagreements.values()
        for side in (cell.only_a, cell.only_b)
        for image, _ in side[:MOST_PICTURES]
    ]
    chosen = list(dict.fromkeys(ids))[: 4 * MOST_CELLS * MOST_PICTURES]
    return Shelf(thumbnails(read_pictures(run, chosen)), _keys(run))


def side_by_side(
    cells: pa.Table,
    pooled: pa.Table,
    disagreements: Mapping[CellName, Disagreement],
    names: tuple[str, str],
    shelf: Shelf,
) -> tuple[SideBySide, ...]:
    """Returns the changes: values over all classes first, then cells, largest difference first."""
    sections = []
    for row in _by_difference(pooled):
        title = f"Over all classes, {row['attribute']}: {row['bias_class']}"
        of_value = [cell for cell in disagreements if cell[1:] == (row["attribute"], row["bias_class"])]
        sections.append(_shown(title, row["change"], {cell: disagreements[cell] for cell in of_value}, names, shelf))
    for row in _by_difference(cells):
        cell = CellName(row["target_class"], row["attribute"], row["bias_class"])
        if cell in disagreements:
            title = f"{cell[0]}, {cell[1]}: {cell[2]}"
            sections.append(_shown(title, row["change"], {cell: disagreements[cell]}, names, shelf))
    return tuple(one for one in sections[:MOST_CELLS] if one.galleries)


def _by_difference(table: pa.Table) -> list[dict[str, str]]:
    return sorted((r for r in table.to_pylist() if r["change"] in CHANGED), key=lambda row: -abs(row["difference"]))


def _shown(
    title: str, change: str, cells: Mapping[CellName, Disagreement], names: tuple[str, str], shelf: Shelf
) -> SideBySide:
    only_a = [(image, cell[0], answer) for cell, sides in cells.items() for image, answer in sides.only_a]
    only_b = [(image, cell[0], answer) for cell, sides in cells.items() for image, answer in sides.only_b]
    lost = _gallery(f"A right, B wrong: {words.count(len(only_a))}", _spread(only_a), names[1], shelf)
    won = _gallery(f"B right, A wrong: {words.count(len(only_b))}", _spread(only_b), names[0], shelf)
    worse = change == "worse"
    both = (lost, won) if worse else (won, lost)
    verdict, sign = ("against", "▼") if worse else ("for", "▲")
    return SideBySide(verdict, sign, title, tuple(gallery for gallery in both if gallery.pictures))


def _spread(images: Sequence[Answered]) -> list[Answered]:
    """Returns the first few images, one of each class before a second of any."""
    seen: dict[str, int] = {}
    order = []
    for number, (_, shown, _) in enumerate(images):
        seen[shown] = seen.get(shown, 0) + 1
        order.append((seen[shown], number))
    return [images[number] for _, number in sorted(order)[:MOST_PICTURES]]


def _gallery(title: str, images: Sequence[Answered], name: str, shelf: Shelf) -> Gallery:
    pictures = tuple(
        Picture(
            source=shelf.thumbnails.get(image, ""),
            key=clean(shelf.keys.get(image, "")),
            alt=f"{shown}, which {name} takes for {said}.",
            label=said,
            probability="",
            stands_for="",
            caption="",
        )
        for image, shown, said in images
    )
    # Beneath each picture stands the answer of the side that is wrong, whichever it is.
    return Gallery(verdict="wrong", sign=WRONG, title=title, pictures=pictures)
