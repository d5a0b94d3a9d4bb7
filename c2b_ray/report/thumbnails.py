"""Encoded images to small JPEG thumbnails as data: URIs.

Knows pixels and bytes; knows nothing of runs or of what the pictures show.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from io import BytesIO

from PIL import Image

from c2b_ray.errors import ImageError
from c2b_ray.steps.decode import decode

LARGEST = 128  # pixels of the longer side
QUALITY = 82


def thumbnail(data: bytes) -> str:
    """A data: URI of the image, its longer side at most `LARGEST`, never enlarged. ImageError as `decode` raises."""
    image = Image.fromarray(decode(data))
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def thumbnails(images: Mapping[str, bytes]) -> dict[str, str]:
    """A thumbnail per image id; images that cannot be decoded are left out."""
    found = {}
    for image_id, data in images.items():
        try:
            found[image_id] = thumbnail(data)
        except ImageError:
            continue
    return found
