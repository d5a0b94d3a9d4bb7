"""Tables of `c2b latent`: directions and their strips, the hyperplanes they are judged by, and the problems."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import pyarrow as pa

VECTOR = pa.list_(pa.float64())

DIRECTIONS = pa.schema(
    [
        ("target", pa.string()),
        ("generator", pa.string()),
        ("method", pa.string()),
        ("direction", VECTOR),  # unit length; towards a higher P(label)
        ("cos_bias", pa.float64()),  # |cos|; null where the biased attribute's hyperplane is not known
        ("cos_target", pa.float64()),
        ("delta_cos", pa.float64()),
        ("verdict", pa.string()),  # found, nothing found, undetermined
        ("problem", pa.string()),
        ("classifier", pa.string()),
        ("label", pa.string()),
        ("biased", pa.string()),
        ("known", pa.list_(pa.string())),
        ("rank", pa.int32()),  # 0, 1, … of one problem and method, in the order they were searched in
        ("offset", pa.float64()),
        (
            "effect",
            pa.float64(),
        ),  # of P(label) from -1 to +1 standard deviation on the best line, the target held fixed
        ("effect_low", pa.float64()),
        ("effect_high", pa.float64()),
        ("margin", pa.float64()),  # what the effect had to exceed
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),  # of all directions that the method tested in this run
        ("total_variation", pa.float64()),  # mean change of P(label) from step to step of the walk
        ("random_effect", pa.float64()),  # 95 % of random directions orthogonal to the target have a smaller effect
        ("target_known_by", pa.string()),  # labels, references, hyperplane, own answers
        ("picked", pa.string()),  # for a baseline: the chosen one of its directions, and why
        ("images_used", pa.int64()),  # by this direction's search; the first one includes those of the evidence
        ("name", pa.string()),  # the captioner's names of its two ends
        ("reason", pa.string()),
        ("direction_id", pa.string()),
    ]
)

STRIPS = pa.schema(
    [
        ("direction_id", pa.string()),
        ("latent", pa.int32()),  # the same latents for every direction of a generator
        ("position", pa.float64()),  # standard deviations of the prior along the direction
        ("probability", pa.float64()),
        ("caption", pa.string()),
        ("image", pa.binary()),
    ]
)

HYPERPLANES = pa.schema(
    [
        ("generator", pa.string()),
        ("attribute", pa.string()),
        ("normal", VECTOR),
        ("offset", pa.float64()),
        ("accuracy", pa.float64()),  # balanced, on held-out latents
        ("accuracy_low", pa.float64()),
        ("accuracy_high", pa.float64()),
        ("angle", pa.float64()),  # radians; 95 % of hyperplanes trained on as many latents lie within it
        ("count", pa.int64()),
        ("trained_on", pa.string()),  # labels, references, own answers, given
        ("excluded", pa.string()),  # why it is excluded; null where it is not
    ]
)

PROBLEMS = pa.schema(
    [
        ("problem", pa.string()),
        ("generator", pa.string()),
        ("classifier", pa.string()),
        ("label", pa.string()),
        ("target", pa.string()),
        ("biased", pa.string()),
        ("known", pa.list_(pa.string())),  # of `rest` with `pseudo` the truth too, which directions do not avoid
        ("references", pa.list_(pa.string())),
        ("status", pa.string()),  # searched, excluded
        ("reason", pa.string()),  # why it is excluded, or with which reservation it was searched
    ]
)

LATENT_COMPARISON = pa.schema(
    [
        *[pa.field(name, pa.string(), nullable=False) for name in ("generator", "target", "label", "method")],
        ("known", pa.list_(pa.string())),
        *[(f"problem_{side}", pa.string()) for side in "ab"],  # null where that side did not search it
        *[(f"rank_{side}", pa.int32()) for side in "ab"],  # null where no direction of that side matches the other's
        *[(f"verdict_{side}", pa.string()) for side in "ab"],
        *[(f"name_{side}", pa.string()) for side in "ab"],
        *[(f"effect_{side}", pa.float64()) for side in "ab"],
        *[(f"images_{side}", pa.int64()) for side in "ab"],
        ("cosine", pa.float64()),  # |cos| of both directions
        ("cosine_by_chance", pa.float64()),  # 95 % of random pairs are below it
        ("difference", pa.float64()),  # of effects, B minus A; null where they cannot be compared
        ("difference_low", pa.float64()),
        ("difference_high", pa.float64()),
        ("p_value", pa.float64()),
        ("q_value", pa.float64()),
        pa.field("change", pa.string(), nullable=False),  # worse: B moves more; better; undetermined
        ("note", pa.string()),  # why they cannot be compared, or what replaces a direction
    ]
)

_OF_A_SEARCH = [field for field in DIRECTIONS if field.name != "q_value"]
SEARCHES = pa.schema(
    [
        ("search_id", pa.string()),
        ("problem", pa.string()),
        ("method", pa.string()),
        ("directions", pa.list_(pa.struct(_OF_A_SEARCH))),
        ("strips", pa.list_(pa.struct(list(STRIPS)))),
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ]
)
"""The result of a task: one problem by one method."""


# Rows of the tables of `c2b latent` as Python has them: what `pa.Table.from_pylist` gets and `to_pylist` returns.


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
