"""The tables of the path that every audit follows, whole or in part.

    proposals → captions → draws → images → (verifications) → predictions

Further tables: results of index searches, the embeddings that an index is built from, and the images that a classifier
got wrong.
"""

from __future__ import annotations

import pyarrow as pa

_text = pa.string()

PROPOSALS = pa.schema(
    [
        pa.field("proposal_id", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_classes", pa.list_(_text), nullable=False),
        # language_model, user, or both joined by "+"; property, number or date where values were cut from measurements.
        pa.field("source", _text, nullable=False),
        pa.field("merged_from", pa.list_(_text), nullable=False),  # the names that were merged into this one
        # The merges into this attribute and their reasons: of attributes' names, and of values.
        pa.field(
            "merged",
            pa.list_(
                pa.struct(
                    [
                        pa.field("kind", _text),  # attribute, value
                        pa.field("from", _text),
                        pa.field("into", _text),
                        pa.field("similarity", pa.float32()),  # the encoder's cosine; null where no encoder was used
                        pa.field("rule", _text),  # name, values, spelling, head word, language model
                    ]
                )
            ),
        ),
    ]
)

REJECTED = pa.schema(
    [
        pa.field("step", _text, nullable=False),  # propose, template, caption
        pa.field("about", _text, nullable=False),  # the class, or class/attribute/bias class, of the request
        pa.field("reply", _text, nullable=False),  # the model's whole reply
        pa.field("reason", _text, nullable=False),
    ]
)

CAPTIONS = pa.schema(
    [
        pa.field("caption_id", _text, nullable=False),
        pa.field("proposal_id", _text, nullable=False),
        pa.field("kind", _text, nullable=False),  # attribute, or intersection: of two attributes at once
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        pa.field("number", pa.int32(), nullable=False),  # 0-based, among the cell's captions
        pa.field("text", _text, nullable=False),
    ]
)

DRAWS = pa.schema(
    [
        pa.field("caption_id", _text, nullable=False),
        pa.field("image_id", _text, nullable=False),
        pa.field("rank", pa.int32(), nullable=False),  # 0 is the nearest
        pa.field("similarity", pa.float32()),  # cosine; null for images that were not retrieved
        pa.field("source", _text, nullable=False),  # retrieve, generate, labelled
    ]
)

CLUSTERS = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),
        pa.field("cluster", _text),  # such as the camera; null where it is not known
    ]
)

IMAGES = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),  # hash of the source's revision and the image's position in it
        pa.field("key", _text, nullable=False),  # the image's name in its source
        pa.field("row", pa.int64()),  # of the image in its source, where the run leaves its bytes there
        pa.field("size", pa.int64()),  # bytes of the image; null where there were none
        # Encoded, as in the source; null where they are not a picture, or stay in the source (`row`).
        pa.field("bytes", pa.binary()),
        # SHA-256 of the bytes as they were fetched, in hexadecimal (`ids.content_of`); null where there were none.
        pa.field("content", _text),
        pa.field("pixels", pa.int32()),  # height × width that the bytes decode to; null where they are not a picture
        pa.field("fingerprint", pa.binary()),  # `steps.duplicates`, of the decoded picture; null where there is none
        pa.field("error", _text),  # why the bytes cannot be read or are not a picture
    ]
)

PLACED_IMAGES = pa.schema([field for field in IMAGES if field.name != "bytes"])
"""The columns of images whose bytes stay in their source."""

PROPERTIES = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # of the image in its source
        pa.field("key", _text, nullable=False),
        pa.field("content", _text),  # as in IMAGES
        *[
            pa.field(name, _text if name == "hue" else pa.float64())  # `steps.image_properties`; null: has none
            for name in (
                "brightness",
                "contrast",
                "sharpness",
                "colourfulness",
                "saturation",
                "hue",
                "greyness",
                "noise",
                "entropy",
                "border_edges",
                "resolution",
                "aspect_ratio",
                "jpeg_quality",
            )
        ],
        pa.field("error", _text),  # why the image could not be measured
    ]
)

_looked_at = [
    pa.field("observation_id", _text, nullable=False),  # hash of the image, the model and what it was asked
    pa.field("image_id", _text, nullable=False),
    pa.field("row", pa.int64(), nullable=False),  # of the image in its source
    pa.field("key", _text, nullable=False),
    pa.field("content", _text),  # as in IMAGES
    pa.field("revision", _text, nullable=False),  # of the model
    pa.field("error", _text),  # why the model says nothing of the image
]
READINGS = pa.schema(
    [
        *_looked_at,
        pa.field("attributes", pa.list_(_text), nullable=False),
        pa.field("values", pa.list_(_text), nullable=False),  # according to the model; null: no answer
        pa.field("certainties", pa.list_(pa.float32()), nullable=False),  # its own; null where it gives none
    ]
)
IMAGE_CAPTIONS = pa.schema([*_looked_at, pa.field("caption", _text)])
IMAGE_VECTORS = pa.schema([*_looked_at, pa.field("vector", pa.list_(pa.float32()))])  # of length 1

VERIFICATIONS = pa.schema(
    [
        pa.field("verification_id", _text, nullable=False),  # hash of image, class, verifier and all its questions
        pa.field("image_id", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),  # for which the image was drawn
        pa.field("revision", _text, nullable=False),  # of the verifier
        pa.field("class_shown", _text),  # one of the task's classes, according to the verifier
        pa.field("class_certainty", pa.float32()),  # the verifier's own; null where it gives none
        pa.field("attributes", pa.list_(_text), nullable=False),
        pa.field(
            "values", pa.list_(_text), nullable=False
        ),  # the value shown according to the verifier; null: no answer
        pa.field("certainties", pa.list_(pa.float32()), nullable=False),  # the verifier's own; null where it gives none
        pa.field("error", _text),  # why the verifier has no answer
    ]
)

CALIBRATION = pa.schema(
    [
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),  # the known value of the images
        pa.field("answer", _text, nullable=False),  # the verifier's answer
        pa.field("images", pa.float64(), nullable=False),
        pa.field("source", _text, nullable=False),  # table: counted on labelled images; self: by its own certainty
    ]
)

CALIBRATION_ANSWERS = pa.schema(
    [
        pa.field("calibration_id", _text, nullable=False),  # hash of image, question, verifier and its revision
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),  # the known value of the image
        pa.field("answer", _text),  # the verifier's answer; null: none
        pa.field("error", _text),  # why the image cannot be read
    ]
)

NEGATIVES = pa.schema(
    [
        # Hash of image, class, the class's captions and pools, index, encoder, and the verifier with its questions.
        pa.field("negative_id", _text, nullable=False),
        *VERIFICATIONS,  # of an image of the calibration that shows another class than `target_class`
        pa.field("captions", pa.list_(_text), nullable=False),  # whose pools would hold the image; none: not verified
        pa.field("similarities", pa.list_(pa.float32()), nullable=False),  # cosine, to each of them
    ]
)

PREDICTIONS = pa.schema(
    [
        pa.field("prediction_id", _text, nullable=False),  # hash of image, classifier, its revision and its label map
        pa.field("image_id", _text, nullable=False),
        pa.field("classifier", _text, nullable=False),
        pa.field("revision", _text, nullable=False),  # of the classifier
        # The classifier's own likeliest label; null where several are. Of labels each on its own, the classes that it
        # gives, without a probability.
        pa.field("label", _text),
        pa.field("label_probability", pa.float32()),
        # The task's class of the label; null where it belongs to none. Of labels each on its own, "below the
        # threshold": the answer to every class that is not among `answered`.
        pa.field("predicted_class", _text),
        pa.field("class_probability", pa.float32()),
        # The classes for which the answer counts as right; null: `predicted_class` alone. Rule `top5` gives several,
        # and labels each on its own any number.
        pa.field("answered", pa.list_(_text)),
        pa.field("undecided", _text),  # why there is no single answer (a tie, no mass on any class); it is wrong
        pa.field("error", _text),  # why there is no prediction
        # That of each of the audit's classes, in their order: the sum over a class's labels, or of labels each on its
        # own the largest. Null where it is not used.
        pa.field("probabilities", pa.list_(pa.float32())),
    ]
)

IMAGE_EMBEDDINGS = pa.schema(
    [
        pa.field("embedding_id", _text, nullable=False),  # hash of image and encoder
        pa.field("image_id", _text, nullable=False),
        pa.field("revision", _text, nullable=False),  # of the encoder
        pa.field("vector", pa.list_(pa.float32())),  # of length 1; null where `error` says why
        pa.field("error", _text),
    ]
)

FAILURES = pa.schema(
    [
        pa.field("key", _text),  # the image's name in its source
        pa.field("truth", _text, nullable=False),  # the target class that the image was drawn for
        pa.field("answer", _text, nullable=False),  # the prediction: another class, or a label outside the classes
        pa.field("cell", _text, nullable=False),  # "attribute/value"
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        pa.field("classifier", _text, nullable=False),
        pa.field("label", _text),  # the classifier's own likeliest label; null where several are
        pa.field("label_probability", pa.float32()),
        pa.field("image_id", _text, nullable=False),
    ]
)

SEARCHES = pa.schema(
    [
        pa.field("caption_id", _text, nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # of the caption in its file, from 0
        pa.field("caption", _text, nullable=False),
        pa.field("keys", pa.list_(_text), nullable=False),  # of the nearest images, nearest first
        pa.field("similarities", pa.list_(pa.float32()), nullable=False),  # cosine, of each
        pa.field("error", _text),  # why there are none
    ]
)

RETRIEVED = pa.schema(
    [
        pa.field("retrieval_id", _text, nullable=False),  # hash of caption, its text, encoder, index and how many
        pa.field("caption_id", _text, nullable=False),
        pa.field("rows", pa.list_(pa.int64()), nullable=False),  # of the nearest images in the index, nearest first
        pa.field("similarities", pa.list_(pa.float32()), nullable=False),  # cosine, of each
    ]
)


def embeddings(dimension: int) -> pa.Schema:
    """Returns the schema of the table that an index is built from, for an encoder of this dimension."""
    return pa.schema(
        [
            pa.field("key", _text, nullable=False),
            pa.field("bytes", pa.binary()),
            pa.field("embedding", pa.list_(pa.float32(), dimension)),  # unit norm; null where `error` says why
            pa.field("metadata", _text, nullable=False),  # the source's other columns, as a JSON object
            pa.field("error", _text),
        ]
    )
