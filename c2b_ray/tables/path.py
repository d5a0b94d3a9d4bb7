"""The tables of the path that every audit follows, whole or in part.

    proposals → captions → draws → images → (verifications) → predictions

Further tables: results of index searches, the embeddings that an index is built from, the images that a classifier got
wrong, and a run's images as other tools get them (`report.formats`).
"""

from typing import TypedDict

import pyarrow as pa

from c2b_ray.tables.rows import Encoded, Float32, Int32, schema_of

# A merge into an attribute. No class, as `from` is a word of Python.
_Merge = TypedDict(
    "_Merge",
    {
        "kind": str,  # attribute, value
        "from": str,
        "into": str,
        "similarity": Float32,  # the encoder's cosine; null where no encoder was used
        "rule": str,  # name, values, spelling, head word, language model
    },
)


class ProposalRow(TypedDict):
    """An attribute with its values, for one class."""

    proposal_id: str
    target_class: str
    attribute: str
    bias_classes: list[str]
    # language_model, user, or both joined by "+"; property, number or date where values were cut from measurements.
    source: str
    merged_from: list[str]  # the names that were merged into this one
    merged: list[_Merge] | None  # the merges into this attribute and their reasons: of attributes' names, and of values


PROPOSALS = schema_of(ProposalRow)


class RejectedRow(TypedDict):
    """A language model's reply that was not used."""

    step: str  # propose, template, caption
    about: str  # the class, or class/attribute/bias class, of the request
    reply: str  # the model's whole reply
    reason: str


REJECTED = schema_of(RejectedRow)


class CaptionRow(TypedDict):
    """A caption of a cell."""

    caption_id: str
    proposal_id: str
    kind: str  # attribute, or intersection: of two attributes at once
    target_class: str
    attribute: str
    bias_class: str
    number: Int32  # 0-based, among the cell's captions
    text: str


CAPTIONS = schema_of(CaptionRow)


class DrawRow(TypedDict):
    """An image that a caption drew."""

    caption_id: str
    image_id: str
    rank: Int32  # 0 is the nearest
    similarity: Float32 | None  # cosine; null for images that were not retrieved
    source: str  # retrieve, generate, labelled


DRAWS = schema_of(DrawRow)


class ClusterRow(TypedDict):
    """The cluster of an image."""

    image_id: str
    cluster: str | None  # such as the camera; null where it is not known


CLUSTERS = schema_of(ClusterRow)


class ImageRow(TypedDict):
    """An image as it was fetched or generated."""

    image_id: str  # hash of the source's revision and the image's position in it
    key: str  # the image's name in its source
    row: int | None  # of the image in its source, where the run leaves its bytes there
    size: int | None  # bytes of the image; null where there were none
    # Encoded, as in the source; null where they are not a picture, or stay in the source (`row`).
    bytes: Encoded | None
    # SHA-256 of the bytes as they were fetched, in hexadecimal (`ids.content_of`); null where there were none.
    content: str | None
    pixels: Int32 | None  # height × width that the bytes decode to; null where they are not a picture
    fingerprint: bytes | None  # `steps.duplicates`, of the decoded picture; null where there is none
    error: str | None  # why the bytes cannot be read or are not a picture


IMAGES = schema_of(ImageRow)

PLACED_IMAGES = pa.schema([field for field in IMAGES if field.name != "bytes"])
"""The columns of images whose bytes stay in their source."""


class PropertiesRow(TypedDict):
    """What was measured of an image (`steps.image_properties`); null: it has none."""

    image_id: str
    row: int  # of the image in its source
    key: str
    content: str | None  # as in IMAGES
    brightness: float | None  # `steps.image_properties`; null: has none
    contrast: float | None
    sharpness: float | None
    colourfulness: float | None
    saturation: float | None
    hue: str | None  # `steps.image_properties`; null: has none
    greyness: float | None
    noise: float | None
    entropy: float | None
    border_edges: float | None
    resolution: float | None
    aspect_ratio: float | None
    jpeg_quality: float | None
    error: str | None  # why the image could not be measured


PROPERTIES = schema_of(PropertiesRow)


class _ObservationRow(TypedDict):
    """What a model observed in an image. Each table of observations adds what it is."""

    observation_id: str  # hash of the image, the model and what it was asked
    image_id: str
    row: int  # of the image in its source
    key: str
    content: str | None  # as in IMAGES
    revision: str  # of the model
    error: str | None  # why the model says nothing of the image


class ReadingRow(_ObservationRow):
    """Values that a model reads off an image."""

    attributes: list[str]
    values: list[str]  # according to the model; null: no answer
    certainties: list[Float32]  # its own; null where it gives none


READINGS = schema_of(ReadingRow)


class ImageCaptionRow(_ObservationRow):
    """The caption of an image."""

    caption: str | None


IMAGE_CAPTIONS = schema_of(ImageCaptionRow)


class ImageVectorRow(_ObservationRow):
    """The embedding of an image."""

    vector: list[Float32] | None  # of length 1


IMAGE_VECTORS = schema_of(ImageVectorRow)


class VerificationRow(TypedDict):
    """A verifier's answers about an image."""

    verification_id: str  # hash of image, class, verifier and all its questions
    image_id: str
    target_class: str  # for which the image was drawn
    revision: str  # of the verifier
    class_shown: str | None  # one of the task's classes, according to the verifier
    class_certainty: Float32 | None  # the verifier's own; null where it gives none
    attributes: list[str]
    values: list[str]  # the value shown according to the verifier; null: no answer
    certainties: list[Float32]  # the verifier's own; null where it gives none
    error: str | None  # why the verifier has no answer


VERIFICATIONS = schema_of(VerificationRow)


class CalibrationRow(TypedDict):
    """How often a verifier answers so about images of a known value."""

    attribute: str
    value: str  # the known value of the images
    answer: str  # the verifier's answer
    images: float
    source: str  # table: counted on labelled images; self: by its own certainty


CALIBRATION = schema_of(CalibrationRow)


class CalibrationAnswerRow(TypedDict):
    """A verifier's answer about an image whose value is known."""

    calibration_id: str  # hash of image, question, verifier and its revision
    attribute: str
    value: str  # the known value of the image
    answer: str | None  # the verifier's answer; null: none
    error: str | None  # why the image cannot be read


CALIBRATION_ANSWERS = schema_of(CalibrationAnswerRow)


class _NegativeId(TypedDict):
    # Hash of image, class, the class's captions and pools, index, encoder, and the verifier with its questions.
    negative_id: str


class NegativeRow(_NegativeId, VerificationRow):
    """A verification of an image of the calibration that shows another class than `target_class`."""

    captions: list[str]  # whose pools would hold the image; none: not verified
    similarities: list[Float32]  # cosine, to each of them


NEGATIVES = schema_of(NegativeRow)


class AnswerColumns(TypedDict):
    """A classifier's answer, or why there is none."""

    # The classifier's own likeliest label; null where several are. Of labels each on its own, the classes that it
    # gives, without a probability.
    label: str | None
    label_probability: Float32 | None
    # The task's class of the label; null where it belongs to none. Of labels each on its own, "below the threshold":
    # the answer to every class that is not among `answered`.
    predicted_class: str | None
    class_probability: Float32 | None
    # The classes for which the answer counts as right; null: `predicted_class` alone. Rule `top5` gives several, and
    # labels each on its own any number.
    answered: list[str] | None
    undecided: str | None  # why there is no single answer (a tie, no mass on any class); it is wrong
    error: str | None  # why there is no prediction


class _PredictionOf(TypedDict):
    prediction_id: str  # hash of image, classifier, its revision and its label map
    image_id: str
    classifier: str
    revision: str  # of the classifier


class PredictionRow(_PredictionOf, AnswerColumns):
    """A classifier's answer to an image."""

    # That of each of the audit's classes, in their order: the sum over a class's labels, or of labels each on its own
    # the largest. Null where it is not used.
    probabilities: list[Float32] | None


PREDICTIONS = schema_of(PredictionRow)


class ImageEmbeddingRow(TypedDict):
    """The embedding of an image, for the search of label errors."""

    embedding_id: str  # hash of image and encoder
    image_id: str
    revision: str  # of the encoder
    vector: list[Float32] | None  # of length 1; null where `error` says why
    error: str | None


IMAGE_EMBEDDINGS = schema_of(ImageEmbeddingRow)


class FailureRow(TypedDict):
    """An image with a wrong answer, in one cell."""

    key: str | None  # the image's name in its source
    truth: str  # the target class that the image was drawn for
    answer: str  # the prediction: another class, or a label outside the classes
    cell: str  # "attribute/value"
    attribute: str
    bias_class: str
    classifier: str
    label: str | None  # the classifier's own likeliest label; null where several are
    label_probability: Float32 | None
    image_id: str


FAILURES = schema_of(FailureRow)


class SearchRow(TypedDict):
    """The images nearest to a caption."""

    caption_id: str
    row: int  # of the caption in its file, from 0
    caption: str
    keys: list[str]  # of the nearest images, nearest first
    similarities: list[Float32]  # cosine, of each
    error: str | None  # why there are none


SEARCHES = schema_of(SearchRow)


class RetrievedRow(TypedDict):
    """The rows of the images nearest to a caption."""

    retrieval_id: str  # hash of caption, its text, encoder, index and how many
    caption_id: str
    rows: list[int]  # of the nearest images in the index, nearest first
    similarities: list[Float32]  # cosine, of each


RETRIEVED = schema_of(RetrievedRow)


class EmbeddedRow(TypedDict):
    """An image of an index with its embedding."""

    key: str
    bytes: Encoded | None
    embedding: list[Float32] | None  # unit norm; null where `error` says why
    metadata: str  # the source's other columns, as a JSON object
    error: str | None


EMBEDDED = schema_of(EmbeddedRow)


def embeddings(dimension: int) -> pa.Schema:
    """Returns the schema of the table that an index is built from, for an encoder of this dimension."""
    at, columns = EMBEDDED.get_field_index("embedding"), pa.list_(pa.float32(), dimension)
    return EMBEDDED.set(at, pa.field("embedding", columns))


class ExportedPrediction(TypedDict):
    """A classifier's answer to the image."""

    classifier: str  # its name on the page: without paths and credentials
    label: str
    confidence: Float32  # of the likeliest label; null where the classifier gives none
    failed: bool  # whether it counts as wrong; null where nothing is right or wrong


class ExportedImageRow(TypedDict):
    """An image with its answers."""

    image_id: str
    key: str | None  # the image's name in its source; null where it has none
    location: str | None  # path or URI of the file that is the image; null where `bytes` hold it
    bytes: Encoded | None  # encoded
    truth: str | None  # the class that the image shows, or was drawn for; null where none is known
    text: str | None  # the caption or prompt that it was made from
    predictions: list[ExportedPrediction]
    cells: list[str]  # what it shows, as attribute/value
    tags: list[str]  # the tag of each finding that the image is part of


EXPORTED_IMAGES = schema_of(ExportedImageRow)
