"""Tables of a dataset of failures (`c2b dataset build`): its rows, what was dropped, and its shards."""

from __future__ import annotations

from typing import TypedDict

import pyarrow as pa

_text, _count = pa.string(), pa.int64()

ANSWER = pa.struct(
    [
        pa.field("classifier", _text),
        pa.field("revision", _text),
        pa.field("predicted", _text),  # the likeliest label; null where several are
        pa.field("top3", pa.list_(_text)),  # likeliest first
        pa.field("probabilities", pa.list_(pa.float32())),  # of the top three
        pa.field("failed", pa.bool_()),  # by the dataset's rule
    ]
)

DATASET_ROWS = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),  # hash of generator, its revision, prompt and seed
        pa.field("image", pa.binary(), nullable=False),  # encoded; PNG of generated pixels
        pa.field("label", _text, nullable=False),
        pa.field("caption", _text, nullable=False),
        pa.field("prompt", _text, nullable=False),
        pa.field("seed", _count, nullable=False),
        pa.field("generator", _text, nullable=False),
        pa.field("generator_revision", _text, nullable=False),
        pa.field(
            "classifier", _text, nullable=False
        ),  # the first classifier in the config that failed; `answers` has all
        pa.field("classifier_revision", _text, nullable=False),
        pa.field("rule", _text, nullable=False),
        pa.field("predicted", _text),  # the label predicted by `classifier`
        pa.field("top3", pa.list_(_text), nullable=False),
        pa.field("probabilities", pa.list_(pa.float32()), nullable=False),
        pa.field("answers", pa.list_(ANSWER), nullable=False),  # of every classifier, in the config's order
        pa.field("kept_because", _text, nullable=False),  # "top1: taken for snowplow by resnet50"
        pa.field("verified", _text),  # what the verifier saw; null where there was no verifier
        pa.field("fingerprint", pa.uint64(), nullable=False),  # perceptual hash
        pa.field("caption_number", pa.int32(), nullable=False),  # of the caption in the plan, from 0
        pa.field("draw", _count, nullable=False),  # of the caption's draws, from 0
        pa.field("key", _text),  # the image's name in its source; null for a generated one. Older releases lack it
    ]
)
OLDER_ROWS = pa.schema([column for column in DATASET_ROWS if column.name != "key"])
"""`DATASET_ROWS` as older releases wrote them."""


def with_keys(rows: pa.Table) -> pa.Table:
    """Returns rows with the column `key`, which those of older releases lack: theirs are null."""
    if "key" in rows.column_names:
        return rows
    return rows.append_column(DATASET_ROWS.field("key"), pa.nulls(rows.num_rows, _text))


DROPS = pa.schema(
    [
        pa.field("caption_number", pa.int32(), nullable=False),
        pa.field("draw", _count, nullable=False),
        # not_failed, no_image, no_answer, label_not_verified, near_duplicate, over_cap
        pa.field("reason", _text, nullable=False),
        pa.field("detail", _text),  # the image_id that it repeats, the error, what the verifier saw
        pa.field("image_id", _text),  # for a failure dropped because of another failure; null for other drops
        pa.field("fingerprint", pa.uint64()),  # for such a failure: later failures are compared with it too
        pa.field("thumbnail", pa.binary(192)),  # for such a failure, 8 × 8 × 3 levels; absent in format 1
        pa.field(
            "windows", pa.binary(72)
        ),  # for such a failure: hashes of its inner part, in place and shifted; since format 3
    ]
)
CANDIDATE = "candidate"
"""The reason of a drop before the second pass: the image is a failure that shows its label."""

PLANNED = pa.schema(
    [
        pa.field("label", _text, nullable=False),
        pa.field("caption", _text, nullable=False),
        pa.field("label_number", pa.int32(), nullable=False),  # of the distinct labels, in their order in the plan
        pa.field("first", _count, nullable=False),  # the position of its first draw, in the whole plan
        pa.field("draws", _count, nullable=False),
        pa.field("rows", pa.list_(_count)),  # of a labelled table: the images that replace its draws
    ]
)


# Rows of the tables of a dataset of failures as Python mappings, for `pa.Table.from_pylist`.


class AnswerOfRow(TypedDict):
    """`ANSWER`."""

    classifier: str
    revision: str
    predicted: str | None
    top3: list[str]
    probabilities: list[float]
    failed: bool


class DatasetRow(TypedDict):
    """`DATASET_ROWS`."""

    image_id: str
    image: bytes
    label: str
    caption: str
    prompt: str
    seed: int
    generator: str
    generator_revision: str
    classifier: str
    classifier_revision: str
    rule: str
    predicted: str | None
    top3: list[str]
    probabilities: list[float]
    answers: list[AnswerOfRow]
    kept_because: str
    verified: str | None
    fingerprint: int
    caption_number: int
    draw: int
    key: str | None


class PlannedRow(TypedDict):
    """`PLANNED`."""

    label: str
    caption: str
    label_number: int
    first: int
    draws: int
    rows: list[int] | None


# Tables of `c2b dataset evaluate`: answers to a dataset of failures, features, and the results.


_text_column, _count_column, _number = pa.string(), pa.int64(), pa.float64()

CHECKED = pa.schema(
    [
        pa.field("answer_id", _text_column, nullable=False),  # hash of image, classifier and its revision
        pa.field("image_id", _text_column, nullable=False),
        pa.field("classifier", _text_column, nullable=False),
        pa.field("revision", _text_column, nullable=False),
        pa.field("caption_number", pa.int32()),  # null for a reference image
        pa.field("label", _text_column, nullable=False),
        pa.field("predicted", _text_column),  # the likeliest label; null where several are
        pa.field("rank", pa.int32()),  # of the true label among all, from 1; ties count against it; null: no answer
        pa.field("built_failed", pa.list_(pa.bool_())),  # for each classifier that the dataset was built with
        pa.field("error", _text_column),
    ]
)

FEATURES = pa.schema(
    [
        pa.field("feature_id", _text_column, nullable=False),
        pa.field("key", _text_column, nullable=False),  # image_id, or the reference's name of the image
        pa.field("row", _count_column, nullable=False),  # of the reference; −1 in the dataset
        pa.field("label", _text_column),
        pa.field("predicted", _text_column),
        pa.field("vector", pa.list_(pa.float32())),
        pa.field("error", _text_column),
    ]
)

FAILURE_RATES = pa.schema(
    [
        pa.field("of", _text_column, nullable=False),  # dataset, reference, or "failures of NAME"
        pa.field("classifier", _text_column, nullable=False),
        pa.field("rule", _text_column, nullable=False),  # top1, top3
        pa.field("images", _count_column, nullable=False),
        pa.field("captions", _count_column, nullable=False),
        pa.field("failures", _count_column, nullable=False),
        pa.field("unanswered", _count_column, nullable=False),
        pa.field("rate", _number),
        pa.field("rate_low", _number),
        pa.field("rate_high", _number),
    ]
)

CONSISTENCY = pa.schema(
    [
        pa.field("of", _text_column, nullable=False),  # dataset, reference
        pa.field("classifier_a", _text_column, nullable=False),
        pa.field("classifier_b", _text_column, nullable=False),
        pa.field("rule", _text_column, nullable=False),
        pa.field("images", _count_column, nullable=False),  # images that both classifiers answered
        pa.field("kappa", _number),
        pa.field("kappa_low", _number),
        pa.field("kappa_high", _number),
    ]
)

NEIGHBOURS = pa.schema(
    [
        pa.field("image_id", _text_column, nullable=False),
        pa.field("label", _text_column, nullable=False),
        pa.field("predicted", _text_column),
        pa.field("among", _text_column, nullable=False),  # all, same_label
        pa.field("rank", pa.int32(), nullable=False),  # from 1
        pa.field("key", _text_column, nullable=False),
        pa.field("row", _count_column, nullable=False),
        pa.field("neighbour_label", _text_column),
        pa.field("similarity", pa.float32(), nullable=False),  # cosine
    ]
)
