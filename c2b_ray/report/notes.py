"""What a reader must know before believing the numbers: what counts as right, what images stand for.

Knows the config, cells and words; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.method import right_line
from c2b_ray.report.ranking import Cell

_BASES = {
    "captions": "are what captions drew, and nobody looked whether they show what the captions say: findings on them "
    "are marked “on unverified captions”, and nothing is called clear",
    "verifier": "were looked at by a verifier whose errors are not known: findings on them are marked “on the "
    "verifier’s word”, and nothing is called clear",
}


def notes(config: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[str, ...]:
    """Plain sentences, for the head of a page."""
    return tuple(_notes(config, cells))


def _notes(config: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    if line := right_line(config):
        yield line
    for basis, told in _BASES.items():
        number = sum(cell.basis == basis for cell in cells)
        if number:
            yield f"The images of {_of(number, len(cells))} {told}."
    places = {(cell.target_class, cell.attribute, cell.bias_class): cell for cell in cells}
    single = sum(cell.captions == 1 for cell in places.values())
    if single:
        yield (
            f"In {_of(single, len(places))} one caption had to do: what that caption brings along cannot be told from "
            "what the value does. Several captions a cell (captions_per_cell) show how much they vary."
        )
    short = [cell for cell in places.values() if cell.wanted and _held(cell) < cell.wanted]
    if short:
        least = min(short, key=lambda cell: _held(cell) / (cell.wanted or 1))
        yield (
            f"{_of(len(short), len(places)).capitalize()} hold fewer distinct images than were asked for, the emptiest "
            f"{words.count(_held(least))} of {words.count(least.wanted or 0)} ({least.target_class}, "
            f"{least.attribute}: {least.bias_class})."
        )


def _held(cell: Cell) -> int:
    return cell.n + cell.errors


def _of(number: int, whole: int) -> str:
    return "all cells" if number == whole else f"{words.count(number)} of {words.plural(whole, 'cell')}"
