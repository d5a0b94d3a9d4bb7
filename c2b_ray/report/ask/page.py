"""One HTML page that answers a question to a run: the rates in sentences, and the images with the classifier's answers.

Knows answers, tables of images and predictions, and the report's style sheet; does not know the source of the images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import RIGHT, WRONG, Gallery, Picture, Shelf
from c2b_ray.report.kit.page import render
from c2b_ray.report.kit.redact import clean, names_of
from c2b_ray.report.kit.thumbnails import thumbnails
from c2b_ray.steps.answers import UNDECIDED, answers_of
from c2b_ray.steps.ask import Rate, SentenceAnswer

MOST_PICTURES = 48  # of each kind


@dataclass(frozen=True)
class AnswerView:
    name: str
    right: str
    lines: tuple[str, ...]
    galleries: tuple[Gallery, ...]


@dataclass(frozen=True)
class AnswersView:
    sentence: str
    scale: str
    answers: tuple[AnswerView, ...]
    interval_name: str


def answers_page(view: AnswersView) -> str:
    return render("answers.html.j2", view)


def answers_view(
    sentence: str,
    target_class: str,
    answers: Sequence[SentenceAnswer],
    tables: tuple[pa.Table, pa.Table],
    alpha: float,
    repeats: int = 0,
) -> AnswersView:
    """Returns the text of the page. `tables`: the images with their bytes, and all predictions. `repeats`: images that
    were left out."""
    images, predictions = tables
    pictures = {
        i: data for i, data in zip(*(images[c].to_pylist() for c in ("image_id", "bytes")), strict=True) if data
    }
    keys = dict(zip(*(images[c].to_pylist() for c in ("image_id", "key")), strict=True))
    shelf = Shelf(thumbnails(pictures), keys)
    names = names_of([answer.classifier for answer in answers])
    return AnswersView(
        sentence=clean(sentence),
        scale=" ".join(
            [
                f"{words.plural(images.num_rows, 'image')} of {words.article(target_class)}{target_class}, best first.",
                *left_out(repeats),
            ]
        ),
        answers=tuple(_answer(item, target_class, predictions, shelf, names[item.classifier]) for item in answers),
        interval_name=words.percent(1 - alpha),
    )


def left_out(repeats: int) -> list[str]:
    """Returns a sentence about images of the sentence that were left out; [] if none were."""
    return [f"Left out: {words.plural(repeats, 'near-duplicate')} of other images of the sentence."] if repeats else []


def right_line(rate: Rate) -> str:
    """Returns a line with the number of right answers, the accuracy and its interval."""
    if not rate.n:
        return "No image has an answer."
    return (
        f"{words.count(rate.correct)} of {words.count(rate.n)} right: {words.percent(rate.accuracy)} "
        f"({words.percent_range(rate.low, rate.high)})"
    )


def lines(answer: SentenceAnswer, target_class: str) -> tuple[str, ...]:
    """Returns the known lines of an answer: the class's rate, the difference, the wrong answers, and the unanswered
    images."""
    sentences = []
    if answer.of_class.n:
        sentences.append(
            f"All of the run’s images of {words.article(target_class)}{target_class}: {right_line(answer.of_class)}."
        )
    if answer.difference == answer.difference:
        interval = words.signed_range(answer.difference_low, answer.difference_high)
        sentences.append(
            f"Difference to the {words.count(answer.others.n)} of them not drawn here: "
            f"{words.signed(answer.difference)} ({interval}), p {_p(answer.p_value)}."
        )
    if answer.mistaken_for:
        sentences.append(
            f"Most often taken for {words.listed([f'{name} ({words.count(n)})' for name, n in answer.mistaken_for])}."
        )
    if answer.errors:
        sentences.append(f"{words.plural(answer.errors, 'image')} could not be answered.")
    return tuple(sentences)


def _p(value: float) -> str:
    text = words.small_probability(value)
    return text if text.startswith("<") else f"= {text}"


def _answer(answer: SentenceAnswer, target_class: str, predictions: pa.Table, shelf: Shelf, name: str) -> AnswerView:
    answers_of_classifier = predictions.filter(
        pc.and_(pc.equal(predictions["classifier"], answer.classifier), pc.is_null(predictions["error"]))
    ).to_pylist()
    taken = answers_of(predictions, answer.classifier).of(target_class)
    kinds: dict[bool, list[Mapping[str, Any]]] = {False: [], True: []}
    for row in (row for row in answers_of_classifier if taken[row["image_id"]] is not None):
        kinds[taken[row["image_id"]] == target_class].append(row)
    return AnswerView(
        name=name,
        right=right_line(answer.of_sentence),
        lines=lines(answer, target_class),
        galleries=tuple(_gallery(right, rows, shelf, name) for right, rows in kinds.items() if rows),
    )


def _gallery(right: bool, rows: Sequence[Mapping[str, Any]], shelf: Shelf, name: str) -> Gallery:
    kind, sign = ("right", RIGHT) if right else ("wrong", WRONG)
    chosen = rows[:MOST_PICTURES]
    return Gallery(
        verdict=kind,
        sign=sign,
        title=f"{kind.capitalize()}: {words.count(len(chosen))} of {words.count(len(rows))}",
        pictures=tuple(_picture(row, shelf, name, kind) for row in chosen),
    )


def _picture(row: Mapping[str, Any], shelf: Shelf, name: str, kind: str) -> Picture:
    predicted, probability = row["predicted_class"] or "", row["label_probability"]
    label = row["label"] or predicted or UNDECIDED
    sure = "" if probability is None else f"{probability:.2f}"
    return Picture(
        source=shelf.thumbnails.get(row["image_id"], ""),
        key=clean(shelf.keys.get(row["image_id"], "")),
        alt=f"{name} says {label}{f' with probability {sure}' if sure else ''}: {kind}.",
        label=label,
        probability=sure,
        stands_for="" if label.lower() == predicted.lower() else predicted,
        caption="",
    )
