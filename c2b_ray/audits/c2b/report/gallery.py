"""The images that a page shows of a cell: a few right and a few wrong ones, with their captions and answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.ranking import Cell, Group, Key
from c2b_ray.report import words
from c2b_ray.report.pictures import RIGHT, WRONG, Gallery, Picture, ThumbnailSet
from c2b_ray.report.redact import clean
from c2b_ray.steps.answers import UNDECIDED, answers_of, named_class
from c2b_ray.steps.draw import GENERATE

MOST = 6  # of each kind
AT_ONCE = 512
LONGEST_CAPTION = 110


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


def _described(cell: Cell, draws: pa.Table, answered: pa.Table, text: Mapping[str, str]) -> Iterator[Example]:
    """Yields an example for each answered draw, in order."""
    answers = {row["image_id"]: row for row in answered.to_pylist()}
    answer_of_image = answers_of(answered, cell.classifier).of(cell.target_class)
    for draw in draws.to_pylist():
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


def galleries(
    examples: Examples, counts: tuple[int, int], verdict: str, thumbnail_set: ThumbnailSet, name: str
) -> tuple[Gallery, ...]:
    """The wrong and the right examples of a finding, the most informative first; an empty kind is left out. `counts`:
    of all its wrong and right answers."""
    kinds = (("wrong", WRONG, examples.wrong, counts[0]), ("right", RIGHT, examples.right, counts[1]))
    captions_differ = shared_caption(examples) == ""
    ordered = kinds if verdict == "against" else kinds[::-1]
    return tuple(
        Gallery(
            verdict=kind,
            sign=sign,
            title=f"{kind.capitalize()}: {words.count(len(pictured))} of {words.count(number)}",
            pictures=tuple(_picture(example, thumbnail_set, name, captions_differ) for example in pictured),
        )
        for kind, sign, pictured, number in ordered
        if pictured
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


def _picture(example: Example, thumbnail_set: ThumbnailSet, name: str, with_caption: bool) -> Picture:
    caption = words.shortened(example.caption, LONGEST_CAPTION)
    probability = "" if math.isnan(example.label_probability) else f"{example.label_probability:.2f}"
    probability_text = f" with probability {probability}" if probability else ""
    outcome = "right" if example.right else "wrong"
    return Picture(
        source=thumbnail_set.thumbnails.get(example.image_id, ""),
        key=clean(thumbnail_set.keys.get(example.image_id, "")),
        alt=f"{_origin(example)} “{caption}”. {name} says {example.label}{probability_text}: {outcome}.",
        label=example.label,
        probability=probability,
        stands_for="" if example.label.lower() == example.predicted_class.lower() else example.predicted_class,
        caption=f"{_origin(example)} “{caption}”" if with_caption else "",
    )
