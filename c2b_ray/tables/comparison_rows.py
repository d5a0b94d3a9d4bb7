"""Rows of the tables that compare two runs as Python has them: what `pa.Table.from_pylist` gets.

The fields of each are those of its Arrow schema in `tables.prompts`, `.clip_bias`, `.evaluate` and `.latent`.
"""

from __future__ import annotations

from typing import TypedDict


class ComparedRow(TypedDict):
    """What the rows of every comparison have, B minus A; None where the two sides cannot be compared."""

    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    change: str


class FindingCompared(ComparedRow):
    """`audits.from_findings.FINDINGS_COMPARISON`."""

    finding: str
    verdict_a: str | None
    verdict_b: str | None
    value_a: float | None
    value_b: float | None
    n_a: int
    n_b: int


class PromptsCompared(ComparedRow):
    """`PROMPTS_COMPARISON`."""

    measure: str
    attribute: str
    value: str
    name: str
    value_a: float | None
    value_b: float | None
    n_a: int
    n_b: int
    verdict_a: str | None
    verdict_b: str | None


class ClipBiasCompared(ComparedRow):
    """`CLIP_BIAS_COMPARISON`."""

    dataset: str
    metric: str
    attribute: str
    view: str
    group: str
    value_a: float | None
    value_b: float | None
    n_a: int
    n_b: int
    paired: bool


class EvaluationCompared(ComparedRow):
    """`EVALUATION_COMPARISON`."""

    method_a: str
    method_b: str
    rule: str
    threshold_kind: str
    direction: str
    biases_a: int
    biases_b: int
    hit_minus_false_a: float | None
    hit_minus_false_b: float | None


class LatentCompared(ComparedRow):
    """`LATENT_COMPARISON`."""

    generator: str
    target: str
    label: str
    method: str
    known: list[str]
    problem_a: str | None
    problem_b: str | None
    rank_a: int | None
    rank_b: int | None
    verdict_a: str | None
    verdict_b: str | None
    name_a: str | None
    name_b: str | None
    effect_a: float | None
    effect_b: float | None
    images_a: int | None
    images_b: int | None
    cosine: float | None
    cosine_by_chance: float | None
    note: str | None
