"""Measures how often a prompt's images show each value: generated under fresh seeds, judged by a captioner.

It knows roles and tables; it does not know the purpose of the prompts, nor the use of the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.roles import Captioner, GenerationRequest, ImageGenerator, Pixels, Question
from c2b_ray.steps.generate import images_of, png
from c2b_ray.tables import content_id
from c2b_ray.tables.prompts import EXAMPLES, JUDGED

ORDERS = pa.schema(
    [
        pa.field("judged_id", pa.string(), nullable=False),
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("seeds", pa.list_(pa.int64()), nullable=False),
    ]
)


@dataclass(frozen=True)
class JudgeModels:
    generator: ImageGenerator
    judge: Captioner


@dataclass(frozen=True)
class ImageQuestions:
    """The questions about every image of one generator. `generator`: its name in tables."""

    generator: str
    questions: Mapping[str, Question]


def judging_tasks(rows: Sequence[tuple[str, Sequence[int]]], identity: str) -> pa.Table:
    """Returns a row for each prompt with its seeds, each once."""
    unique = dict.fromkeys((prompt, tuple(seeds)) for prompt, seeds in rows)
    ids = [content_id("judged", identity, prompt, list(seeds)) for prompt, seeds in unique]
    columns = [ids, [prompt for prompt, _ in unique], [list(seeds) for _, seeds in unique]]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ORDERS, strict=True)], schema=ORDERS
    )


def images_per_order(orders: pa.Table) -> float:
    """Returns the mean number of images per order; 0 without orders."""
    return float(len(pc.list_flatten(orders["seeds"])) / max(1, orders.num_rows))


def judge(batch: pa.Table, models: JudgeModels, about: ImageQuestions) -> pa.Table:
    """Returns the judge's answers about every image of the batch's prompts: a table of `tables.prompts.JUDGED`."""
    orders_of = batch.to_pylist()
    requests = [GenerationRequest(order["prompt"], seed) for order in orders_of for seed in order["seeds"]]
    images = images_of(models.generator, requests)
    pixels, reasons = [image.pixels for image in images], [image.error for image in images]
    answers = {name: _answers(models.judge, pixels, question) for name, question in about.questions.items()}
    rows, at = [], 0
    for order in orders_of:
        size = len(order["seeds"])
        part = slice(at, at + size)
        at += size
        said = [answer for name in about.questions for answer in answers[name][part]]
        reason = next((why for why in reasons[part] if why), "the judge gave no answer")
        rows.append(
            {
                **order,
                "generator": about.generator,
                "attributes": list(about.questions),
                "answers": said,
                "error": None if any(said) else reason,
            }
        )
    return pa.Table.from_pylist(rows, schema=JUDGED)


def _answers(judge_model: Captioner, pixels: Sequence[Pixels | None], question: Question) -> list[str | None]:
    seen = [image for image in pixels if image is not None]
    answers = iter(judge_model.answer(seen, [question] * len(seen)) if seen else [])
    return [None if image is None else next(answers).choice for image in pixels]


def pictures(batch: pa.Table, generator: ImageGenerator, name: str) -> pa.Table:
    """Generates pictures of each row's prompt (`seeds`): a table of `tables.prompts.EXAMPLES`."""
    rows = []
    for order in batch.to_pylist():
        requests = [GenerationRequest(order["prompt"], seed) for seed in order["seeds"]]
        images = images_of(generator, requests)
        shown = [None if image.pixels is None else png(image.pixels) for image in images]
        error = None if any(shown) else next((image.error for image in images), None)
        rows.append({**order, "generator": name, "pictures": shown, "error": error})
    return pa.Table.from_pylist([{field: row[field] for field in EXAMPLES.names} for row in rows], schema=EXAMPLES)


class Frequencies:
    """The judged images, by prompt and seeds."""

    def __init__(self, judged: pa.Table) -> None:
        self._rows: dict[tuple[str, str, tuple[int, ...]], dict[str, list[str | None]]] = {}
        for row in judged.to_pylist():
            size = len(row["seeds"])
            answers = {name: row["answers"][i * size : (i + 1) * size] for i, name in enumerate(row["attributes"])}
            self._rows[row["generator"], row["prompt"], tuple(row["seeds"])] = answers

    def shows(
        self, generator: str, prompt: str, seeds: Sequence[int], target: Mapping[str, str]
    ) -> NDArray[np.float64]:
        """Returns 1 where the image of a seed shows every value of the target, 0 where not, NaN where nothing
        is known."""
        answers = self._rows[generator, prompt, tuple(seeds)]
        columns = [
            [np.nan if said is None else float(said == value) for said in answers[name]]
            for name, value in target.items()
        ]
        result: NDArray[np.float64] = np.asarray(columns, np.float64).prod(axis=0)
        return result
