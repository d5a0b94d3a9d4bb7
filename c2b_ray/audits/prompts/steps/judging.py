"""Prompts that no search has found, and how often the images of any prompt show a value, as a captioner judges them.

People, templates and a language model write such prompts, one of them told the value: rows of the paper's table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import prompts
from c2b_ray.audits.prompts.steps.tasks import NEUTRAL, Target
from c2b_ray.roles import Captioner, ChatRequest, GenerationRequest, ImageGenerator, LanguageModel, Pixels, Question
from c2b_ray.steps.draw import images_of, png
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.prompts import EXAMPLES, JUDGED

BIASED = "image_prompt_biased"
SUBJECT = "{subject}"
TEMPLATES = ("a photo of a {subject}", "a picture of a {subject}", "an image of a {subject}", "a {subject}")
CURATED = (
    "a professional photograph of a {subject}",
    "a candid picture of a {subject} on an ordinary morning",
    "a {subject}, seen from the front",
    "a detailed drawing of a {subject}",
    "an image of one {subject} and nothing else",
    "a {subject} in its usual surroundings",
    "a picture of a {subject} for a magazine",
    "a portrait of a {subject}",
)
_TOKENS = 64


def filled(forms: Sequence[str], subjects: Sequence[str], count: int) -> list[tuple[str, str | None]]:
    """Returns `count` prompts with their subjects: every subject with the first form, then with the next; forms without
    a subject are used as they are."""
    rows: list[tuple[str, str | None]] = []
    for form in forms:
        if SUBJECT not in form:
            rows.append((form, None))
            continue
        rows += [(_with_article(form.replace(SUBJECT, subject), subject), subject) for subject in subjects]
    return list(dict.fromkeys(rows))[:count]


def _with_article(text: str, subject: str) -> str:
    return re.sub(rf"\b([Aa]) (?={re.escape(subject)}\b)", r"\1n ", text) if subject[0].lower() in "aeiou" else text


def written(
    model: LanguageModel, target: Target, subjects: Sequence[str], count: int, biased: bool, seed: int
) -> tuple[list[tuple[str, str | None]], str | None]:
    """Returns `count` prompts of the language model at temperature 1, the subjects in turn, each prompt once if it has
    enough different ones; and where there is none, why not, as far as the model says.

    A reply that was cut short or is empty does not count; there are at most three times as many requests as prompts
    wanted.
    """
    result: dict[str, str] = {}
    why = "its replies are empty"
    for attempt in range(3):
        missing = count - len(result)
        if missing <= 0:
            break
        open_prompts = (
            [(subjects[n % len(subjects)], n) for n in range(count)]
            if attempt == 0
            else [(subjects[n % len(subjects)], attempt * count + n) for n in range(missing)]
        )
        requests = [
            _request(target, subject, biased, seed_of("written", seed, biased, n)) for subject, n in open_prompts
        ]
        for (subject, _), reply in zip(open_prompts, model.chat(requests), strict=True):
            text = " ".join(reply.text.strip().strip('"').split())
            if reply.error is None and text and len(result) < count:
                result.setdefault(text, subject)
            why = reply.error or why
    return list(result.items()), None if result else why


def _request(target: Target, subject: str, biased: bool, seed: int) -> ChatRequest:
    attribute, value = target.words
    slots: dict[str, str] = {"subject": subject, "attribute": attribute, **({"value": value} if biased else {})}
    messages = prompts.messages(BIASED if biased else NEUTRAL, **slots)
    return ChatRequest(messages, temperature=1.0, max_tokens=_TOKENS, seed=seed)


# Measures how often a prompt's images show each value: generated under fresh seeds, judged by a captioner.


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
    rows, start = [], 0
    for order in orders_of:
        size = len(order["seeds"])
        part = slice(start, start + size)
        start += size
        answers_of_order = [answer for name in about.questions for answer in answers[name][part]]
        reason = next((why for why in reasons[part] if why), "the judge gave no answer")
        rows.append(
            {
                **order,
                "generator": about.generator,
                "attributes": list(about.questions),
                "answers": answers_of_order,
                "error": None if any(answers_of_order) else reason,
            }
        )
    return pa.Table.from_pylist(rows, schema=JUDGED)


def _answers(judge_model: Captioner, pixels: Sequence[Pixels | None], question: Question) -> list[str | None]:
    images = [image for image in pixels if image is not None]
    answers = iter(judge_model.answer(images, [question] * len(images)) if images else [])
    return [None if image is None else next(answers).choice for image in pixels]


def pictures(batch: pa.Table, generator: ImageGenerator, name: str) -> pa.Table:
    """Generates pictures of each row's prompt (`seeds`): a table of `tables.prompts.EXAMPLES`."""
    rows = []
    for order in batch.to_pylist():
        requests = [GenerationRequest(order["prompt"], seed) for seed in order["seeds"]]
        images = images_of(generator, requests)
        pngs = [None if image.pixels is None else png(image.pixels) for image in images]
        error = None if any(pngs) else next((image.error for image in images), None)
        rows.append({**order, "generator": name, "pictures": pngs, "error": error})
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
            [np.nan if answer is None else float(answer == value) for answer in answers[name]]
            for name, value in target.items()
        ]
        result: NDArray[np.float64] = np.asarray(columns, np.float64).prod(axis=0)
        return result
