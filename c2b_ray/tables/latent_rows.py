"""Rows of the tables of `c2b latent` as Python has them: what `pa.Table.from_pylist` gets and `to_pylist` returns.

The fields of each are those of its Arrow schema in `tables.latent`, which says what they mean.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class JudgedDirection(TypedDict):
    """What the evidence says of a direction; None where there is none."""

    direction: list[float] | None
    cos_bias: float | None
    cos_target: float | None
    delta_cos: float | None
    verdict: str
    effect: float | None
    effect_low: float | None
    effect_high: float | None
    margin: float | None
    p_value: float | None
    random_effect: float | None
    reason: str | None


class DirectionRow(JudgedDirection):
    """`DIRECTIONS`. `q_value` is added when all searches of a run have ended."""

    target: str
    generator: str
    method: str
    problem: str
    classifier: str
    label: str
    biased: str | None
    known: list[str]
    rank: int
    offset: float | None
    q_value: NotRequired[float | None]
    total_variation: float | None
    target_known_by: str
    picked: str | None
    images_used: int
    name: str | None
    direction_id: str


class StripRow(TypedDict):
    """`STRIPS`."""

    direction_id: str
    latent: int
    position: float
    probability: float
    caption: str | None
    image: bytes


class SearchFields(TypedDict):
    """What a search adds to its row of `SEARCHES`."""

    directions: list[DirectionRow]
    strips: list[StripRow]


class ProblemRow(TypedDict):
    """`PROBLEMS`."""

    problem: str
    generator: str | None
    classifier: str | None
    label: str
    target: str | None
    biased: str | None
    known: list[str]
    references: list[str]
    status: str
    reason: str | None
