"""Reads the answers of models that were built on the CLIP models, and joins them with their dataset: the same images
and questions for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict

import pyarrow as pa

from c2b_ray.audits.clip_bias.images import Images
from c2b_ray.config.clip_bias import Downstream
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.steps.clip_bias.answers import AnsweredQuestion, answered_question
from c2b_ray.store.captioned import read_results

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
    number = {key: at for at, key in enumerate(images.keys)}
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
    number = {key: at for at, key in enumerate(images.keys)}
    return {
        model: {number[image]: _text(row["caption"]) for (image, _), row in rows.items()}
        for model, rows in results.rows.items()
    }, results.notes


def _joined(field: str, tables: Mapping[str, pa.Table], images: Images, with_questions: bool) -> Results:
    """Returns the items that all models have, and notes on the others.

    Raises ConfigError for a table that names images which the dataset does not have, or one of them twice, and where
    models have no image in common.
    """
    there, usable = set(images.table.keys), set(images.keys)
    rows: Rows = {}
    for model, table in tables.items():
        read: list[ResultRow] = table.to_pylist()
        items = [((str(row["image"]), _text(row["question"]) if with_questions else ""), row) for row in read]
        _refuse(f"{field}.{model}", [item for item, _ in items], there, images.table.location)
        rows[model] = {item: row for item, row in items if item[0] in usable}
    common = set.intersection(*(set(some) for some in rows.values()))
    if not common:
        raise ConfigError(field, f"the tables of {', '.join(tables)} have no image in common: nothing compares them")
    notes = []
    for model, some in rows.items():
        if lost := len(some) - len(common):
            what = "questions" if with_questions else "images"
            notes.append(
                f"{field}.{model}: {lost} of {len(some)} {what} are left out, as other models did not have them"
            )
    order = [item for item in next(iter(rows.values())) if item in common]
    return Results({model: {item: some[item] for item in order} for model, some in rows.items()}, notes)


def _other_truths(field: str, results: Results) -> list[str]:
    """Returns notes on questions whose true answer differs from the first model's table: such a comparison is
    unfair."""
    (first, rows), *others = results.rows.items()
    notes = []
    for model, some in others:
        differ = [item for item, row in some.items() if _truth(row) != _truth(rows[item])]
        if differ:
            image, question = differ[0]
            notes.append(
                f"{field}.{model}: {len(differ):,} of {len(some):,} questions have another true answer than in the "
                f"table of {first}, such as {question!r} of {image!r}"
            )
    return notes


def _truth(row: ResultRow) -> str:
    return normalise(_text(row["answer"]))


def _refuse(field: str, items: Iterable[Item], there: set[str], dataset: str) -> None:
    counts = Counter(items)
    for image, text in counts:
        if image not in there:
            raise ConfigError(field, f"{dataset} has no image {image!r}; {nearest(image, list(there)[:5000])}")
        if counts[image, text] > 1:
            what = f"the question {text!r} of {image!r}" if text else f"the image {image!r}"
            raise ConfigError(field, f"{what} stands in {counts[image, text]} rows; give it one")


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
