"""Tables of `c2b evaluate`: biases of ground truth and of methods, their matches, and the results.

truth, detected → matches → outcomes → agreement, differences, thresholds
"""

from __future__ import annotations

import pyarrow as pa

_text, _count, _number, _sign = pa.string(), pa.int64(), pa.float64(), pa.int8()

BIASES = pa.schema(
    [
        pa.field("source", _text, nullable=False),  # truth, or the name of a method
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("wordings", pa.list_(_text), nullable=False),  # the texts that are compared, the first is shown
        pa.field("negated", pa.bool_(), nullable=False),  # the bias is the absence of what the wordings name
        pa.field("n", _count, nullable=False),  # images with the value; of a keyword, mistakes
        # Ground truth: accuracy with the value minus that without; a method: φ; B2T: the CLIP score.
        pa.field("score", _number),
        pa.field("p_value", _number),
        pa.field("q_value", _number),
        # Whether the classifier is better (1) or worse (−1) where the value is shown: by |score| > τ alone, and tested.
        pa.field("paper", _sign, nullable=False),
        pa.field("tested", _sign, nullable=False),
    ]
)

MATCHES = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("truth", _text, nullable=False),  # "attribute: value"
        pa.field("truth_wording", _text, nullable=False),  # the most similar wording
        pa.field("detected", _text, nullable=False),
        pa.field("detected_wording", _text, nullable=False),
        pa.field("similarity", _number, nullable=False),
        pa.field("rank", _count, nullable=False),  # of the match among those of this truth, from 1
        pa.field("truth_paper", _sign, nullable=False),  # signs of the wordings' biases
        pa.field("truth_tested", _sign, nullable=False),
        pa.field("detected_paper", _sign, nullable=False),
        pa.field("detected_tested", _sign, nullable=False),
    ]
)

_OF = [
    pa.field("rule", _text, nullable=False),  # paper: |score| > τ; tested: and significant
    pa.field("threshold_kind", _text, nullable=False),  # set: the config's; calibrated
    pa.field("threshold", _number, nullable=False),
    pa.field("direction", _text, nullable=False),  # truth_to_detected, detected_to_truth
]

OUTCOMES = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        *_OF,
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("outcome", _text, nullable=False),  # hit, false_hit, miss
    ]
)

_SHARES = [
    pa.field("biases", _count, nullable=False),
    *[pa.field(name, _number) for name in ("hit", "false_hit", "miss")],
    *[pa.field(name, _number) for name in ("hit_minus_false", "hit_minus_false_low", "hit_minus_false_high")],
]

AGREEMENT = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        *_OF,
        pa.field("classifier", _text, nullable=False),  # "" is all of them
        *_SHARES,
    ]
)

DIFFERENCES = pa.schema(
    [
        pa.field("method_a", _text, nullable=False),
        pa.field("method_b", _text, nullable=False),
        *_OF,
        *[pa.field(name, _number) for name in ("difference", "difference_low", "difference_high")],  # of HIT − FH
    ]
)

EVALUATION_COMPARISON = pa.schema(
    [
        pa.field("method_a", _text, nullable=False),
        pa.field("method_b", _text, nullable=False),
        pa.field("rule", _text, nullable=False),
        pa.field("threshold_kind", _text, nullable=False),
        pa.field("direction", _text, nullable=False),
        *[pa.field(f"biases_{side}", _count, nullable=False) for side in "ab"],
        *[pa.field(f"hit_minus_false_{side}", _number) for side in "ab"],  # null where a side has no bias
        *[pa.field(name, _number) for name in ("difference", "difference_low", "difference_high")],  # B minus A
        pa.field("p_value", _number),
        pa.field("q_value", _number),
        pa.field("change", _text, nullable=False),  # worse: B's HIT − FH is less; better; undetermined
    ]
)

THRESHOLDS = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        pa.field("rule", _text, nullable=False),
        pa.field("direction", _text, nullable=False),
        pa.field("tau", _number, nullable=False),
        pa.field("threshold", _number, nullable=False),
        pa.field("many", _text, nullable=False),
        pa.field("biases", _count, nullable=False),
        *[pa.field(name, _number) for name in ("hit", "false_hit", "miss")],
    ]
)

VQA = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        pa.field("classifier", _text, nullable=False),  # "" is all of them
        pa.field("rule", _text, nullable=False),
        pa.field("biases", _count, nullable=False),
        pa.field("agreement", _number),
        pa.field("agreement_of_biased", _number),  # of those that either side calls biased
        # detected against, none, for × pseudo-labels against, none, for
        *[
            pa.field(f"{a}_{b}", _count, nullable=False)
            for a in ("against", "none", "for")
            for b in ("against", "none", "for")
        ],
    ]
)

RECALL = pa.schema(
    [
        pa.field("kind", _text, nullable=False),  # class, value, both
        pa.field("target_class", _text),
        pa.field("attribute", _text),
        pa.field("value", _text),
        pa.field("caption", _text, nullable=False),
        pa.field("relevant", _count, nullable=False),  # K
        pa.field("share", _number, nullable=False),  # A
        pa.field("k", _count, nullable=False),
        pa.field("recall", _number),  # hits / K
        pa.field("reachable", _number),  # hits / min(k, K)
    ]
)

RANKING = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        pa.field("classifier", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("rank", _count, nullable=False),
        pa.field("classes", _count, nullable=False),
        pa.field("strength", _number, nullable=False),  # mean |φ| over values, then over classes
        pa.field("strength_low", _number),  # a bootstrap over classes
        pa.field("strength_high", _number),
        pa.field("biased", _count, nullable=False),  # the number of classes' values that are significantly biased
    ]
)

SHOWN = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        pa.field("what", _text, nullable=False),  # class, value, both
        pa.field("images", _count, nullable=False),
        *[pa.field(name, _number) for name in ("share", "share_low", "share_high")],
    ]
)

PROPOSERS = pa.schema(
    [
        pa.field("method", _text, nullable=False),
        pa.field("language_model", _text),
        *[
            pa.field(name, _count, nullable=False)
            for name in ("classes", "attributes", "values", "rejected", "captions", "biased")
        ],
        pa.field("per_class", _number),  # attributes of a class, on average
    ]
)

SEEN = pa.schema(
    [
        pa.field("look_id", _text, nullable=False),  # hash of image, label and the model's revision
        pa.field("image_id", _text, nullable=False),
        pa.field("vector", pa.list_(pa.float32())),
        pa.field("error", _text),
    ]
)

SAID = pa.schema(
    [
        pa.field("look_id", _text, nullable=False),
        pa.field("image_id", _text, nullable=False),
        pa.field("caption", _text),
        pa.field("error", _text),
    ]
)
