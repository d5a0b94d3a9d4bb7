"""Caveats for the reader: what counts as right, and what the images represent.

Knows the config, cells and words; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from c2b_ray.report.c2b.method import right_line
from c2b_ray.report.c2b.ranking import Cell
from c2b_ray.report.kit import words

_BASES = {
    "captions": "are what captions drew, and nobody looked whether they show what the captions say: findings on them "
    "are marked “on unverified captions”, and nothing is called clear",
    "verifier": "were looked at by a verifier whose errors are not known: findings on them are marked “on the "
    "verifier’s word”, and nothing is called clear",
}


def notes(config: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[str, ...]:
    """Returns plain sentences for the head of a page."""
    return (*_of_answers(config, cells), *_of_images(cells))


def _of_answers(config: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    if line := right_line(config):
        yield line
    left = [cell for cell in cells if cell.verdict == "undetermined" and cell.images_to_settle]
    if left:
        yield (
            f"An undetermined cell holds {_median(cell.n for cell in left)} images and would need about "
            f"{_median(cell.images_to_settle or 0 for cell in left)} to be settled (medians): until then it may be "
            "biased or not."
        )


def _of_images(cells: Sequence[Cell]) -> Iterator[str]:
    for basis, consequence in _BASES.items():
        number = sum(cell.basis == basis for cell in cells)
        if number:
            yield f"The images of {_of(number, len(cells))} {consequence}."
    for line in (one_caption_line(cells), copies_line(cells)):
        if line:
            yield line
    by_name = _by_name(cells)
    varying = [cell for cell in cells if not math.isnan(cell.caption_spread)]
    if varying:
        most = max(varying, key=lambda cell: cell.caption_spread)
        yield (
            "Between the captions of one cell accuracy varies by a standard deviation of "
            f"{words.percent(median(cell.caption_spread for cell in varying))} (median), at most "
            f"{words.percent(most.caption_spread)} ({most.target_class}, {most.attribute}); the intervals contain it."
        )
    short = [cell for cell in by_name.values() if cell.wanted and _held(cell) < cell.wanted]
    if short:
        least = min(short, key=lambda cell: _held(cell) / (cell.wanted or 1))
        yield (
            f"{_of(len(short), len(by_name)).capitalize()} hold fewer distinct images than were asked for, the "
            f"emptiest {words.count(_held(least))} of {words.count(least.wanted or 0)} ({least.target_class}, "
            f"{least.attribute}: {least.bias_class})."
        )


def one_caption_line(cells: Sequence[Cell]) -> str:
    """Returns what verdicts on cells with one caption mean; empty where every cell has several."""
    by_name = _by_name(cells)
    single = sum(cell.captions == 1 for cell in by_name.values())
    if not single:
        return ""
    line = f"In {_of(single, len(by_name))} one caption had to do: what that caption brings along cannot be told from "
    if any(cell.one_caption for cell in by_name.values()):
        return (
            f"{line}what the value does, no interval holds it, and a verdict may be about the caption alone. Give "
            "each cell two captions or more (captions_per_cell)."
        )
    return f"{line}what the value does. Several captions a cell (captions_per_cell) show how much they vary."


def copies_line(cells: Sequence[Cell]) -> str:
    """Returns what it means that most images of a cell are left out as copies; empty where that is so of no cell."""
    by_name = _by_name(cells)
    many = [cell for cell in by_name.values() if cell.repeats > _held(cell)]
    if not many:
        return ""
    most = max(many, key=lambda cell: cell.repeats)
    return (
        f"In {_of(len(many), len(by_name))} most images are left out as near-duplicates of others, which count once; "
        f"in {most.target_class}, {most.attribute}: {most.bias_class} {words.count(most.repeats)} are, and "
        f"{words.count(_held(most))} {'counts' if _held(most) == 1 else 'count'}. Views of one scene, as by a fixed "
        "camera, look like copies too."
    )


def _by_name(cells: Sequence[Cell]) -> dict[tuple[str, str, str], Cell]:
    return {(cell.target_class, cell.attribute, cell.bias_class): cell for cell in cells}


def _median(numbers: Iterable[int]) -> str:
    return words.count(round(median(numbers)))


def _held(cell: Cell) -> int:
    return cell.n + cell.errors


def _of(number: int, whole: int) -> str:
    return "all cells" if number == whole else f"{words.count(number)} of {words.plural(whole, 'cell')}"
