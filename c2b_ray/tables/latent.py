"""Tables of `c2b latent`: directions and their strips, the hyperplanes they are judged by, and the problems."""

from typing import Annotated, NotRequired, TypedDict

import pyarrow as pa

from c2b_ray.tables.rows import Int32, schema_of, struct_of


class DirectionRow(TypedDict):
    """A direction, and what the evidence says of it. `q_value` is added when all searches of a run have ended."""

    target: str
    generator: str
    method: str
    direction: list[float] | None  # unit length; towards a higher P(label)
    cos_bias: float | None  # |cos|; null where the biased attribute's hyperplane is not known
    cos_target: float | None
    delta_cos: float | None
    verdict: str  # found, nothing found, undetermined
    problem: str
    classifier: str
    label: str
    biased: str | None
    known: list[str]
    rank: Int32  # 0, 1, … of one problem and method, in the order they were searched in
    offset: float | None
    effect: float | None  # of P(label) from -1 to +1 standard deviation on the best line, the target held fixed
    effect_low: float | None
    effect_high: float | None
    margin: float | None  # what the effect had to exceed
    p_value: float | None
    q_value: NotRequired[float | None]  # of all directions that the method tested in this run
    total_variation: float | None  # mean change of P(label) from step to step of the walk
    random_effect: float | None  # 95 % of random directions orthogonal to the target have a smaller effect
    target_known_by: str  # labels, references, hyperplane, own answers
    picked: str | None  # for a baseline: the chosen one of its directions, and why
    images_used: int  # by this direction's search; the first one includes those of the evidence
    name: str | None  # the captioner's names of its two ends
    reason: str | None
    direction_id: str


# Here and below, columns may all be null: the tables of older runs say so.
DIRECTIONS = pa.schema(struct_of(DirectionRow))


class StripRow(TypedDict):
    """An image on the walk along a direction."""

    direction_id: str
    latent: Int32  # the same latents for every direction of a generator
    position: float  # standard deviations of the prior along the direction
    probability: float
    caption: str | None
    image: bytes


STRIPS = pa.schema(struct_of(StripRow))


class HyperplaneRow(TypedDict):
    """The hyperplane of an attribute."""

    generator: str | None
    attribute: str | None
    normal: list[float] | None
    offset: float | None
    accuracy: float | None  # balanced, on held-out latents
    accuracy_low: float | None
    accuracy_high: float | None
    angle: float | None  # radians; 95 % of hyperplanes trained on as many latents lie within it
    count: int | None
    trained_on: str | None  # labels, references, own answers, given
    excluded: str | None  # why it is excluded; null where it is not


HYPERPLANES = pa.schema(struct_of(HyperplaneRow))


class ProblemRow(TypedDict):
    """A problem: a label, and what is held fixed."""

    problem: str
    generator: str | None
    classifier: str | None
    label: str
    target: str | None
    biased: str | None
    known: list[str]  # of `rest` with `pseudo` the truth too, which directions do not avoid
    references: list[str]
    status: str  # searched, excluded
    reason: str | None  # why it is excluded, or with which reservation it was searched


PROBLEMS = pa.schema(struct_of(ProblemRow))


class ComparisonRow(TypedDict):
    """A direction of two runs, A and B."""

    generator: str
    target: str
    label: str
    method: str
    known: list[str] | None
    problem_a: str | None  # null where that side did not search it
    problem_b: str | None
    rank_a: Int32 | None  # null where no direction of that side matches the other's
    rank_b: Int32 | None
    verdict_a: str | None
    verdict_b: str | None
    name_a: str | None
    name_b: str | None
    effect_a: float | None
    effect_b: float | None
    images_a: int | None
    images_b: int | None
    cosine: float | None  # |cos| of both directions
    cosine_by_chance: float | None  # 95 % of random pairs are below it
    difference: float | None  # of effects, B minus A; null where they cannot be compared
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    change: str  # worse: B moves more; better; undetermined
    note: str | None  # why they cannot be compared, or what replaces a direction


LATENT_COMPARISON = schema_of(ComparisonRow)


class SearchRow(TypedDict):
    """The result of a task: one problem by one method."""

    search_id: str | None
    problem: str | None
    method: str | None
    directions: Annotated[list[DirectionRow], pa.list_(struct_of(DirectionRow, without=("q_value",)))]
    strips: list[StripRow]
    seconds: float | None
    error: str | None


SEARCHES = pa.schema(struct_of(SearchRow))


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


class SearchFields(TypedDict):
    """What a search adds to its row of `SEARCHES`."""

    directions: list[DirectionRow]
    strips: list[StripRow]
