"""View of one group: its finding, its forest plot, a row per value, and pictures of the lead cell.

Knows cells, words and thumbnails by id; knows nothing of tables, files or pages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from c2b_ray.report.c2b.derived import DerivedValues
from c2b_ray.report.c2b.examples import Example, Examples
from c2b_ray.report.c2b.findings import NAMES, SIGNS, Finding, caveats
from c2b_ray.report.c2b.ranking import Cell, Group
from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import RIGHT, WRONG, Gallery, Picture, Shelf
from c2b_ray.report.kit.redact import clean

LONGEST_CAPTION = 110
LEAST_CORRECTION = 0.01  # of φ, to be worth reporting
_PAPER = {1: f"{SIGNS['for']}{words.FIXED}for", -1: f"{SIGNS['against']}{words.FIXED}against", 0: "no bias"}


@dataclass(frozen=True)
class ValueRow:
    """A value's numbers as text, empty where there is none. `range`: of a value that was cut from numbers;
    `wanted`: the number of images planned for the cell, where it got fewer; `basis`: the evidence of a finding,
    where it is neither labels nor a calibrated verifier, and where it is one caption's. `verdict` is the term in
    the scores, `verdict_name` the page's; `phi_observed` is empty where the correction for what images show hardly
    changed φ."""

    value: str
    range: str
    lead: bool
    right: str
    images: str
    wanted: str
    errors: str
    accuracy: str
    accuracy_interval: str
    phi: str
    phi_interval: str
    phi_observed: str
    phi_confirmed: str
    q: str
    verdict: str
    verdict_name: str
    sign: str
    basis: str
    because: str
    paper: str
    disagrees: bool


@dataclass(frozen=True)
class GroupView:
    """`forest` is an <svg> element, empty for a group that is shown as a table alone."""

    link: str
    target_class: str
    attribute: str
    finding: Finding
    rows: tuple[ValueRow, ...]
    forest: str
    shared_caption: str
    galleries: tuple[Gallery, ...]


def paper_word(cell: Cell) -> str:
    """The paper's verdict on a cell."""
    return _PAPER[cell.paper_verdict]


def value_rows(group: Group, derived: DerivedValues | None = None) -> tuple[ValueRow, ...]:
    lead = group.lead
    return tuple(_row(cell, cell is lead, derived) for cell in group.cells)


def _row(cell: Cell, lead: bool, derived: DerivedValues | None) -> ValueRow:
    return ValueRow(
        value=cell.bias_class,
        range=derived.range_of(cell.target_class, cell.attribute, cell.bias_class) if derived else "",
        lead=lead,
        right=words.count(cell.correct),
        images=words.count(cell.n),
        wanted=f"{words.count(cell.wanted)} asked for" if cell.wanted and cell.wanted > cell.n else "",
        errors=f"{words.count(cell.errors)} failed" if cell.errors else "",
        accuracy=words.percent(cell.accuracy),
        accuracy_interval=words.percent_range(cell.accuracy_low, cell.accuracy_high),
        phi=words.signed(cell.phi),
        phi_interval=words.signed_range(cell.phi_low, cell.phi_high),
        phi_observed=words.signed(cell.phi_observed) if abs(cell.phi - cell.phi_observed) > LEAST_CORRECTION else "",
        phi_confirmed=""
        if math.isnan(cell.phi_confirmed)
        else f"{words.signed(cell.phi_confirmed)} "
        f"({words.signed_range(cell.phi_confirmed_low, cell.phi_confirmed_high)})",
        q=words.small_probability(cell.q_value),
        verdict=cell.verdict,
        verdict_name=NAMES[cell.verdict],
        sign=SIGNS[cell.verdict],
        basis=", ".join(caveats(cell)) if cell.is_finding else "",
        because=cell.because if cell.verdict == "undetermined" else "",
        paper=paper_word(cell),
        disagrees=cell.disagrees,
    )


def galleries(lead: Cell, examples: Examples, shelf: Shelf, name: str) -> tuple[Gallery, ...]:
    """The wrong and the right examples of a lead cell, the most informative first; an empty kind is left out."""
    both = (
        ("wrong", WRONG, examples.wrong, lead.n - lead.correct),
        ("right", RIGHT, examples.right, lead.correct),
    )
    alone = shared_caption(examples) == ""
    shown = both if lead.verdict == "against" else both[::-1]
    return tuple(
        Gallery(
            verdict=kind,
            sign=sign,
            title=f"{kind.capitalize()}: {words.count(len(chosen))} of {words.count(number)}",
            pictures=tuple(_picture(example, shelf, name, alone) for example in chosen),
        )
        for kind, sign, chosen, number in shown
        if chosen
    )


def shared_caption(examples: Examples) -> str:
    """Returns the caption that all pictures share, or an empty text."""
    captions = {
        (_origin(example), example.caption, example.retrieved) for example in (*examples.wrong, *examples.right)
    }
    if len(captions) != 1:
        return ""
    origin, caption, retrieved = captions.pop()
    return f"{origin} “{words.shortened(caption, LONGEST_CAPTION)}”{', nearest first' if retrieved else ''}"


def _origin(example: Example) -> str:
    return "Retrieved for" if example.retrieved else "Made for" if example.generated else "Labelled"


def _picture(example: Example, shelf: Shelf, name: str, alone: bool) -> Picture:
    caption = words.shortened(example.caption, LONGEST_CAPTION)
    probability = "" if math.isnan(example.label_probability) else f"{example.label_probability:.2f}"
    sure = f" with probability {probability}" if probability else ""
    outcome = "right" if example.right else "wrong"
    return Picture(
        source=shelf.thumbnails.get(example.image_id, ""),
        key=clean(shelf.keys.get(example.image_id, "")),
        alt=f"{_origin(example)} “{caption}”. {name} says {example.label}{sure}: {outcome}.",
        label=example.label,
        probability=probability,
        stands_for="" if example.label.lower() == example.predicted_class.lower() else example.predicted_class,
        caption=f"{_origin(example)} “{caption}”" if alone else "",
    )
