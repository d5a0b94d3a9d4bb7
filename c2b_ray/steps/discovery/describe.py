"""Describes failures: the captioner's text about each kept image. It knows only bytes and texts."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.roles import Captioner, CaptionReply
from c2b_ray.schemas import DESCRIPTIONS
from c2b_ray.steps.decode import decode_batch


def describe(images: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `schemas.DESCRIPTIONS`, a row per row of `images` (`description_id`, `label`, `image`).

    An image that cannot be decoded, or about which the captioner says nothing usable, has an error in its row.
    """
    decoded, errors = decode_batch(images["image"].to_pylist())
    good = [index for index, pixels in enumerate(decoded) if pixels is not None]
    labels = images["label"].to_pylist()
    replies = [CaptionReply(None, error) for error in errors]
    if good:
        shown = [pixels for pixels in decoded if pixels is not None]
        answered = captioner.caption(shown, [labels[index] for index in good])
        for index, reply in zip(good, answered, strict=True):
            replies[index] = reply
    columns = {
        "description_id": images["description_id"],
        "text": pa.array([reply.text for reply in replies], pa.string()),
        "error": pa.array([reply.error for reply in replies], pa.string()),
    }
    return pa.table(columns).cast(DESCRIPTIONS)
