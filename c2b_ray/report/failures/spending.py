"""What was drawn, of what for, and what it was expected to take.

Knows efforts and the manifest; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from c2b_ray.report.failures.rows import CONFIRMATION, DISCOVERY
from c2b_ray.report.failures.tallies import Tallies
from c2b_ray.report.kit import words
from c2b_ray.report.kit.method import mapping
from c2b_ray.report.kit.redact import clean

_PARTS = {
    (DISCOVERY, "search"): "to choose captions",
    (DISCOVERY, "sample"): "to know what images that are no failures look like",
    (CONFIRMATION, "test"): "to decide about them",
    (CONFIRMATION, "measure"): "to measure their rates",
}


@dataclass(frozen=True)
class Spent:
    stage: str
    what_for: str
    images: str
    share: str
    unusable: str
    seconds: str


@dataclass(frozen=True)
class Spending:
    line: str
    rows: tuple[Spent, ...]
    reasons: tuple[str, ...]


def spending(tallies: Tallies, manifest: Mapping[str, Any]) -> Spending:
    efforts = dict(sorted(tallies.efforts.items(), key=lambda item: _order(item[0])))
    images = sum(effort.images for effort in efforts.values())
    return Spending(
        line=_line(images, manifest),
        rows=tuple(
            Spent(
                stage=stage,
                what_for=_PARTS.get((stage, part), part),
                images=words.count(effort.images),
                share=f"{100 * effort.images / images if images else 0:.1f}",
                unusable=words.count(effort.unusable),
                seconds=words.duration(effort.seconds),
            )
            for (stage, part), effort in efforts.items()
        ),
        reasons=tuple(dict.fromkeys(clean(reason) for effort in efforts.values() for reason in effort.reasons)),
    )


def _order(key: tuple[str, str]) -> tuple[int, str]:
    return list(_PARTS).index(key) if key in _PARTS else len(_PARTS), key[1]


def _line(images: int, manifest: Mapping[str, Any]) -> str:
    if mapping(mapping(mapping(manifest.get("config")).get("images")).get("labelled")):
        return f"{words.plural(images, 'labelled image')} classified; a budget of draws has no part in it."
    line = f"{words.plural(images, 'image')} drawn"
    budget = mapping(mapping(manifest.get("config")).get("budget")).get("draws")
    if isinstance(budget, int):
        line += f" of a budget of {words.count(budget)}"
    estimate = mapping(manifest.get("estimate"))
    expected, seconds = estimate.get("draws"), estimate.get("seconds")
    told = []
    if isinstance(expected, int):
        told.append(words.plural(expected, "image"))
    if isinstance(seconds, int | float):
        told.append(words.duration(float(seconds)))
    return f"{line}; before the run {words.listed(told)} were expected." if told else f"{line}."
