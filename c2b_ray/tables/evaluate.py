"""Tables of `c2b evaluate`: biases of ground truth and of methods, their matches, and the results.

truth, detected → matches → outcomes → agreement, differences, thresholds
"""

from typing import TypedDict

from c2b_ray.tables.rows import Float32, Int8, Measured, schema_of


class BiasRow(TypedDict):
    """A bias, or a value that has none, of the ground truth or a method."""

    source: str  # truth, or the name of a method
    classifier: str
    target_class: str
    attribute: str
    value: str
    wordings: list[str]  # the texts that are compared, the first is shown
    negated: bool  # the bias is the absence of what the wordings name
    n: int  # images with the value; of a keyword, mistakes
    # Ground truth: accuracy with the value minus that without; a method: φ; B2T: the CLIP score.
    score: float | None
    p_value: float | None
    q_value: float | None
    # Whether the classifier is better (1) or worse (−1) where the value is shown: by |score| > τ alone, and tested.
    paper: Int8
    tested: Int8


BIASES = schema_of(BiasRow)


class MatchRow(TypedDict):
    """A bias of the ground truth beside one of a method whose wording is similar."""

    method: str
    classifier: str
    target_class: str
    truth: str  # "attribute: value"
    truth_wording: str  # the most similar wording
    detected: str
    detected_wording: str
    similarity: float
    rank: int  # of the match among those of this truth, from 1
    truth_paper: Int8  # signs of the wordings' biases
    truth_tested: Int8
    detected_paper: Int8
    detected_tested: Int8


MATCHES = schema_of(MatchRow)


class _Method(TypedDict):
    method: str


class _TwoMethods(TypedDict):
    method_a: str
    method_b: str


class _Setting(TypedDict):
    rule: str  # paper: |score| > τ; tested: and significant
    threshold_kind: str  # set: the config's; calibrated
    threshold: float
    direction: str  # truth_to_detected, detected_to_truth


class OutcomeRow(_Method, _Setting):
    """Whether a bias was found."""

    classifier: str
    target_class: str
    attribute: str
    value: str
    outcome: str  # hit, false_hit, miss


OUTCOMES = schema_of(OutcomeRow)


class AgreementRow(_Method, _Setting):
    """How a method's biases agree with the ground truth."""

    classifier: str  # "" is all of them
    biases: int
    hit: Measured
    false_hit: Measured
    miss: Measured
    hit_minus_false: Measured
    hit_minus_false_low: Measured
    hit_minus_false_high: Measured


AGREEMENT = schema_of(AgreementRow)


class DifferenceRow(_TwoMethods, _Setting):
    """The difference of two methods."""

    difference: float | None  # of HIT − FH
    difference_low: float | None
    difference_high: float | None


DIFFERENCES = schema_of(DifferenceRow)


class ComparisonRow(TypedDict):
    """A method of two runs, A and B."""

    method_a: str
    method_b: str
    rule: str
    threshold_kind: str
    direction: str
    biases_a: int
    biases_b: int
    hit_minus_false_a: float | None  # null where a side has no bias
    hit_minus_false_b: float | None
    difference: float | None  # B minus A
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    change: str  # worse: B's HIT − FH is less; better; undetermined


EVALUATION_COMPARISON = schema_of(ComparisonRow)


class ThresholdRow(TypedDict):
    """A threshold of similarity that was tried."""

    method: str
    rule: str
    direction: str
    tau: float
    threshold: float
    many: str
    biases: int
    hit: float | None
    false_hit: float | None
    miss: float | None


THRESHOLDS = schema_of(ThresholdRow)


class VqaRow(TypedDict):
    """How a method's signs agree with pseudo-labels."""

    method: str
    classifier: str  # "" is all of them
    rule: str
    biases: int
    agreement: float | None
    agreement_of_biased: float | None  # of those that either side calls biased
    # detected against, none, for × pseudo-labels against, none, for
    against_against: int
    against_none: int
    against_for: int
    none_against: int
    none_none: int
    none_for: int
    for_against: int
    for_none: int
    for_for: int


VQA = schema_of(VqaRow)


class RecallRow(TypedDict):
    """How many relevant images a caption retrieves."""

    kind: str  # class, value, both
    target_class: str | None
    attribute: str | None
    value: str | None
    caption: str
    relevant: int  # K
    share: float  # A
    k: int
    recall: float | None  # hits / K
    reachable: float | None  # hits / min(k, K)


RECALL = schema_of(RecallRow)


class RankingRow(TypedDict):
    """An attribute's place by how strongly a classifier depends on it."""

    method: str
    classifier: str
    attribute: str
    rank: int
    classes: int
    strength: float  # mean |φ| over values, then over classes
    strength_low: float | None  # Student's t over classes
    strength_high: float | None
    biased: int  # the number of classes' values that are significantly biased


RANKING = schema_of(RankingRow)


class ShownRow(TypedDict):
    """The share of images that show what they should."""

    method: str
    what: str  # class, value, both
    images: int
    share: float | None
    share_low: float | None
    share_high: float | None


SHOWN = schema_of(ShownRow)


class ProposerRow(TypedDict):
    """What a language model proposed."""

    method: str
    language_model: str | None
    classes: int
    attributes: int
    values: int
    rejected: int
    captions: int
    biased: int
    per_class: float | None  # attributes of a class, on average


PROPOSERS = schema_of(ProposerRow)


class SeenRow(TypedDict):
    """The embedding of an image for a judge of what is shown."""

    look_id: str  # hash of image, label and the model's revision
    image_id: str
    vector: list[Float32] | None
    error: str | None


SEEN = schema_of(SeenRow)


class SaidRow(TypedDict):
    """The caption of an image for a judge of what is shown."""

    look_id: str
    image_id: str
    caption: str | None
    error: str | None


SAID = schema_of(SaidRow)
