"""Makes small JPEG thumbnails, as data: URIs, from encoded images.

Knows pixels and bytes; knows nothing of runs or of the pictures' content.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO

from PIL import Image

from c2b_ray.errors import ImageError
from c2b_ray.steps.decode import decode

LARGEST = 384  # pixels of the longer side: a page shows them small, and larger on a click
SMALL = 128  # where there are so many that the page would grow beyond what is sane
QUALITY = 80
MOST_CHARACTERS = 5_000_000


def thumbnail(data: bytes, largest: int = LARGEST) -> str:
    """Returns a data: URI of the image, its longer side at most `largest`, never enlarged. Raises ImageError as
    `decode` does."""
    return uri(small(data, largest))


def small(data: bytes, largest: int = LARGEST, quality: int = QUALITY) -> bytes:
    """Returns the image as a JPEG, its longer side at most `largest`, never enlarged. Raises ImageError as `decode`
    does."""
    image = Image.fromarray(decode(data))
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


def uri(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


def thumbnail_or_nothing(data: bytes, largest: int) -> str:
    """Returns the thumbnail; "" for what is no image."""
    try:
        return thumbnail(data, largest)
    except ImageError:
        return ""


def thumbnails(images: Mapping[str, bytes], most: int = MOST_CHARACTERS) -> dict[str, str]:
    """A thumbnail per image id, in that order: small ones once the larger have taken `most` characters; images that
    cannot be decoded are left out."""
    return {image_id: uri(jpeg) for image_id, jpeg in all_small(images, most).items()}


def all_small(images: Mapping[str, bytes], most: int = MOST_CHARACTERS) -> dict[str, bytes]:
    """Returns the JPEGs of `thumbnails`."""
    jpegs: dict[str, bytes] = {}
    taken = 0
    for image_id, data in images.items():
        try:
            jpegs[image_id] = small(data, LARGEST if taken < most else SMALL)
        except ImageError:
            continue
        taken += len(uri(jpegs[image_id]))
    return jpegs


# Pictures of one outcome side by side, as text: the caption of each, and the source of its bytes.


WRONG, RIGHT = "✗", "✓"


@dataclass(frozen=True)
class Picture:
    """`source` is a data: URI, empty where the image cannot be shown; `key` is the image's name in its source;
    `caption` is empty where all share one."""

    source: str
    key: str
    alt: str
    label: str
    probability: str
    stands_for: str
    caption: str


@dataclass(frozen=True)
class Gallery:
    verdict: str  # right, wrong
    sign: str
    title: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class ThumbnailSet:
    """The available thumbnails and keys of images, by id."""

    thumbnails: Mapping[str, str]
    keys: Mapping[str, str]
