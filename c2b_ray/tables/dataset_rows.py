"""Rows of the tables of a dataset of failures as Python mappings, for `pa.Table.from_pylist`.

Each has the fields of its Arrow schema in `tables.dataset`, which explains them.
"""

from __future__ import annotations

from typing import TypedDict


class AnswerOfRow(TypedDict):
    """`ANSWER`."""

    classifier: str
    revision: str
    predicted: str | None
    top3: list[str]
    probabilities: list[float]
    failed: bool


class DatasetRow(TypedDict):
    """`DATASET_ROWS`."""

    image_id: str
    image: bytes
    label: str
    caption: str
    prompt: str
    seed: int
    generator: str
    generator_revision: str
    classifier: str
    classifier_revision: str
    rule: str
    predicted: str | None
    top3: list[str]
    probabilities: list[float]
    answers: list[AnswerOfRow]
    kept_because: str
    verified: str | None
    fingerprint: int
    caption_number: int
    draw: int


class PlannedRow(TypedDict):
    """`PLANNED`."""

    label: str
    caption: str
    label_number: int
    first: int
    draws: int
    rows: list[int] | None
