"""A group of cells as sentences: its finding, and the findings that mirror it.

Because an attribute's φ sum to 0, a value that does badly makes its others look good. So a group is one finding: the
lead is the finding with the largest |φ|, the others are folded beneath it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from c2b_ray.audits.c2b.report.method import ACCURACY, DerivedValues, metric_named, shown, titled
from c2b_ray.audits.c2b.report.ranking import Cell, Group, on_one_caption
from c2b_ray.report import blocks, words
from c2b_ray.report.blocks import FoundRow
from c2b_ray.report.words import Sentence, Span
from c2b_ray.stats import wilson_interval

SIGNS = {"against": "▼", "for": "▲", "none": "●", "undetermined": "◇"}
NAMES = {"against": "against", "for": "for", "none": "clear", "undetermined": "undetermined"}
ADVERBS = {"against": "less well", "for": "better"}
_LEVELS = {"against": "lower", "for": "higher"}
"""The adverbs, of another metric than accuracy."""
_OPPOSITE = {"against": "better", "for": "less well"}
BASES = {"captions": "on unverified captions", "verifier": "on the verifier’s word"}
"""Caveats for cells whose evidence is weaker than labels or a calibrated verifier."""
ONE_CAPTION = "on one caption"
"""For cells whose difference may be their caption's: no interval holds how much captions differ."""

_PAPER = {1: f"{SIGNS['for']}{words.FIXED}for", -1: f"{SIGNS['against']}{words.FIXED}against", 0: "no bias"}


def sign_of(verdict: str) -> Sentence:
    """Returns a verdict's sign, and its name for those who do not see it."""
    return Span(SIGNS[verdict], style=f"sign verdict {verdict}"), Span(NAMES[verdict], style="unseen")


def key_of(verdict: str) -> Span:
    """Returns a verdict's sign and name, for a legend."""
    return Span(f"{SIGNS[verdict]}{words.FIXED}{NAMES[verdict]}", style=f"verdict {verdict}")


def paper_cell(cell: Cell) -> blocks.Cell:
    """Returns the paper's verdict on a cell, marked where it is another than ours."""
    word = _PAPER[cell.paper_verdict]
    differs = (Span(f"{word} "), Span("≠", style="differs", title="the two rules disagree"))
    return blocks.Cell(differs if cell.disagrees else word, style="paper")


def value_cell(attribute: str, value: str) -> blocks.Cell:
    """Returns an attribute and its value, for a row of a table."""
    return blocks.Cell((Span(f"{attribute}: "), Span(value, strong=True)))


def found_row(
    group: Group,
    classifier: str,
    confidence: float,
    link: str,
    similar: Sequence[Group] = (),
    derived: DerivedValues | None = None,
) -> FoundRow | None:
    """Returns the finding of a group, with its classifier named `classifier`; None where nothing was found.

    Beneath it: what the class is taken for, and what `beneath` returns. `link`: the id of its details.
    """
    lead = group.lead
    if lead is None:
        return None
    return FoundRow(
        lead.verdict,
        SIGNS[lead.verdict],
        sentence(group, lead, classifier, confidence),
        (*filter(None, [mistaken(lead)]), *beneath(group, lead, similar, derived)),
        link,
        {"class": lead.target_class, "attribute": lead.attribute, "verdict": lead.verdict},
    )


def beneath(
    group: Group, lead: Cell, similar: Sequence[Group] = (), derived: DerivedValues | None = None
) -> tuple[str, ...]:
    """Returns what a finding's value means, where its attribute was derived, and what else was found: other values of
    the group, and `similar` groups of other attributes, which have the same finding on largely the same images."""
    return (*_explained(lead, derived), *_other_values(group, lead), *_same_images(similar))


def sentence(group: Group, lead: Cell, classifier: str, confidence: float) -> Sentence:
    interval = f"{words.signed(lead.phi_low)} to {words.signed(lead.phi_high)}"
    right = " right" if lead.metric == ACCURACY else ""
    evidence = (
        f": {shown(lead.metric, lead.accuracy)}{right} against {shown(lead.metric, lead.others)} for "
        f"{_others(group, lead)} (φ{words.FIXED}{words.signed(lead.phi)}, {words.percent(confidence)} interval "
        f"{interval}, {words.plural(lead.n, 'image')}{_wanted(lead)}{_caveats(lead)}){_confirmed(lead)}."
    )
    phrases = f"{classifier} recognises {words.article(lead.target_class)}", f" {ADVERBS[lead.verdict]} when "
    if lead.metric != ACCURACY:
        phrases = f"{classifier}: {metric_named(lead.metric)} for ", f" is {_LEVELS[lead.verdict]} when "
    return (
        Span(phrases[0]),
        Span(lead.target_class, strong=True),
        Span(phrases[1]),
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


def brief(lead: Cell) -> str:
    """Returns a finding in a few words."""
    compared = f"{shown(lead.metric, lead.accuracy)} against {shown(lead.metric, lead.others)}"
    if lead.metric != ACCURACY:
        level = f"{titled(lead.metric)} is {_LEVELS[lead.verdict]}"
        return f"{level} when {lead.attribute} is {lead.bias_class}: {compared}"
    return f"{ADVERBS[lead.verdict].capitalize()} when {lead.attribute} is {lead.bias_class}: {compared}"


def mistaken(lead: Cell) -> str:
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
        times_answered = words.count(lead.answered_bias_class)
        line += (
            f" The value’s own name, {lead.bias_class}, was the answer {times_answered} of {words.count(lead.n)} times."
        )
    return line


def _others(group: Group, lead: Cell) -> str:
    other_values = [cell.bias_class for cell in group.cells if cell is not lead and cell.n]
    return other_values[0] if len(other_values) == 1 else "the other values"


def _other_values(group: Group, lead: Cell) -> tuple[str, ...]:
    further = [cell for cell in group.cells if cell.is_finding and cell is not lead]
    further.sort(key=lambda cell: -cell.size)
    same_direction = [cell for cell in further if cell.verdict == lead.verdict]
    # A cell in a group of its own is more than the complement of the lead.
    opposite = [cell for cell in further if cell.verdict != lead.verdict and cell.group != lead.group]
    mirrored = [cell for cell in further if cell.verdict != lead.verdict and cell.group == lead.group]
    lines = []
    if same_direction:
        lines.append(f"Also {ADVERBS[lead.verdict]}: {_named(same_direction)}.")
    if opposite:
        lines.append(f"Also {_OPPOSITE[lead.verdict]}: {_named(opposite)}.")
    if mirrored:
        lines.append(f"Mirrored: {_OPPOSITE[lead.verdict]} with {_named(mirrored)}.")
    return tuple(lines)


def _explained(lead: Cell, derived: DerivedValues | None) -> tuple[str, ...]:
    line = derived.explained(lead.target_class, lead.attribute, lead.bias_class) if derived else ""
    return (line,) if line else ()


def _same_images(groups: Sequence[Group]) -> tuple[str, ...]:
    leads = [group.lead for group in groups if group.lead is not None]
    return tuple(
        f"Says the same: {lead.attribute} is {lead.bias_class} ({words.signed(lead.phi)}), {lead.group_reason}."
        for lead in leads
    )


def _named(cells: list[Cell]) -> str:
    return words.listed([f"{cell.bias_class} ({words.signed(cell.phi)})" for cell in cells])


# Attributes whose values are themselves classes: does the classifier follow the attribute or the class?


def cues(cells: Sequence[Cell], names: Mapping[str, str], confidence: float) -> tuple[str, ...]:
    """Returns a sentence per classifier and attribute with values that are classes; none where there are no such
    answers."""
    conflicts: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.answered_bias_class is not None and cell.target_class.lower() != cell.bias_class.lower():
            conflicts.setdefault((cell.classifier, cell.attribute), []).append(cell)
    sentences = []
    for (classifier, attribute), conflict in conflicts.items():
        followed = sum(cell.correct for cell in conflict)
        misled = sum(cell.answered_bias_class or 0 for cell in conflict)
        if followed + misled:
            sentences.append(_sentence(names[classifier], attribute, followed, misled, confidence))
    return tuple(sentences)


def _sentence(name: str, attribute: str, followed: int, misled: int, confidence: float) -> str:
    low, high = wilson_interval(misled, followed + misled, confidence)
    lead = "drives the answers" if low > 0.5 else "misleads less often than not" if high < 0.5 else "weighs as much"
    return (
        f"{name}: {attribute} {lead}. Where {attribute} and class name different classes and the answer is one of the "
        f"two, {misled} of {followed + misled} answers follow {attribute} "
        f"({words.percent(misled / (followed + misled))}, {words.percent(confidence)} interval "
        f"{words.percent_range(float(low), float(high))}) and {followed} the class."
    )
