"""One classifier in a line: its accuracy, the number of cells by verdict, and a bar of the shares.

Knows cells and words; knows nothing of pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.report.c2b.findings import NAMES, SIGNS
from c2b_ray.report.c2b.ranking import Cell
from c2b_ray.report.kit import words

_ORDER = ("against", "for", "undetermined", "none")


@dataclass(frozen=True)
class Segment:
    """A segment of a bar that is 100 wide."""

    verdict: str
    start: str
    width: str


@dataclass(frozen=True)
class Share:
    verdict: str
    sign: str
    name: str
    number: str


@dataclass(frozen=True)
class Summary:
    """One classifier in a line."""

    name: str
    right: str
    shares: tuple[Share, ...]
    bar: tuple[Segment, ...]


def summaries(cells: Sequence[Cell], names: Mapping[str, str]) -> Iterable[Summary]:
    for classifier in dict.fromkeys(cell.classifier for cell in cells):
        of_classifier = [cell for cell in cells if cell.classifier == classifier]
        of = Counter(cell.verdict for cell in of_classifier)
        images, right = sum(cell.n for cell in of_classifier), sum(cell.correct for cell in of_classifier)
        yield Summary(
            name=names[classifier],
            right=words.percent(right / images if images else float("nan")),
            shares=tuple(Share(v, SIGNS[v], NAMES[v], words.count(of[v])) for v in _ORDER),
            bar=tuple(_bar([(verdict, of[verdict] / len(of_classifier)) for verdict in _ORDER])),
        )


def _bar(shares: Sequence[tuple[str, float]]) -> Iterable[Segment]:
    start = 0.0
    for verdict, share in shares:
        if share:
            yield Segment(verdict, f"{100 * start:.2f}", f"{100 * share:.2f}")
        start += share
