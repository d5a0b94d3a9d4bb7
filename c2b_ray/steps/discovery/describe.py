"""Describes failures: the captioner's text about each kept image. It knows only bytes and texts."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.errors import ImageError
from c2b_ray.roles import Captioner, CaptionReply, Pixels
from c2b_ray.schemas import DESCRIPTIONS
from c2b_ray.steps.decode import decode


def describe(images: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `schemas.DESCRIPTIONS`, a row per row of `images` (`description_id`, `label`, `image`).

    An image that cannot be decoded, or about which the captioner says nothing usable, has an error in its row.
    """
    decoded = [_pixels(data) for data in images["image"].to_pylist()]
    good = [index for index, pixels in enumerate(decoded) if not isinstance(pixels, str)]
    labels = images["label"].to_pylist()
    replies = [CaptionReply(None, pixels if isinstance(pixels, str) else None) for pixels in decoded]
    if good:
        shown = [pixels for pixels in decoded if not isinstance(pixels, str)]
        answered = captioner.caption(shown, [labels[index] for index in good])
        for index, reply in zip(good, answered, strict=True):
            replies[index] = reply
    columns = {
        "description_id": images["description_id"],
        "text": pa.array([reply.text for reply in replies], pa.string()),
        "error": pa.array([reply.error for reply in replies], pa.string()),
    }
    return pa.table(columns).cast(DESCRIPTIONS)


def _pixels(data: bytes) -> Pixels | str:
    try:
        return decode(data)
    except ImageError as reason:
        return str(reason)
