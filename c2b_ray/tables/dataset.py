"""Tables of a dataset of failures (`c2b dataset build`): its rows, what was dropped, and its shards."""

from typing import Annotated, TypedDict

import pyarrow as pa

from c2b_ray.tables.rows import Float32, Int32, UInt64, schema_of, struct_of


class AnswerOfRow(TypedDict):
    """A classifier's answer to an image of the dataset."""

    classifier: str
    revision: str
    predicted: str | None  # the likeliest label; null where several are
    top3: list[str]  # likeliest first
    probabilities: list[Float32]  # of the top three
    failed: bool  # by the dataset's rule


ANSWER = struct_of(AnswerOfRow)


class DatasetRow(TypedDict):
    """An image of the dataset: a failure that was kept."""

    image_id: str  # hash of generator, its revision, prompt and seed
    image: bytes  # encoded; PNG of generated pixels
    label: str
    caption: str
    prompt: str
    seed: int
    generator: str
    generator_revision: str
    classifier: str  # the first classifier in the config that failed; `answers` has all
    classifier_revision: str
    rule: str
    predicted: str | None  # the label predicted by `classifier`
    top3: list[str]
    probabilities: list[Float32]
    answers: list[AnswerOfRow]  # of every classifier, in the config's order
    kept_because: str  # "top1: taken for snowplow by resnet50"
    verified: str | None  # what the verifier saw; null where there was no verifier
    fingerprint: UInt64  # perceptual hash
    caption_number: Int32  # of the caption in the plan, from 0
    draw: int  # of the caption's draws, from 0
    key: str | None  # the image's name in its source; null for a generated one. Older releases lack it


DATASET_ROWS = schema_of(DatasetRow)
OLDER_ROWS = pa.schema([column for column in DATASET_ROWS if column.name != "key"])
"""`DATASET_ROWS` as older releases wrote them."""


def with_keys(rows: pa.Table) -> pa.Table:
    """Returns rows with the column `key`, which those of older releases lack: theirs are null."""
    if "key" in rows.column_names:
        return rows
    return rows.append_column(DATASET_ROWS.field("key"), pa.nulls(rows.num_rows, pa.string()))


class DropRow(TypedDict):
    """A draw that was not kept."""

    caption_number: Int32
    draw: int
    # not_failed, no_image, no_answer, label_not_verified, near_duplicate, over_cap
    reason: str
    detail: str | None  # the image_id that it repeats, the error, what the verifier saw
    image_id: str | None  # for a failure dropped because of another failure; null for other drops
    fingerprint: UInt64 | None  # for such a failure: later failures are compared with it too
    thumbnail: Annotated[bytes, pa.binary(192)] | None  # for such a failure, 8 × 8 × 3 levels; absent in format 1
    # for such a failure: hashes of its inner part, in place and shifted; since format 3
    windows: Annotated[bytes, pa.binary(72)] | None


DROPS = schema_of(DropRow)
CANDIDATE = "candidate"
"""The reason of a drop before the second pass: the image is a failure that shows its label."""


class PlannedRow(TypedDict):
    """A caption of the plan."""

    label: str
    caption: str
    label_number: Int32  # of the distinct labels, in their order in the plan
    first: int  # the position of its first draw, in the whole plan
    draws: int
    rows: list[int] | None  # of a labelled table: the images that replace its draws


PLANNED = schema_of(PlannedRow)


# Tables of `c2b dataset evaluate`: answers to a dataset of failures, features, and the results.


class CheckedRow(TypedDict):
    """A classifier's answer to an image of the dataset or of a reference."""

    answer_id: str  # hash of image, classifier and its revision
    image_id: str
    classifier: str
    revision: str
    caption_number: Int32 | None  # null for a reference image
    label: str
    predicted: str | None  # the likeliest label; null where several are
    rank: Int32 | None  # rank of the true label among all labels, from 1; ties count against it; null: no answer
    built_failed: list[bool] | None  # for each classifier that the dataset was built with
    error: str | None


CHECKED = schema_of(CheckedRow)


class FeatureRow(TypedDict):
    """The features of an image."""

    feature_id: str
    key: str  # image_id, or the reference's name of the image
    row: int  # of the reference; −1 in the dataset
    label: str | None
    predicted: str | None
    vector: list[Float32] | None
    error: str | None


FEATURES = schema_of(FeatureRow)


class FailureRateRow(TypedDict):
    """How often a classifier fails."""

    of: str  # dataset, reference, or "failures of NAME"
    classifier: str
    rule: str  # top1, top3
    images: int
    captions: int
    failures: int
    unanswered: int
    rate: float | None
    rate_low: float | None
    rate_high: float | None


FAILURE_RATES = schema_of(FailureRateRow)


class ConsistencyRow(TypedDict):
    """How consistently two classifiers fail."""

    of: str  # dataset, reference
    classifier_a: str
    classifier_b: str
    rule: str
    images: int  # images that both classifiers answered
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None


CONSISTENCY = schema_of(ConsistencyRow)


class NeighbourRow(TypedDict):
    """An image of the reference near one of the dataset."""

    image_id: str
    label: str
    predicted: str | None
    among: str  # all, same_label
    rank: Int32  # from 1
    key: str
    row: int
    neighbour_label: str | None
    similarity: Float32  # cosine


NEIGHBOURS = schema_of(NeighbourRow)
