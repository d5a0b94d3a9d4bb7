"""Tables of `c2b clip-bias`: embeddings, biases of models, and their correlations.

embeddings → biases → rank correlations (local with global, pre-training with downstream), comparisons, gaps
"""

from typing import TypedDict

from c2b_ray.tables.rows import Encoded, Float32, schema_of


class ClipEmbeddingRow(TypedDict):
    """The embedding of an image or text."""

    embedding_id: str  # hash of the model's revision, and of key and bytes, or text
    embedding: list[Float32] | None  # unit norm; null where `error` says why
    error: str | None


CLIP_EMBEDDINGS = schema_of(ClipEmbeddingRow)


class ClipGuessRow(TypedDict):
    """How well a group is guessed from each text."""

    guess_id: str  # hash of guesser, texts, groups, folds and seed
    scores: list[float]  # of each text: confidence where right, else 0
    error: str | None


CLIP_GUESSES = schema_of(ClipGuessRow)


class BiasRow(TypedDict):
    """The bias of a model by one metric."""

    model: str
    dataset: str  # of a downstream metric: its name in the config
    metric: str  # kl_recall@5, max_skew@1000, kl_vqa_accuracy, kl_cider, dba, lic
    attribute: str
    view: str  # global, local
    group: str  # "all" in the global view, else the number of the group, from 1
    value: float  # by the paper's formula; NaN where `note` says why
    value_low: float
    value_high: float
    n: int  # images
    expected: float  # the value that chance alone gives on average
    p_value: float  # the probability of the value by chance alone
    q_value: float  # Benjamini-Hochberg over all rows of the run
    stage: str  # pretraining, downstream
    k: int | None  # of MaxSkew: k after it was limited by the view's size
    rule: str | None  # of MaxSkew and of bias amplification, where there are several
    favoured: str | None  # of MaxSkew: the value that is the most over-represented one for the most texts
    favoured_texts: int | None  # for how many of
    texts: int | None  # so many
    note: str | None


CLIP_BIAS = schema_of(BiasRow)


class ReplicateRow(TypedDict):
    """A bias in bootstrap samples of the images."""

    model: str
    dataset: str
    metric: str
    attribute: str
    view: str
    group: str
    # One for each bootstrap sample. All models share the samples, so the images' common effect cancels in differences.
    values: list[Float32]


REPLICATES = schema_of(ReplicateRow)


class ComparisonRow(TypedDict):
    """A bias of two runs, A and B."""

    dataset: str
    metric: str
    attribute: str
    view: str
    group: str
    value_a: float | None  # null where that side has none
    value_b: float | None
    n_a: int
    n_b: int
    difference: float | None  # null where they cannot be compared
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    paired: bool  # whether both are of the same bootstrap samples
    change: str  # worse: B is more biased; better; undetermined


CLIP_BIAS_COMPARISON = schema_of(ComparisonRow)


class TransferRow(TypedDict):
    """The rank correlation of two metrics over models, pre-training with downstream."""

    pretraining_metric: str
    pretraining_attribute: str
    pretraining_dataset: str
    downstream_metric: str
    downstream_attribute: str
    downstream_dataset: str
    view: str  # global, or "group 1": both biases within that group
    rho: float  # NaN where fewer than 3 models have both, or one does not vary
    rho_low: float
    rho_high: float
    p_value: float  # by permutation; exact up to 8 models
    q_value: float
    n_models: int
    t_p_value: float  # by Student's t, as the paper has it
    models: list[str]


TRANSFER = schema_of(TransferRow)


class LocalityRow(TypedDict):
    """The rank correlation of a local bias with the global one over models."""

    dataset: str
    metric: str
    attribute: str
    group: str
    rho: float  # of local with global bias, over models
    rho_low: float
    rho_high: float
    p_value: float
    q_value: float
    n_models: int
    t_p_value: float


LOCALITY = schema_of(LocalityRow)


class RateRow(TypedDict):
    """The rate of one value of an attribute."""

    model: str
    dataset: str
    metric: str  # recall@5, vqa_accuracy, cider
    attribute: str
    attribute_value: str
    view: str
    group: str
    rate: float
    standard_error: float
    n: int  # images


RATES = schema_of(RateRow)


class ClusterRow(TypedDict):
    """The group that an image belongs to."""

    dataset: str
    key: str
    group: str | None  # null where the models do not agree on a group that is large enough
    content: str | None  # a hash of the image's bytes


CLUSTERS = schema_of(ClusterRow)


class ModelPairRow(TypedDict):
    """The difference of two models of a run."""

    model_a: str
    model_b: str
    dataset: str
    metric: str
    attribute: str
    difference: float  # of a's bias and b's, in the global view
    difference_low: float
    difference_high: float
    p_value: float
    q_value: float
    verdict: str  # apart (different by more than the margin), not told apart


MODEL_PAIRS = schema_of(ModelPairRow)


class GapRow(TypedDict):
    """The gaps between two values, pre-training and downstream."""

    model: str
    attribute: str
    first: str  # the gap is this value's rate minus that of `second`
    second: str
    pretraining_metric: str
    pretraining_dataset: str
    downstream_metric: str
    downstream_dataset: str
    pretraining_gap: float
    pretraining_reach: float  # half the width of its interval
    downstream_gap: float
    downstream_reach: float
    quadrant: str  # I, II, III, IV; "" on an axis


GAPS = schema_of(GapRow)


class GroupExampleRow(TypedDict):
    """An image that shows what its group is about."""

    dataset: str
    group: str
    key: str
    caption: str | None
    bytes: Encoded | None  # as in the dataset; null where the file is gone or large


GROUP_EXAMPLES = schema_of(GroupExampleRow)


class ConvergenceRow(TypedDict):
    """How alike two models' embedding spaces are."""

    stage: str  # before, after
    model_a: str
    model_b: str
    similarity: float  # between the vectors of all pairwise cosines
    low: float
    high: float
    centred: float  # the same after subtracting each space's mean cosine
    n: int  # images


CONVERGENCE = schema_of(ConvergenceRow)
