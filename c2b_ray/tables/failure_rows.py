"""Rows of the tables of `c2b failures` as Python mappings, for `pa.Table.from_pylist` and from `to_pylist`.

Each has the fields of its Arrow schema in `tables.failures`, which explains them.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ExampleRow(TypedDict):
    """`EXAMPLE`."""

    seed: int
    predicted: str | None
    top3: list[str]
    confidence: float | None
    image: bytes


class RoundRow(TypedDict):
    """`ROUNDS`."""

    round_id: str
    caption_id: str
    stage: str
    part: str
    generator: str
    classifier: str
    first: int
    draws: int
    unusable: int
    reasons: list[str]
    failures: int
    predicted: list[str]
    counts: list[int]
    examples: list[ExampleRow]
    seconds: float


class Outcome(TypedDict):
    """A classifier's answer about an image, or the reason for none."""

    failed: bool | None
    predicted: str | None
    top3: list[str]
    confidence: float | None
    error: str | None


class AnswerRow(Outcome):
    """`ANSWERS`."""

    answer_id: str
    row: int
    classifier: str


class ClusterRow(TypedDict):
    """A cluster of `COMBINATIONS`."""

    members: list[int]
    sentences: list[str]
    scores: list[float]


class CombinationRow(TypedDict):
    """`COMBINATIONS`."""

    combination_id: str
    clusters: list[ClusterRow]
    error: str | None


class HypothesisRow(TypedDict):
    """`HYPOTHESES`. The step that computes the evidence adds it."""

    classifier: str
    generator: str
    rule: str
    label: str
    target: str | None
    caption: str
    parent_caption: str | None
    stage: str
    draws: int
    failures: int
    any_failures: int
    rate: float
    rate_low: float
    rate_high: float
    baseline_rate: float
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: NotRequired[float | None]
    e_value: NotRequired[float | None]
    q_value: NotRequired[float | None]
    verdict: str
    caption_id: str
    origin: str
    baseline_draws: int
    baseline_failures: int
    spent: int
    doubts: list[str]
    clusters: NotRequired[int | None]


class ReliabilityRow(TypedDict):
    """`RELIABILITY`."""

    generator: str
    label: str
    attribute: str | None
    value: str | None
    images: int
    shown: int
    parent_shown: int | None
    rate: float | None
    rate_low: float | None
    rate_high: float | None


class TransferRow(TypedDict):
    """`TRANSFERS`."""

    caption_id: str
    label: str
    target: str | None
    source: str
    classifier: str
    draws: int
    failures: int
    any_failures: int
    baseline_draws: int
    baseline_failures: int
    rates: list[float]
    baseline_rates: list[float]
    p_value: float | None
