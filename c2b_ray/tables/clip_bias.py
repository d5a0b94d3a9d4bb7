"""Tables of `c2b clip-bias`: embeddings, biases of models, and their correlations.

embeddings → biases → rank correlations (local with global, pre-training with downstream), comparisons, gaps
"""

from __future__ import annotations

import pyarrow as pa

_text, _count, _number = pa.string(), pa.int64(), pa.float64()

CLIP_EMBEDDINGS = pa.schema(
    [
        pa.field("embedding_id", _text, nullable=False),  # hash of the model's revision, and of key and bytes, or text
        pa.field("embedding", pa.list_(pa.float32())),  # unit norm; null where `error` says why
        pa.field("error", _text),
    ]
)

CLIP_GUESSES = pa.schema(
    [
        pa.field("guess_id", _text, nullable=False),  # hash of guesser, texts, groups, folds and seed
        pa.field("scores", pa.list_(_number), nullable=False),  # of each text: confidence where right, else 0
        pa.field("error", _text),
    ]
)

CLIP_BIAS = pa.schema(
    [
        pa.field("model", _text, nullable=False),
        pa.field("dataset", _text, nullable=False),  # of a downstream metric: its name in the config
        pa.field("metric", _text, nullable=False),  # kl_recall@5, max_skew@1000, kl_vqa_accuracy, kl_cider, dba, lic
        pa.field("attribute", _text, nullable=False),
        pa.field("view", _text, nullable=False),  # global, local
        pa.field("group", _text, nullable=False),  # "all" in the global view, else the number of the group, from 1
        pa.field("value", _number, nullable=False),  # by the paper's formula; NaN where `note` says why
        pa.field("value_low", _number, nullable=False),
        pa.field("value_high", _number, nullable=False),
        pa.field("n", _count, nullable=False),  # images
        pa.field("expected", _number, nullable=False),  # the value that chance alone gives on average
        pa.field("p_value", _number, nullable=False),  # the probability of the value by chance alone
        pa.field("q_value", _number, nullable=False),  # Benjamini-Hochberg over all rows of the run
        pa.field("stage", _text, nullable=False),  # pretraining, downstream
        pa.field("k", _count),  # of MaxSkew: k after it was limited by the view's size
        pa.field("rule", _text),  # of MaxSkew and of bias amplification, where there are several
        pa.field("favoured", _text),  # of MaxSkew: the value that is the most over-represented one for the most texts
        pa.field("favoured_texts", _count),  # for how many of
        pa.field("texts", _count),  # so many
        pa.field("note", _text),
    ]
)

REPLICATES = pa.schema(
    [
        *[pa.field(name, _text, nullable=False) for name in ("model", "dataset", "metric", "attribute", "view")],
        pa.field("group", _text, nullable=False),
        pa.field("values", pa.list_(pa.float32()), nullable=False),  # the bias in bootstrap samples of the images
    ]
)
"""The number of bootstrap samples. All models share them, so the images' common effect cancels in differences."""

CLIP_BIAS_COMPARISON = pa.schema(
    [
        *[pa.field(name, _text, nullable=False) for name in ("dataset", "metric", "attribute", "view", "group")],
        *[pa.field(f"value_{side}", _number) for side in "ab"],  # null where that side has none
        *[pa.field(f"n_{side}", _count, nullable=False) for side in "ab"],
        *[
            pa.field(name, _number)  # null where they cannot be compared
            for name in ("difference", "difference_low", "difference_high", "p_value", "q_value")
        ],
        pa.field("paired", pa.bool_(), nullable=False),  # whether both are of the same bootstrap samples
        pa.field("change", _text, nullable=False),  # worse: B is more biased; better; undetermined
    ]
)

TRANSFER = pa.schema(
    [
        pa.field("pretraining_metric", _text, nullable=False),
        pa.field("pretraining_attribute", _text, nullable=False),
        pa.field("pretraining_dataset", _text, nullable=False),
        pa.field("downstream_metric", _text, nullable=False),
        pa.field("downstream_attribute", _text, nullable=False),
        pa.field("downstream_dataset", _text, nullable=False),
        pa.field("view", _text, nullable=False),  # global, or "group 1": both biases within that group
        pa.field("rho", _number, nullable=False),  # NaN where fewer than 3 models have both, or one does not vary
        pa.field("rho_low", _number, nullable=False),
        pa.field("rho_high", _number, nullable=False),
        pa.field("p_value", _number, nullable=False),  # by permutation; exact up to 8 models
        pa.field("q_value", _number, nullable=False),
        pa.field("n_models", _count, nullable=False),
        pa.field("t_p_value", _number, nullable=False),  # by Student's t, as the paper has it
        pa.field("models", pa.list_(_text), nullable=False),
    ]
)

LOCALITY = pa.schema(
    [
        pa.field("dataset", _text, nullable=False),
        pa.field("metric", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("group", _text, nullable=False),
        pa.field("rho", _number, nullable=False),  # of local with global bias, over models
        pa.field("rho_low", _number, nullable=False),
        pa.field("rho_high", _number, nullable=False),
        pa.field("p_value", _number, nullable=False),
        pa.field("q_value", _number, nullable=False),
        pa.field("n_models", _count, nullable=False),
        pa.field("t_p_value", _number, nullable=False),
    ]
)

RATES = pa.schema(
    [
        pa.field("model", _text, nullable=False),
        pa.field("dataset", _text, nullable=False),
        pa.field("metric", _text, nullable=False),  # recall@5, vqa_accuracy, cider
        pa.field("attribute", _text, nullable=False),
        pa.field("attribute_value", _text, nullable=False),
        pa.field("view", _text, nullable=False),
        pa.field("group", _text, nullable=False),
        pa.field("rate", _number, nullable=False),
        pa.field("standard_error", _number, nullable=False),
        pa.field("n", _count, nullable=False),  # images
    ]
)

CLUSTERS = pa.schema(
    [
        pa.field("dataset", _text, nullable=False),
        pa.field("key", _text, nullable=False),
        pa.field("group", _text),  # null where the models do not agree on a group that is large enough
    ]
)

MODEL_PAIRS = pa.schema(
    [
        pa.field("model_a", _text, nullable=False),
        pa.field("model_b", _text, nullable=False),
        pa.field("dataset", _text, nullable=False),
        pa.field("metric", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("difference", _number, nullable=False),  # of a's bias and b's, in the global view
        pa.field("difference_low", _number, nullable=False),
        pa.field("difference_high", _number, nullable=False),
        pa.field("p_value", _number, nullable=False),
        pa.field("q_value", _number, nullable=False),
        pa.field("verdict", _text, nullable=False),  # apart (different by more than the margin), not told apart
    ]
)

GAPS = pa.schema(
    [
        pa.field("model", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("first", _text, nullable=False),  # the gap is this value's rate minus that of `second`
        pa.field("second", _text, nullable=False),
        pa.field("pretraining_metric", _text, nullable=False),
        pa.field("pretraining_dataset", _text, nullable=False),
        pa.field("downstream_metric", _text, nullable=False),
        pa.field("downstream_dataset", _text, nullable=False),
        pa.field("pretraining_gap", _number, nullable=False),
        pa.field("pretraining_reach", _number, nullable=False),  # half the width of its interval
        pa.field("downstream_gap", _number, nullable=False),
        pa.field("downstream_reach", _number, nullable=False),
        pa.field("quadrant", _text, nullable=False),  # I, II, III, IV; "" on an axis
    ]
)

GROUP_EXAMPLES = pa.schema(
    [
        pa.field("dataset", _text, nullable=False),
        pa.field("group", _text, nullable=False),
        pa.field("key", _text, nullable=False),
        pa.field("caption", _text),
        pa.field("bytes", pa.binary()),  # as in the dataset; null where the file is gone or large
    ]
)

CONVERGENCE = pa.schema(
    [
        pa.field("stage", _text, nullable=False),  # before, after
        pa.field("model_a", _text, nullable=False),
        pa.field("model_b", _text, nullable=False),
        pa.field("similarity", _number, nullable=False),  # between the vectors of all pairwise cosines
        pa.field("low", _number, nullable=False),
        pa.field("high", _number, nullable=False),
        pa.field("centred", _number, nullable=False),  # the same after subtracting each space's mean cosine
        pa.field("n", _count, nullable=False),  # images
    ]
)
