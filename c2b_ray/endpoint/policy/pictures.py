"""Checks images of strangers by their first bytes and headers, and decodes no pixel."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from io import BytesIO

from PIL import ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from c2b_ray.config.policy import Policy
from c2b_ray.errors import ImageError

_FORMATS: tuple[tuple[str, bytes, type[ImageFile.ImageFile]], ...] = (
    ("JPEG", b"\xff\xd8\xff", JpegImagePlugin.JpegImageFile),
    ("PNG", b"\x89PNG\r\n\x1a\n", PngImagePlugin.PngImageFile),
    ("WebP", b"RIFF", WebPImagePlugin.WebPImageFile),
)


@dataclass(frozen=True)
class Picture:
    """The facts in an image's header."""

    format: str
    width: int
    height: int
    frames: int


def format_of(head: bytes) -> str:
    """Returns JPEG, PNG or WebP by the first twelve bytes. Raises ImageError for anything else."""
    for name, magic, _ in _FORMATS:
        if head.startswith(magic) and (name != "WebP" or head[8:12] == b"WEBP"):
            return name
    raise ImageError("not a JPEG, PNG or WebP image by its first bytes")


def check_picture(data: bytes, policy: Policy) -> Picture:
    """Returns the facts in an image's header. Raises ImageError if it is no image, too large, or has too many pixels or
    frames."""
    if len(data) > policy.image_bytes:
        raise ImageError(f"too large: more than {policy.image_bytes} bytes")
    name = format_of(data[:12])
    reader = next(reader for known, _, reader in _FORMATS if known == name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with reader(BytesIO(data), "") as image:
                picture = Picture(name, *image.size, frames=getattr(image, "n_frames", 1))
    except Exception as error:  # Pillow's readers raise many kinds of errors for malformed files
        raise ImageError(f"damaged: {str(error)[:200] or type(error).__name__}") from error
    if picture.width * picture.height > policy.image_pixels:
        pixels = f"{picture.width} × {picture.height} pixels"
        raise ImageError(f"too large: {pixels}, at most {policy.image_pixels} are decoded")
    if picture.frames > policy.image_frames:
        raise ImageError(f"{picture.frames} frames; at most {policy.image_frames}")
    return picture


def check_picture_file(path: str, policy: Policy) -> Picture:
    """Does `check_picture` for a file, and reads no more of it than an image may have."""
    with open(path, "rb") as file:
        return check_picture(file.read(policy.image_bytes + 1), policy)
