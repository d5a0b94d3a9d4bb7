"""The tables of `c2b failures`: captions, their draws, the failures of classifiers, and the results."""

from typing import NotRequired, TypedDict

from c2b_ray.tables.rows import Float32, Measured, schema_of, struct_of


class CandidateRow(TypedDict):
    """A caption that may fail."""

    caption_id: str  # hash of label and text
    label: str
    text: str  # the whole prompt that the generator gets
    sentences: list[str]  # the sentences after the baseline prompt, in order
    parent_caption: str | None  # the caption that this one was made from; null for a baseline
    # baseline, cluster (combined sentences), sentence, pair, shorter (a sentence left out), adjective (dropped),
    # language_model, person, file
    origin: str


CANDIDATES = schema_of(CandidateRow)


class ExampleRow(TypedDict):
    """A failure that is kept as an example."""

    seed: int  # of a labelled image, its row
    # The image's name in its source; null for a generated image. Runs of older releases lack it.
    key: str | None
    predicted: str | None  # the likeliest label; null where several are
    top3: list[str]  # likeliest first
    confidence: Float32 | None  # the probability of the likeliest label
    image: bytes  # encoded


EXAMPLE = struct_of(ExampleRow)


class RoundRow(TypedDict):
    """A round of draws of one caption, answered by one classifier."""

    round_id: str  # hash of all that decides the round's numbers
    caption_id: str
    stage: str  # discovery, confirmation
    part: str  # search, test (until decided), measure (a fixed number)
    generator: str
    classifier: str
    first: int  # the number of its first draw, in the caption's own sequence
    draws: int  # images with an answer
    unusable: int  # draws without an image or an answer: black, NaN, an error
    reasons: list[str]  # of unusable draws, each once
    failures: int  # answers that fail by the run's rule, towards any label
    predicted: list[str]  # the predicted labels of the failures
    counts: list[int]  # the number of failures for each of them
    examples: list[ExampleRow]  # the first failures, as many as were requested
    seconds: float  # the duration of the round


ROUNDS = schema_of(RoundRow)


class DescriptionRow(TypedDict):
    """A captioner's description of an image."""

    description_id: str  # hash of captioner, its revision, label and image
    text: str | None  # the captioner's description; null where it is unusable
    error: str | None


DESCRIPTIONS = schema_of(DescriptionRow)


class Outcome(TypedDict):
    """A classifier's answer about an image, or the reason for none."""

    failed: bool | None  # null where there is no answer
    predicted: str | None
    top3: list[str]
    confidence: Float32 | None
    error: str | None


class _AnswerOf(TypedDict):
    answer_id: str  # hash of classifier, label and row
    row: int  # of a labelled image, in its table
    classifier: str


class AnswerRow(_AnswerOf, Outcome):
    """A classifier's answer to a labelled image."""


ANSWERS = schema_of(AnswerRow)


class PictureRow(TypedDict):
    """A labelled image that was decoded."""

    image_id: str  # hash of the table's revision and the row
    row: int  # of a labelled image, in its table
    content: str | None  # hash of the image's bytes; null where there are none
    fingerprint: bytes | None  # `steps.duplicates`, of the decoded picture; null where there is none


PICTURES = schema_of(PictureRow)


class ClusterRow(TypedDict):
    """A cluster of a group's failures, with the sentences that describe it best."""

    members: list[int]  # its images, beginning with the representative one
    sentences: list[str]  # in the order of choice
    scores: list[float]  # of the prompt alone, then after each sentence


class CombinationRow(TypedDict):
    """The clusters of a group's failures, with sentences."""

    combination_id: str  # hash of the models, the prompt, the images and sentences
    clusters: list[ClusterRow]
    error: str | None


COMBINATIONS = schema_of(CombinationRow)


class HypothesisRow(TypedDict):
    """What the images say of a caption: does the classifier fail more often than on the baseline? The step that
    computes the evidence adds it."""

    classifier: str
    generator: str
    rule: str
    label: str
    target: str | None  # null: any failure
    caption: str
    parent_caption: str | None
    stage: str  # discovery, confirmation
    draws: int  # the draws of the rate; their number was fixed in advance
    failures: int  # towards the target, where there is one
    any_failures: int
    rate: Measured
    rate_low: Measured
    rate_high: Measured
    baseline_rate: Measured
    ratio: Measured
    ratio_low: Measured
    ratio_high: Measured
    # 1/e, valid under continuous looking; of clusters one-sided, cluster-robust
    p_value: NotRequired[float | None]
    e_value: NotRequired[float | None]  # null of clusters
    q_value: NotRequired[float | None]  # e-BH over all hypotheses of the run's stage; of clusters BH
    verdict: str  # failure, not_shown, undetermined
    caption_id: str
    origin: str
    baseline_draws: int
    baseline_failures: int
    spent: int  # all draws of this caption in this stage
    doubts: list[str]  # reasons to doubt the finding
    clusters: NotRequired[int | None]  # clusters, such as cameras, that the draws of the rate come from; null without


HYPOTHESES = schema_of(HypothesisRow)


class ReliabilityRow(TypedDict):
    """How often images show what they were generated for."""

    generator: str
    label: str
    attribute: str | None  # null: the label itself (App. B.3); else what the images show of it (Fig. 5b)
    value: str | None
    images: int
    shown: int  # how many show the label, or the value
    parent_shown: int | None  # how many show a label of the same parent; null without a hierarchy
    rate: float | None
    rate_low: float | None
    rate_high: float | None


RELIABILITY = schema_of(ReliabilityRow)


class TransferRow(TypedDict):
    """A finding repeated with another classifier or source of images."""

    caption_id: str
    label: str
    target: str | None
    source: str  # another generator's spec, or an index's path
    classifier: str
    draws: int
    failures: int
    any_failures: int
    baseline_draws: int
    baseline_failures: int
    rates: list[float]  # of each run (Mann-Whitney, Table 6)
    baseline_rates: list[float]
    p_value: float | None  # exact Mann-Whitney


TRANSFERS = schema_of(TransferRow)


class ComparisonRow(TypedDict):
    """A hypothesis of two runs, A and B."""

    label: str
    target: str | None  # null: any failure
    caption: str
    generator: str
    failures_a: int
    draws_a: int
    failures_b: int
    draws_b: int
    rate_a: float | None
    rate_b: float | None
    verdict_a: str | None  # of the run; null where it did not test the caption
    verdict_b: str | None
    difference: float | None  # B minus A; null where only one of the two has draws
    difference_low: float | None
    difference_high: float | None
    ratio: float | None  # B over A
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    q_value: float | None  # over all hypotheses that both runs have
    change: str  # worse, better, undetermined
    doubts: list[str]


FAILURES_COMPARISON = schema_of(ComparisonRow)
