"""The table of a run's images as other tools get them (`report.formats`)."""

from typing import TypedDict

from c2b_ray.tables.rows import Encoded, Float32, schema_of, struct_of


class ExportedPrediction(TypedDict):
    """A classifier's answer to the image."""

    classifier: str  # its name on the page: without paths and credentials
    label: str
    confidence: Float32  # of the likeliest label; null where the classifier gives none
    failed: bool  # whether it counts as wrong; null where nothing is right or wrong


PREDICTION = struct_of(ExportedPrediction)


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
