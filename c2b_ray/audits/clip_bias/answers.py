"""Reads the answers of models that were built on the CLIP models, and joins them with their dataset: the same images
and questions for all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pyarrow as pa

from c2b_ray.audits.clip_bias.captioned import read_results
from c2b_ray.audits.clip_bias.config import Downstream
from c2b_ray.audits.clip_bias.images import Images
from c2b_ray.audits.clip_bias.steps.measure import Attribute
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.stats import Floats, Ints
from c2b_ray.stats.amplification import AmplificationAnswers

# Answers to questions about images: which are right, and which of them bias amplification considers.


BINARY = frozenset({"yes", "no", "true", "false"})
_NUMBER_WORDS = frozenset(
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "none"]
)
_NUMBER = re.compile(r"[-+]?[\d.,:/%]+")


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question about an image: `image` is its number in the dataset, `answer` the truth; both answers normalised."""

    image: int
    answer: str
    prediction: str
    accuracy: float


def answered_question(image: int, answer: str, prediction: str, accuracy: float | None) -> AnsweredQuestion:
    """`accuracy`: as in the table; None: 1 where the two answers are equal except for case and spaces."""
    true, predicted = normalise(answer), normalise(prediction)
    return AnsweredQuestion(image, true, predicted, float(true == predicted) if accuracy is None else accuracy)


def scores_of(questions: Sequence[AnsweredQuestion], images: int) -> tuple[Floats, Floats]:
    """Returns the sum of accuracies and the number of questions of each image, (images,) each."""
    totals, counts = np.zeros(images), np.zeros(images)
    for question in questions:
        totals[question.image] += question.accuracy
        counts[question.image] += 1
    return totals, counts


def open_ended(answer: str) -> bool:
    """Returns whether an answer is neither binary nor a number."""
    return answer not in BINARY and answer not in _NUMBER_WORDS and _NUMBER.fullmatch(answer) is None


def vocabulary(questions: Sequence[AnsweredQuestion], most: int) -> list[str]:
    """Returns the `most` most frequent open-ended true answers, ties in alphabetical order."""
    counts = Counter(question.answer for question in questions if open_ended(question.answer))
    return [answer for answer, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]]


@dataclass(frozen=True)
class Considered:
    """The questions that bias amplification considers, about so many `images`; `words`: the vocabulary."""

    answers: AmplificationAnswers
    words: list[str]
    images: int


def filtered(
    questions: Sequence[AnsweredQuestion],
    attribute: Attribute,
    members: Ints,
    most: int,
    copies: Ints | None = None,
) -> Considered:
    """Returns, as numbers, the questions about `members` with a value of the attribute and a true answer of the
    vocabulary.

    Ramos et al. 2025, section 3.3: samples with answers that are binary, numerical, or outside the 50 most frequent are
    removed. A prediction outside the vocabulary is kept as -1, none of the considered answers. `copies`: for each
    image, the number of the first that is the same picture; the questions about these are as those about one image.
    """
    inside = set(members.tolist())
    in_group = [question for question in questions if question.image in inside and attribute.codes[question.image] >= 0]
    words = vocabulary(in_group, most)
    numbers = {word: number for number, word in enumerate(words)}
    in_vocabulary = [question for question in in_group if question.answer in numbers]
    codes = np.array([attribute.codes[question.image] for question in in_vocabulary], np.int64)
    pictures = [
        (question.image if copies is None else int(copies[question.image]), attribute.codes[question.image])
        for question in in_vocabulary
    ]
    number_of = {picture: number for number, picture in enumerate(dict.fromkeys(pictures))}
    answers = AmplificationAnswers(
        np.array([number_of[picture] for picture in pictures], np.int64),
        codes,
        np.array([numbers[question.answer] for question in in_vocabulary], np.int64),
        np.array([numbers.get(question.prediction, -1) for question in in_vocabulary], np.int64),
        len(attribute.values),
        len(words),
    )
    return Considered(answers, words, len({question.image for question in in_vocabulary}))


def constant(questions: Mapping[str, Sequence[AnsweredQuestion]]) -> dict[str, str]:
    """Returns the models that predict the same answer to every question → that answer."""
    predictions = {
        model: {question.prediction for question in answered_questions}
        for model, answered_questions in questions.items()
    }
    return {model: next(iter(distinct)) for model, distinct in predictions.items() if len(distinct) == 1}


Item = tuple[str, str]
"""An image, and the question about it; "" for a caption."""


class ResultRow(TypedDict, total=False):
    """A row of a table of results as it is read. Its values may have any type, because users write these tables."""

    image: object
    question: object
    answer: object
    prediction: object
    accuracy: object
    caption: object


Rows = dict[str, dict[Item, ResultRow]]
"""Model → item → its row."""


@dataclass(frozen=True)
class Results:
    """`rows`: all models have the same items. `notes`: what was left out."""

    rows: Rows
    notes: list[str]


def read_vqa(name: str, block: Downstream, images: Images) -> tuple[dict[str, list[AnsweredQuestion]], list[str]]:
    """Returns by model the questions that all models answered, and notes for people. Raises ConfigError as `_joined`
    does."""
    field = f"downstream.{name}.vqa"
    tables = {
        model: read_results(path, f"{field}.{model}", ("image", "question", "answer", "prediction"), ("accuracy",))
        for model, path in (block.vqa or {}).items()
    }
    results = _joined(field, tables, images, True)
    number = {key: i for i, key in enumerate(images.keys)}
    by_model = {
        model: [
            answered_question(
                number[image], _text(row["answer"]), _text(row["prediction"]), _accuracy(row, f"{field}.{model}")
            )
            for (image, _), row in rows.items()
        ]
        for model, rows in results.rows.items()
    }
    return by_model, [*results.notes, *_other_truths(field, results)]


def read_captions(name: str, block: Downstream, images: Images) -> tuple[dict[str, dict[int, str]], list[str]]:
    """Returns by model the captions of the images that all models captioned (number of the image → caption), and notes.

    Raises ConfigError as `_joined` does, or where the dataset has no captions to compare with.
    """
    field = f"downstream.{name}.captions"
    if images.captions is None:
        raise ConfigError(field, f"{images.table.location} has no captions to compare these with; name its `caption`")
    tables = {
        model: read_results(path, f"{field}.{model}", ("image", "caption"))
        for model, path in (block.captions or {}).items()
    }
    results = _joined(field, tables, images, False)
    number = {key: i for i, key in enumerate(images.keys)}
    return {
        model: {number[image]: _text(row["caption"]) for (image, _), row in rows.items()}
        for model, rows in results.rows.items()
    }, results.notes


def _joined(field: str, tables: Mapping[str, pa.Table], images: Images, with_questions: bool) -> Results:
    """Returns the items that all models have, and notes on the others.

    Raises ConfigError for a table that names images which the dataset does not have, or one of them twice, and where
    models have no image in common.
    """
    known_keys, usable = set(images.table.keys), set(images.keys)
    rows: Rows = {}
    for model, table in tables.items():
        read: list[ResultRow] = table.to_pylist()
        items = [((str(row["image"]), _text(row["question"]) if with_questions else ""), row) for row in read]
        _refuse(f"{field}.{model}", [item for item, _ in items], known_keys, images.table.location)
        rows[model] = {item: row for item, row in items if item[0] in usable}
    common = set.intersection(*(set(of_model) for of_model in rows.values()))
    if not common:
        raise ConfigError(field, f"the tables of {', '.join(tables)} have no image in common: nothing compares them")
    notes = []
    for model, of_model in rows.items():
        if left_out := len(of_model) - len(common):
            noun = "questions" if with_questions else "images"
            notes.append(
                f"{field}.{model}: {left_out} of {len(of_model)} {noun} are left out, as other models did not have them"
            )
    order = [item for item in next(iter(rows.values())) if item in common]
    return Results({model: {item: of_model[item] for item in order} for model, of_model in rows.items()}, notes)


def _other_truths(field: str, results: Results) -> list[str]:
    """Returns notes on questions whose true answer differs from the first model's table: such a comparison is
    unfair."""
    (first, rows), *further = results.rows.items()
    notes = []
    for model, of_model in further:
        differ = [item for item, row in of_model.items() if _truth(row) != _truth(rows[item])]
        if differ:
            image, question = differ[0]
            notes.append(
                f"{field}.{model}: {len(differ):,} of {len(of_model):,} questions have another true answer than in the "
                f"table of {first}, such as {question!r} of {image!r}"
            )
    return notes


def _truth(row: ResultRow) -> str:
    return normalise(_text(row["answer"]))


def _refuse(field: str, items: Iterable[Item], known_keys: set[str], dataset: str) -> None:
    counts = Counter(items)
    for image, text in counts:
        if image not in known_keys:
            raise ConfigError(field, f"{dataset} has no image {image!r}; {nearest(image, list(known_keys)[:5000])}")
        if counts[image, text] > 1:
            description = f"the question {text!r} of {image!r}" if text else f"the image {image!r}"
            raise ConfigError(field, f"{description} stands in {counts[image, text]} rows; give it one")


def _accuracy(row: ResultRow, field: str) -> float | None:
    value = row.get("accuracy")
    if value is None or value != value:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(field, f"accuracy {value!r} of {row['image']!r}: expected a number in 0 to 1")
    return number


def _text(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())
