"""Tables of `c2b dataset evaluate`: answers to a dataset of failures, features, and the results."""

from __future__ import annotations

import pyarrow as pa

_text, _count, _number = pa.string(), pa.int64(), pa.float64()

CHECKED = pa.schema(
    [
        pa.field("answer_id", _text, nullable=False),  # hash of image, classifier and its revision
        pa.field("image_id", _text, nullable=False),
        pa.field("classifier", _text, nullable=False),
        pa.field("revision", _text, nullable=False),
        pa.field("caption_number", pa.int32()),  # null for a reference image
        pa.field("label", _text, nullable=False),
        pa.field("predicted", _text),  # the likeliest label; null where several are
        pa.field("rank", pa.int32()),  # of the true label among all, from 1; ties count against it; null: no answer
        pa.field("built_failed", pa.list_(pa.bool_())),  # for each classifier that the dataset was built with
        pa.field("error", _text),
    ]
)

FEATURES = pa.schema(
    [
        pa.field("feature_id", _text, nullable=False),
        pa.field("key", _text, nullable=False),  # image_id, or the reference's name of the image
        pa.field("row", _count, nullable=False),  # of the reference; −1 in the dataset
        pa.field("label", _text),
        pa.field("predicted", _text),
        pa.field("vector", pa.list_(pa.float32())),
        pa.field("error", _text),
    ]
)

FAILURE_RATES = pa.schema(
    [
        pa.field("of", _text, nullable=False),  # dataset, reference, or "failures of NAME"
        pa.field("classifier", _text, nullable=False),
        pa.field("rule", _text, nullable=False),  # top1, top3
        pa.field("images", _count, nullable=False),
        pa.field("captions", _count, nullable=False),
        pa.field("failures", _count, nullable=False),
        pa.field("unanswered", _count, nullable=False),
        pa.field("rate", _number),
        pa.field("rate_low", _number),
        pa.field("rate_high", _number),
    ]
)

CONSISTENCY = pa.schema(
    [
        pa.field("of", _text, nullable=False),  # dataset, reference
        pa.field("classifier_a", _text, nullable=False),
        pa.field("classifier_b", _text, nullable=False),
        pa.field("rule", _text, nullable=False),
        pa.field("images", _count, nullable=False),  # images that both classifiers answered
        pa.field("kappa", _number),
        pa.field("kappa_low", _number),
        pa.field("kappa_high", _number),
    ]
)

NEIGHBOURS = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),
        pa.field("label", _text, nullable=False),
        pa.field("predicted", _text),
        pa.field("among", _text, nullable=False),  # all, same_label
        pa.field("rank", pa.int32(), nullable=False),  # from 1
        pa.field("key", _text, nullable=False),
        pa.field("row", _count, nullable=False),
        pa.field("neighbour_label", _text),
        pa.field("similarity", pa.float32(), nullable=False),  # cosine
    ]
)
