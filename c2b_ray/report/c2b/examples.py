"""Chooses the images that a group shows: a few right and a few wrong ones of the lead cell.

The images nearest to their captions come first, whatever the classifier's confidence, so that the choice does not
flatter the finding. Knows tables and ids; knows nothing of bytes or pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.c2b.ranking import Cell, Group, Key
from c2b_ray.steps.answers import UNDECIDED, answers_of
from c2b_ray.steps.draw import GENERATE

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
    drawn = draws.filter(pc.is_in(draws["caption_id"], pa.array(list(text), pa.string())))
    answered = _answers(predictions, cell.classifier, drawn["image_id"])
    nearest = drawn.sort_by([("rank", "ascending"), ("caption_id", "ascending")])
    kinds: dict[bool, dict[str, Example]] = {True: {}, False: {}}
    for start in range(0, nearest.num_rows, AT_ONCE):  # mostly the first few hold enough of both kinds
        some = nearest.slice(start, AT_ONCE)
        for example in _described(cell, some, answered.filter(pc.is_in(answered["image_id"], some["image_id"])), text):
            chosen = kinds[example.right]
            if len(chosen) < MOST:
                chosen.setdefault(example.image_id, example)
        if min(map(len, kinds.values())) == MOST:
            break
    return Examples(wrong=tuple(kinds[False].values()), right=tuple(kinds[True].values()))


def _described(cell: Cell, drawn: pa.Table, answered: pa.Table, text: Mapping[str, str]) -> Iterator[Example]:
    """Yields an example for each answered draw, in order."""
    answers = {row["image_id"]: row for row in answered.to_pylist()}
    taken = answers_of(answered, cell.classifier).of(cell.target_class)
    for draw in drawn.to_pylist():
        if (name := taken.get(draw["image_id"])) is not None:
            yield _example(draw, answers[draw["image_id"]], text[draw["caption_id"]], name == cell.target_class)


def _answers(predictions: pa.Table, classifier: str, image_ids: pa.ChunkedArray) -> pa.Table:
    wanted = pc.and_(
        pc.and_(pc.equal(predictions["classifier"], classifier), pc.is_in(predictions["image_id"], image_ids)),
        pc.is_null(predictions["error"]),
    )
    return predictions.filter(wanted)


def _example(draw: Mapping[str, Any], answer: Mapping[str, Any], caption: str, right: bool) -> Example:
    predicted, probability = answer["predicted_class"] or "", answer["label_probability"]
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
