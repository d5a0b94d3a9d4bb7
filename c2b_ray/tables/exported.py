"""The table of a run's images as other tools get them (`report.formats`)."""

from __future__ import annotations

import pyarrow as pa

_text = pa.string()

PREDICTION = pa.struct(
    [
        pa.field("classifier", _text),  # its name on the page: without paths and credentials
        pa.field("label", _text),
        pa.field("confidence", pa.float32()),  # of the likeliest label; null where the classifier gives none
        pa.field("failed", pa.bool_()),  # whether it counts as wrong; null where nothing is right or wrong
    ]
)

EXPORTED_IMAGES = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),
        pa.field("key", _text),  # the image's name in its source; null where it has none
        pa.field("location", _text),  # path or URI of the file that is the image; null where `bytes` hold it
        pa.field("bytes", pa.binary()),  # encoded
        pa.field("truth", _text),  # the class that the image shows, or was drawn for; null where none is known
        pa.field("text", _text),  # the caption or prompt that it was made from
        pa.field("predictions", pa.list_(PREDICTION), nullable=False),
        pa.field("cells", pa.list_(_text), nullable=False),  # what it shows, as attribute/value
        pa.field("tags", pa.list_(_text), nullable=False),  # the tag of each finding that the image is part of
    ]
)
