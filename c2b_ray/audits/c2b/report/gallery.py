"""The verification of images: the verifier, its reliability, and the cells in doubt, as rows of words.

Knows rows of `tables.SCORES`, `CALIBRATION` and `VERIFICATIONS`; knows nothing of how scores are corrected, nor of
pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.ranking import Cell, Group, Key
from c2b_ray.audits.c2b.verification.verified import LEAST_OF_CLASS, LEAST_SHOWN, LEAST_SKILL
from c2b_ray.report import words
from c2b_ray.report.redact import clean, clean_setting
from c2b_ray.steps.answers import UNDECIDED, answers_of, named_class
from c2b_ray.steps.draw import GENERATE
from c2b_ray.steps.observe import CLASS

MOST_DOUBTS = 20
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Attribute:
    """The verifier's calibration on an attribute, and its results as shares of the cells' images."""

    name: str
    calibrated: str
    middle: str
    lowest: str
    lowest_interval: str
    lowest_cell: str
    repeats: str


@dataclass(frozen=True)
class Doubt:
    """A cell whose images cannot be trusted; `classifiers` is empty where it holds for all."""

    target_class: str
    attribute: str
    bias_class: str
    classifiers: str
    reason: str


@dataclass(frozen=True)
class Shown:
    """`present` tells whether the run verified its images."""

    present: bool
    line: str = ""
    attributes: tuple[Attribute, ...] = ()
    trusted: str = ""
    doubts_line: str = ""
    doubts: tuple[Doubt, ...] = ()
    doubts_more: int = 0
    rule: str = ""


def verification_shown(
    verifications: pa.Table,
    calibration: pa.Table,
    scores: pa.Table,
    models: Mapping[str, Any],
    names: Mapping[str, str],
) -> Shown:
    """Returns the view. `verifications` needs only `image_id` and `error`; `models` are the manifest's."""
    if not verifications.num_rows:
        return Shown(present=False)
    rows = scores.to_pylist()
    attributes = tuple(_attributes(rows, calibration.to_pylist()))
    doubts = _doubts(rows, names)
    return Shown(
        present=True,
        line=_line(verifications, models),
        attributes=attributes,
        trusted=_trusted(calibration),
        doubts_line=_doubts_line(len(doubts)),
        doubts=doubts[:MOST_DOUBTS],
        doubts_more=max(len(doubts) - MOST_DOUBTS, 0),
        rule=(
            f"less than {words.percent(LEAST_OF_CLASS)} of its images show the class, less than "
            f"{words.percent(LEAST_SHOWN)} its value, the verifier hardly tells value or class from the others "
            f"(sensitivity + specificity − 1 below {words.decimal(LEAST_SKILL)}), or the difference is gone among "
            "images alike in another attribute (Mantel and Haenszel’s risk difference)"
        ),
    )


def _line(verifications: pa.Table, models: Mapping[str, Any]) -> str:
    verifier = models.get("verifier")
    spec = verifier.get("spec") if isinstance(verifier, Mapping) else verifier
    name = clean_setting(str(spec)) if spec else "The verifier"
    failed = verifications.filter(pc.is_valid(verifications["error"]))
    looked_at, blind = (pc.count_distinct(table["image_id"]).as_py() for table in (verifications, failed))
    sentence = f"{name} looked at {words.plural(looked_at, 'image')} and said what each shows."
    if not blind:
        return sentence
    reason = words.shortened(clean(failed["error"][0].as_py()), 120)
    return f"{sentence} Of {words.count(blind)} it could not say: {reason}{'' if blind == 1 else ', for example'}."


def _trusted(calibration: pa.Table) -> str:
    """Returns the consequence of a missing calibration; empty where there is one, which the attributes then show."""
    if "table" in calibration["source"].to_pylist():
        return ""
    return "The verifier was not checked on labelled images: its own certainty is taken for its accuracy."


def _attributes(rows: Sequence[Row], calibration: Sequence[Row]) -> Iterator[Attribute]:
    """Yields the class first, where classes were verified, then the attributes in the scores' order."""
    class_rows = [(row["class_shown"], None, None, row["target_class"]) for row in rows if _known(row["class_shown"])]
    if class_rows:
        yield _attribute("the class itself", _calibrated(CLASS, calibration, "taken at its word"), class_rows, "")
    by_attribute: dict[str, list[Row]] = {}
    for row in rows:
        by_attribute.setdefault(row["attribute"], []).append(row)
    for name, of_attribute in by_attribute.items():
        shares = [
            (row["shown"], row["shown_low"], row["shown_high"], f"{row['target_class']}, {row['bias_class']}")
            for row in of_attribute
            if _known(row["shown"])
        ]
        repeats = {(row["target_class"], row["bias_class"]): row["repeats"] or 0 for row in of_attribute}
        calibrated = _calibrated(name, calibration, "by its own certainty")
        yield _attribute(name, calibrated, shares, words.count(sum(repeats.values())))


def _attribute(
    name: str, calibrated: str, shares: Sequence[tuple[float, float | None, float | None, str]], repeats: str
) -> Attribute:
    if not shares:
        return Attribute(name, calibrated, words.UNKNOWN, words.UNKNOWN, "", "", repeats)
    share, low, high, cell = min(shares, key=lambda entry: entry[0])
    interval = "" if low is None or high is None else words.percent_range(low, high)
    middle = words.percent(median(entry[0] for entry in shares))
    return Attribute(name, calibrated, middle, words.percent(share), interval, cell, repeats)


def _calibrated(attribute: str, calibration: Sequence[Row], otherwise: str) -> str:
    calibration_rows = [row for row in calibration if row["attribute"] == attribute and row["source"] == "table"]
    images = sum(row["images"] for row in calibration_rows)
    if not images:
        return f"{otherwise}, not checked"
    right = sum(row["images"] for row in calibration_rows if row["value"] == row["answer"]) / images
    return f"on {words.plural(round(images), 'labelled image')}, {words.percent(right)} right"


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _doubts(rows: Sequence[Row], names: Mapping[str, str]) -> tuple[Doubt, ...]:
    """Returns the doubts in the scores' order, once per cell: classifiers see the same images, so their reasons differ
    only in digits."""
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if row["doubt"]:
            cell = (row["target_class"], row["attribute"], row["bias_class"])
            cells.setdefault(cell, {})[row["classifier"]] = row["doubt"]
    everyone = {row["classifier"] for row in rows}
    return tuple(
        Doubt(
            *cell,
            "" if reasons.keys() == everyone else words.listed([names[spec] for spec in reasons]),
            clean(next(iter(reasons.values()))),
        )
        for cell, reasons in cells.items()
    )


def _doubts_line(number: int) -> str:
    if not number:
        return "No cell is in doubt for what its images show."
    return (
        f"{words.plural(number, 'cell is', 'cells are')} in doubt and left undetermined, whatever was counted: more of "
        "the same images would not help."
    )


# Chooses the images that a group shows: a few right and a few wrong ones of the lead cell.


MOST = 6  # of each kind
AT_ONCE = 512


@dataclass(frozen=True)
class Example:
    """One image of a cell with the classifier's answer."""

    image_id: str
    right: bool
    label: str
    label_probability: float
    predicted_class: str  # empty where the answer lies outside the classes
    caption: str
    retrieved: bool  # by a caption
    generated: bool = False  # from a caption; where neither, labelled by the user


@dataclass(frozen=True)
class Examples:
    wrong: tuple[Example, ...] = ()
    right: tuple[Example, ...] = ()

    @property
    def image_ids(self) -> list[str]:
        return [example.image_id for example in (*self.wrong, *self.right)]


def choose(groups: Iterable[Group], captions: pa.Table, draws: pa.Table, predictions: pa.Table) -> dict[Key, Examples]:
    """Chooses, for the lead cell of each group, up to `MOST` wrong and `MOST` right examples, nearest to their captions
    first."""
    leads = {group.key: group.lead for group in groups}
    return {key: _examples(lead, captions, draws, predictions) for key, lead in leads.items() if lead is not None}


def _examples(cell: Cell, captions: pa.Table, draws: pa.Table, predictions: pa.Table) -> Examples:
    of_cell = captions.filter(
        (pc.field("target_class") == cell.target_class)
        & (pc.field("attribute") == cell.attribute)
        & (pc.field("bias_class") == cell.bias_class)
    )
    text = dict(zip(of_cell["caption_id"].to_pylist(), of_cell["text"].to_pylist(), strict=True))
    draws_of_cell = draws.filter(pc.is_in(draws["caption_id"], pa.array(list(text), pa.string())))
    answered = _answers(predictions, cell.classifier, draws_of_cell["image_id"])
    nearest = draws_of_cell.sort_by([("rank", "ascending"), ("caption_id", "ascending")])
    kinds: dict[bool, dict[str, Example]] = {True: {}, False: {}}
    for start in range(0, nearest.num_rows, AT_ONCE):  # mostly the first few hold enough of both kinds
        chunk = nearest.slice(start, AT_ONCE)
        for example in _described(
            cell, chunk, answered.filter(pc.is_in(answered["image_id"], chunk["image_id"])), text
        ):
            examples_of_kind = kinds[example.right]
            if len(examples_of_kind) < MOST:
                examples_of_kind.setdefault(example.image_id, example)
        if min(map(len, kinds.values())) == MOST:
            break
    return Examples(wrong=tuple(kinds[False].values()), right=tuple(kinds[True].values()))


def _described(cell: Cell, drawn: pa.Table, answered: pa.Table, text: Mapping[str, str]) -> Iterator[Example]:
    """Yields an example for each answered draw, in order."""
    answers = {row["image_id"]: row for row in answered.to_pylist()}
    answer_of_image = answers_of(answered, cell.classifier).of(cell.target_class)
    for draw in drawn.to_pylist():
        if (name := answer_of_image.get(draw["image_id"])) is not None:
            yield _example(draw, answers[draw["image_id"]], text[draw["caption_id"]], name == cell.target_class)


def _answers(predictions: pa.Table, classifier: str, image_ids: pa.ChunkedArray) -> pa.Table:
    is_wanted = pc.and_(
        pc.and_(pc.equal(predictions["classifier"], classifier), pc.is_in(predictions["image_id"], image_ids)),
        pc.is_null(predictions["error"]),
    )
    return predictions.filter(is_wanted)


def _example(draw: Mapping[str, Any], answer: Mapping[str, Any], caption: str, right: bool) -> Example:
    predicted, probability = named_class(answer["predicted_class"]), answer["label_probability"]
    return Example(
        image_id=draw["image_id"],
        right=right,
        label=answer["label"] or predicted or UNDECIDED,
        label_probability=float("nan") if probability is None else probability,
        predicted_class=predicted,
        caption=caption,
        retrieved=draw["similarity"] is not None,
        generated=draw["source"] == GENERATE,
    )
