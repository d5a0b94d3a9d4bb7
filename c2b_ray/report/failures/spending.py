"""The draws of a run by purpose, beside their expected numbers.

Knows efforts and the manifest; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.report.failures.reach import ratio_sentence, reach_sentence
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

_DROPPED = {
    "names_class": "sentences that name another label, which would ask for images of it",
    "names_label": "that name the label again",
    "too_long": "too long",
    "says_nothing": "that say nothing",
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
    dropped: str = ""
    reach: str = ""


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
        dropped=_dropped(mapping(manifest.get("dropped_sentences"))),
        reach=_reach(mapping(manifest.get("estimate"))),
    )


def _reach(estimate: Mapping[str, Any]) -> str:
    """Returns the likely findings of the budget; empty where the run has no estimate."""
    least_rates = estimate.get("least_rates")
    rows = [mapping(one) for one in least_rates] if isinstance(least_rates, list) else []
    ratio, draws = estimate.get("smallest_ratio"), estimate.get("draws_of_ratio")
    of_ratio = ratio_sentence(ratio, draws if isinstance(draws, int) else None) if isinstance(ratio, float) else ""
    said = filter(None, [reach_sentence(rows), of_ratio])
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in said)


def _dropped(counts: Mapping[str, Any]) -> str:
    """Lists the captioner's sentences that could not be used in captions; empty where all could. Repeated sentences are
    not counted as lost."""
    known = {why: counts.get(reason) for reason, why in _DROPPED.items()}
    parts = [f"{words.count(number)} {why}" for why, number in known.items() if isinstance(number, int)]
    if not parts:
        return ""
    return (
        f"Of what the captioner said of images, some stands in no caption: {words.listed(parts)}. A failure that only "
        "such sentences describe is not found."
    )


def _order(key: tuple[str, str]) -> tuple[int, str]:
    return list(_PARTS).index(key) if key in _PARTS else len(_PARTS), key[1]


def _line(images: int, manifest: Mapping[str, Any]) -> str:
    if mapping(mapping(mapping(manifest.get("config")).get("images")).get("labelled")):
        line = f"{words.plural(images, 'labelled image')} classified; a budget of draws has no part in it."
        return line + _copies(manifest)
    line = f"{words.plural(images, 'image')} drawn"
    budget = mapping(mapping(manifest.get("config")).get("budget")).get("draws")
    if isinstance(budget, int):
        line += f" of a budget of {words.count(budget)}"
    if isinstance(budget, int) and 0 < images < budget and manifest.get("status") == "finished":
        line += f", {words.count(budget - images)} were not drawn, for nothing was left to choose, decide or measure"
    estimate = mapping(manifest.get("estimate"))
    parts = []
    if draws := _limits(estimate.get("draws")):
        parts.append(_between([words.count(int(draws[0])), words.plural(int(draws[1]), "image")]))
    if seconds := _limits(estimate.get("seconds")):
        parts.append(f"{_between([words.duration(one) for one in seconds])} of one process")
    return f"{line}; before the run {words.listed(parts)} were expected." if parts else f"{line}."


def _copies(manifest: Mapping[str, Any]) -> str:
    """Says how many images are the same picture as others, as it is or saved again."""
    known = {name: manifest.get(name) for name in ("copies", "other_copies")}
    copies, others = (number if isinstance(number, int) else 0 for number in known.values())
    said = f" {words.plural(copies, 'copy', 'copies')} of others count for nothing." if copies else ""
    if others:
        said += (
            f" {words.plural(others, 'copy', 'copies')} of others, with other values or another label, count once on "
            "each side of a comparison."
        )
    return said


def _limits(value: Any) -> list[float]:
    """Returns a lower and an upper limit, where the manifest has both."""
    is_pair = isinstance(value, list) and len(value) == 2 and all(isinstance(one, int | float) for one in value)
    return [float(one) for one in value] if is_pair else []


def _between(limits: Sequence[str]) -> str:
    least, most = limits
    return most if most.startswith(least) else f"{least} to {most}"
