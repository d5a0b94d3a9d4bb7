"""Rows of the tables of `c2b failures` as Python mappings, for `pa.Table.from_pylist` and from `to_pylist`.

Each has the fields of its Arrow schema in `tables.failures`, which explains them.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

import pyarrow as pa


class ExampleRow(TypedDict):
    """`EXAMPLE`."""

    seed: int
    key: str | None
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


# Tables of `c2b failures`: captions, their draws, the failures of classifiers, and the results.


_text, _count = pa.string(), pa.int64()

CANDIDATES = pa.schema(
    [
        pa.field("caption_id", _text, nullable=False),  # hash of label and text
        pa.field("label", _text, nullable=False),
        pa.field("text", _text, nullable=False),  # the whole prompt that the generator gets
        pa.field("sentences", pa.list_(_text), nullable=False),  # the sentences after the baseline prompt, in order
        pa.field("parent_caption", _text),  # the caption that this one was made from; null for a baseline
        # baseline, cluster (combined sentences), sentence, pair, shorter (a sentence left out), adjective (dropped),
        # language_model, person, file
        pa.field("origin", _text, nullable=False),
    ]
)

EXAMPLE = pa.struct(
    [
        pa.field("seed", _count),  # of a labelled image, its row
        # The image's name in its source; null for a generated image. Runs of older releases lack it.
        pa.field("key", _text),
        pa.field("predicted", _text),  # the likeliest label; null where several are
        pa.field("top3", pa.list_(_text)),  # likeliest first
        pa.field("confidence", pa.float32()),  # the probability of the likeliest label
        pa.field("image", pa.binary()),  # encoded
    ]
)

ROUNDS = pa.schema(
    [
        pa.field("round_id", _text, nullable=False),  # hash of all that decides the round's numbers
        pa.field("caption_id", _text, nullable=False),
        pa.field("stage", _text, nullable=False),  # discovery, confirmation
        pa.field("part", _text, nullable=False),  # search, test (until decided), measure (a fixed number)
        pa.field("generator", _text, nullable=False),
        pa.field("classifier", _text, nullable=False),
        pa.field("first", _count, nullable=False),  # the number of its first draw, in the caption's own sequence
        pa.field("draws", _count, nullable=False),  # images with an answer
        pa.field("unusable", _count, nullable=False),  # draws without an image or an answer: black, NaN, an error
        pa.field("reasons", pa.list_(_text), nullable=False),  # of unusable draws, each once
        pa.field("failures", _count, nullable=False),  # answers that fail by the run's rule, towards any label
        pa.field("predicted", pa.list_(_text), nullable=False),  # the predicted labels of the failures
        pa.field("counts", pa.list_(_count), nullable=False),  # the number of failures for each of them
        pa.field("examples", pa.list_(EXAMPLE), nullable=False),  # the first failures, as many as were requested
        pa.field("seconds", pa.float64(), nullable=False),  # the duration of the round
    ]
)

DESCRIPTIONS = pa.schema(
    [
        pa.field("description_id", _text, nullable=False),  # hash of captioner, its revision, label and image
        pa.field("text", _text),  # the captioner's description; null where it is unusable
        pa.field("error", _text),
    ]
)

ANSWERS = pa.schema(
    [
        pa.field("answer_id", _text, nullable=False),  # hash of classifier, label and row
        pa.field("row", _count, nullable=False),  # of a labelled image, in its table
        pa.field("classifier", _text, nullable=False),
        pa.field("failed", pa.bool_()),  # null where there is no answer
        pa.field("predicted", _text),
        pa.field("top3", pa.list_(_text), nullable=False),
        pa.field("confidence", pa.float32()),
        pa.field("error", _text),
    ]
)

PICTURES = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),  # hash of the table's revision and the row
        pa.field("row", _count, nullable=False),  # of a labelled image, in its table
        pa.field("content", _text),  # hash of the image's bytes; null where there are none
        pa.field("fingerprint", pa.binary()),  # `steps.duplicates`, of the decoded picture; null where there is none
    ]
)

COMBINATIONS = pa.schema(
    [
        pa.field("combination_id", _text, nullable=False),  # hash of the models, the prompt, the images and sentences
        # clusters of the group's failures: their images, beginning with the representative one; the sentences that
        # describe them best, in the order of choice; the score of the prompt alone, then after each sentence
        pa.field(
            "clusters",
            pa.list_(
                pa.struct(
                    [
                        pa.field("members", pa.list_(_count)),
                        pa.field("sentences", pa.list_(_text)),
                        pa.field("scores", pa.list_(pa.float64())),
                    ]
                )
            ),
            nullable=False,
        ),
        pa.field("error", _text),
    ]
)

HYPOTHESES = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("generator", _text, nullable=False),
        pa.field("rule", _text, nullable=False),
        pa.field("label", _text, nullable=False),
        pa.field("target", _text),  # null: any failure
        pa.field("caption", _text, nullable=False),
        pa.field("parent_caption", _text),
        pa.field("stage", _text, nullable=False),  # discovery, confirmation
        pa.field("draws", _count, nullable=False),  # the draws of the rate; their number was fixed in advance
        pa.field("failures", _count, nullable=False),  # towards the target, where there is one
        pa.field("any_failures", _count, nullable=False),
        pa.field("rate", pa.float64()),
        pa.field("rate_low", pa.float64()),
        pa.field("rate_high", pa.float64()),
        pa.field("baseline_rate", pa.float64()),
        pa.field("ratio", pa.float64()),
        pa.field("ratio_low", pa.float64()),
        pa.field("ratio_high", pa.float64()),
        # 1/e, valid under continuous looking; of clusters one-sided, cluster-robust
        pa.field("p_value", pa.float64()),
        pa.field("e_value", pa.float64()),  # null of clusters
        pa.field("q_value", pa.float64()),  # e-BH over all hypotheses of the run's stage; of clusters BH
        pa.field("verdict", _text, nullable=False),  # failure, not_shown, undetermined
        pa.field("caption_id", _text, nullable=False),
        pa.field("origin", _text, nullable=False),
        pa.field("baseline_draws", _count, nullable=False),
        pa.field("baseline_failures", _count, nullable=False),
        pa.field("spent", _count, nullable=False),  # all draws of this caption in this stage
        pa.field("doubts", pa.list_(_text), nullable=False),  # reasons to doubt the finding
        pa.field("clusters", _count),  # clusters, such as cameras, that the draws of the rate come from; null without
    ]
)

RELIABILITY = pa.schema(
    [
        pa.field("generator", _text, nullable=False),
        pa.field("label", _text, nullable=False),
        pa.field("attribute", _text),  # null: the label itself (App. B.3); else what the images show of it (Fig. 5b)
        pa.field("value", _text),
        pa.field("images", _count, nullable=False),
        pa.field("shown", _count, nullable=False),  # how many show the label, or the value
        pa.field("parent_shown", _count),  # how many show a label of the same parent; null without a hierarchy
        pa.field("rate", pa.float64()),
        pa.field("rate_low", pa.float64()),
        pa.field("rate_high", pa.float64()),
    ]
)

TRANSFERS = pa.schema(
    [
        pa.field("caption_id", _text, nullable=False),
        pa.field("label", _text, nullable=False),
        pa.field("target", _text),
        pa.field("source", _text, nullable=False),  # another generator's spec, or an index's path
        pa.field("classifier", _text, nullable=False),
        pa.field("draws", _count, nullable=False),
        pa.field("failures", _count, nullable=False),
        pa.field("any_failures", _count, nullable=False),
        pa.field("baseline_draws", _count, nullable=False),
        pa.field("baseline_failures", _count, nullable=False),
        pa.field("rates", pa.list_(pa.float64()), nullable=False),  # of each run (Mann-Whitney, Table 6)
        pa.field("baseline_rates", pa.list_(pa.float64()), nullable=False),
        pa.field("p_value", pa.float64()),  # exact Mann-Whitney
    ]
)

FAILURES_COMPARISON = pa.schema(
    [
        pa.field("label", _text, nullable=False),
        pa.field("target", _text),  # null: any failure
        pa.field("caption", _text, nullable=False),
        pa.field("generator", _text, nullable=False),
        *[pa.field(f"{name}_{side}", _count, nullable=False) for side in "ab" for name in ("failures", "draws")],
        *[pa.field(f"rate_{side}", pa.float64()) for side in "ab"],
        *[pa.field(f"verdict_{side}", _text) for side in "ab"],  # of the run; null where it did not test the caption
        *[
            pa.field(name, pa.float64())
            for name in (
                "difference",  # B minus A; null where only one of the two has draws
                "difference_low",
                "difference_high",
                "ratio",  # B over A
                "ratio_low",
                "ratio_high",
                "p_value",
                "q_value",  # over all hypotheses that both runs have
            )
        ],
        pa.field("change", _text, nullable=False),  # worse, better, undetermined
        pa.field("doubts", pa.list_(_text), nullable=False),
    ]
)
