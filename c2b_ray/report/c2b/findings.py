"""A group of cells as sentences: its finding, and the findings that mirror it.

Because an attribute's φ sum to 0, a value that does badly makes its others look good. So a group is one finding: the
lead is the finding with the largest |φ|, the others are folded beneath it. Knows words, not pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.report.c2b.derived import DerivedValues
from c2b_ray.report.c2b.ranking import Cell, Group, on_one_caption
from c2b_ray.report.kit import words
from c2b_ray.report.kit.sentence import Sentence, Span

SIGNS = {"against": "▼", "for": "▲", "none": "●", "undetermined": "◇"}
NAMES = {"against": "against", "for": "for", "none": "clear", "undetermined": "undetermined"}
ADVERBS = {"against": "less well", "for": "better"}
_OPPOSITE = {"against": "better", "for": "less well"}
BASES = {"captions": "on unverified captions", "verifier": "on the verifier’s word"}
"""Caveats for cells whose evidence is weaker than labels or a calibrated verifier."""
ONE_CAPTION = "on one caption"
"""For cells whose difference may be their caption's: no interval holds how much captions differ."""


@dataclass(frozen=True)
class Finding:
    """A group's lead in a sentence, and in brief; `mistaken` tells what the class is taken for, `beneath` lists the
    other values' findings."""

    link: str
    target_class: str
    attribute: str
    verdict: str
    sign: str
    sentence: Sentence
    brief: str
    mistaken: str
    beneath: tuple[str, ...]


def finding(
    group: Group,
    classifier: str,
    confidence: float,
    link: str,
    alike: Sequence[Group] = (),
    derived: DerivedValues | None = None,
) -> Finding | None:
    """Returns the finding of a group, with its classifier named `classifier`; None where nothing was found.

    `alike`: groups of other attributes with the same finding on largely the same images. `derived`: says what the value
    of a derived attribute means.
    """
    lead = group.lead
    if lead is None:
        return None
    return Finding(
        link=link,
        target_class=lead.target_class,
        attribute=lead.attribute,
        verdict=lead.verdict,
        sign=SIGNS[lead.verdict],
        sentence=sentence(group, lead, classifier, confidence),
        brief=_brief(lead),
        mistaken=_mistaken(lead),
        beneath=(*_explained(lead, derived), *_beneath(group, lead), *_alike(alike)),
    )


def sentence(group: Group, lead: Cell, classifier: str, confidence: float) -> Sentence:
    interval = f"{words.signed(lead.phi_low)} to {words.signed(lead.phi_high)}"
    evidence = (
        f": {words.percent(lead.accuracy)} right against {words.percent(lead.others)} for {_others(group, lead)} "
        f"(φ{words.FIXED}{words.signed(lead.phi)}, {words.percent(confidence)} interval {interval}, "
        f"{words.plural(lead.n, 'image')}{_wanted(lead)}{_caveats(lead)}){_confirmed(lead)}."
    )
    return (
        Span(f"{classifier} recognises {words.article(lead.target_class)}"),
        Span(lead.target_class, strong=True),
        Span(f" {ADVERBS[lead.verdict]} when "),
        Span(f"{lead.attribute} is {lead.bias_class}", strong=True),
        Span(evidence),
    )


def _wanted(lead: Cell) -> str:
    return f" of {words.count(lead.wanted)} asked for" if lead.wanted and lead.wanted > lead.n else ""


def _caveats(lead: Cell) -> str:
    return "".join(f", {caveat}" for caveat in caveats(lead))


def caveats(cell: Cell) -> list[str]:
    """Returns what weakens the evidence of a cell, in a few words each."""
    return caveats_of(cell.basis, cell.captions, cell.caption_spread)


def caveats_of(basis: str | None, captions: int | None, spread: float | None) -> list[str]:
    """Like `caveats`, for the columns `basis`, `captions` and `caption_spread` of any table of scores."""
    of_caption = ONE_CAPTION if on_one_caption(captions, spread) else None
    return [caveat for caveat in (BASES.get(basis or ""), of_caption) if caveat]


def _confirmed(lead: Cell) -> str:
    if math.isnan(lead.phi_confirmed):
        return ""
    interval = words.signed_range(lead.phi_confirmed_low, lead.phi_confirmed_high)
    return f"; on fresh images φ{words.FIXED}{words.signed(lead.phi_confirmed)} ({interval})"


def _brief(lead: Cell) -> str:
    compared = f"{words.percent(lead.accuracy)} against {words.percent(lead.others)}"
    return f"{ADVERBS[lead.verdict].capitalize()} when {lead.attribute} is {lead.bias_class}: {compared}"


def _mistaken(lead: Cell) -> str:
    """Returns what a class with low accuracy is mistaken for; where the value is itself the name of a class, how often
    that class was answered."""
    wrong = lead.n - lead.correct
    if lead.verdict != "against" or not lead.mistaken_for or not wrong:
        return ""
    line = (
        f"Most often taken for {lead.mistaken_for}: {words.count(lead.mistaken)} of {words.count(wrong)} wrong answers."
    )
    if lead.answered_bias_class and lead.bias_class.lower() not in (
        lead.mistaken_for.lower(),
        lead.target_class.lower(),
    ):
        named = words.count(lead.answered_bias_class)
        line += f" The value’s own name, {lead.bias_class}, was the answer {named} of {words.count(lead.n)} times."
    return line


def _others(group: Group, lead: Cell) -> str:
    others = [cell.bias_class for cell in group.cells if cell is not lead and cell.n]
    return others[0] if len(others) == 1 else "the other values"


def _beneath(group: Group, lead: Cell) -> tuple[str, ...]:
    rest = [cell for cell in group.cells if cell.is_finding and cell is not lead]
    rest.sort(key=lambda cell: -cell.size)
    alike = [cell for cell in rest if cell.verdict == lead.verdict]
    # One that stands in a group of its own is more than the lead seen from the other side.
    apart = [cell for cell in rest if cell.verdict != lead.verdict and cell.group != lead.group]
    mirrored = [cell for cell in rest if cell.verdict != lead.verdict and cell.group == lead.group]
    lines = []
    if alike:
        lines.append(f"Also {ADVERBS[lead.verdict]}: {_named(alike)}.")
    if apart:
        lines.append(f"Also {_OPPOSITE[lead.verdict]}: {_named(apart)}.")
    if mirrored:
        lines.append(f"Mirrored: {_OPPOSITE[lead.verdict]} with {_named(mirrored)}.")
    return tuple(lines)


def _explained(lead: Cell, derived: DerivedValues | None) -> tuple[str, ...]:
    line = derived.explained(lead.target_class, lead.attribute, lead.bias_class) if derived else ""
    return (line,) if line else ()


def _alike(groups: Sequence[Group]) -> tuple[str, ...]:
    leads = [group.lead for group in groups if group.lead is not None]
    return tuple(
        f"Says the same: {lead.attribute} is {lead.bias_class} ({words.signed(lead.phi)}), {lead.group_reason}."
        for lead in leads
    )


def _named(cells: list[Cell]) -> str:
    return words.listed([f"{cell.bias_class} ({words.signed(cell.phi)})" for cell in cells])
