"""Embeds images, and captions them by a captioner. It knows roles and files' bytes."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.schemas import content_id
from c2b_ray.schemas.evaluate import SAID, SEEN
from c2b_ray.steps import encoded
from c2b_ray.steps.decode import decode_batch


def look_id(image_id: str, label: str, what: str, revision: str) -> str:
    return content_id("look", image_id, label, what, revision)


def embed_seen(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `SEEN`. `rows`: `look_id`, `image_id`, `bytes`, `error`."""
    vectors, errors = encoded.embedded(rows, encoder)
    columns = {
        "look_id": rows["look_id"],
        "image_id": rows["image_id"],
        "vector": pa.array(vectors, SEEN.field("vector").type),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns, SEEN)


def describe_mistakes(rows: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `SAID`. `rows`: as for `embed_seen`, and the `label` that the caption must name."""
    known, labels = rows["error"].to_pylist(), rows["label"].to_pylist()
    pixels, undecoded = decode_batch(encoded.files_of(rows))
    at = [row for row, image in enumerate(pixels) if image is not None]
    replies = captioner.caption([image for image in pixels if image is not None], [labels[row] for row in at])
    said = dict(zip(at, replies, strict=True))
    rows_of = [
        {
            "look_id": look,
            "image_id": image,
            "caption": said[row].text if row in said else None,
            "error": said[row].error if row in said else known[row] or undecoded[row],
        }
        for row, (look, image) in enumerate(zip(rows["look_id"].to_pylist(), rows["image_id"].to_pylist(), strict=True))
    ]
    return pa.Table.from_pylist(rows_of, SAID)
