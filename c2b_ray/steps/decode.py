"""Encoded bytes to upright RGB pixels, or the reason why not.

It knows file formats and nothing of where the bytes came from or which model looks at the pixels: nothing is resized
here. Everything that would change a picture in silence is refused instead: half of a truncated file, one frame of an
animation, a range of brightness that the file does not state.

    JPEG (also CMYK), PNG, WebP, AVIF, GIF, BMP, TIFF, PPM   accepted, told apart by content, never by name
    HEIC                                                 accepted with the extra `heic`; of several pictures, which are
                                                         no animation, the one that the file names as the primary one
    grey, palette                                        repeated or looked up into three channels
    transparency                                         laid over white
    16 bits a channel                                    scaled to 8 bits (v × 255 / 65535), not clipped
    EXIF orientation                                     applied; an unreadable EXIF block counts as upright
    colour profiles                                      ignored, as the classifiers' own loaders do

Pillow has the last word on what is damaged. The pixels of an upright, undamaged JPEG come from libjpeg-turbo without
Pillow in between: the same library and the same pixels, in two thirds of the time.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Literal

import numpy as np
import pyarrow as pa
import simplejpeg
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    ImageOps,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from c2b_ray.errors import ImageError
from c2b_ray.extras import needed_by
from c2b_ray.jpeg_header import read_header
from c2b_ray.roles import Pixels

MAX_BYTES = 64 * 2**20
MAX_PIXELS = 64 * 10**6
BATCH_PIXELS = MAX_PIXELS
"""The most pixels of the images that are decoded at once: 192 MB, whether they are thousands or one."""

# The classes are called directly, not through Image.open, which would warn about sizes before our check, and open a
# telephone's two-picture JPEG as an animation.
_FORMATS: tuple[tuple[type[ImageFile.ImageFile], tuple[bytes, ...]], ...] = (
    (JpegImagePlugin.JpegImageFile, (b"\xff\xd8\xff",)),
    (PngImagePlugin.PngImageFile, (b"\x89PNG\r\n\x1a\n",)),
    (WebPImagePlugin.WebPImageFile, (b"RIFF",)),
    (GifImagePlugin.GifImageFile, (b"GIF87a", b"GIF89a")),
    (BmpImagePlugin.BmpImageFile, (b"BM",)),
    (TiffImagePlugin.TiffImageFile, (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    (PpmImagePlugin.PpmImageFile, (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6")),
)
_LONGEST_BOX = 256
# A thread for each core would compete with the other images that are decoded beside this one.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def decode(data: bytes, max_bytes: int = MAX_BYTES, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Returns the image as uint8 (height, width, 3), RGB, upright, writable.

    `max_bytes` and `max_pixels` limit the file and width × height; both are checked before any pixel is decoded. Raises
    ImageError, with the reason, for anything that is not one whole image.
    """
    return _decode(data, max_bytes, max_pixels, lambda _: 1)[0]


def decode_reduced(data: bytes, least: int) -> tuple[Pixels, tuple[int, int]]:
    """Returns what `decode` returns, and the picture's height and width; an upright JPEG may be reduced to 1/2, 1/4 or
    1/8.

    No side is then below `least` pixels. libjpeg scales it before the inverse transform, in half of the time or less.
    Raises ImageError for the same files.
    """
    return _decode(data, MAX_BYTES, MAX_PIXELS, lambda size: _reduction(min(size), least))


def decode_to_show(data: bytes, largest: int) -> Pixels:
    """Returns what `decode` returns, from which a thumbnail is made whose longer side is `largest`: an upright JPEG may
    be reduced to 1/2, 1/4 or 1/8, with a longer side of at least twice as much.

    Resampled from there, a thumbnail looks as from the whole picture; it is the gap that Pillow's own
    `Image.thumbnail` leaves. Raises ImageError for the same files.
    """
    return _decode(data, MAX_BYTES, MAX_PIXELS, lambda size: _reduction(max(size), 2 * largest))[0]


def _decode(
    data: bytes, max_bytes: int, max_pixels: int, factor: Callable[[tuple[int, int]], int]
) -> tuple[Pixels, tuple[int, int]]:
    """`factor`: by which a picture of this size may be reduced."""
    if not data:
        raise ImageError("empty: zero bytes")
    if len(data) > max_bytes:
        raise ImageError(f"too large: {len(data)} bytes, at most {max_bytes} are decoded")
    size = _size_of_plain(data)
    if size is not None and size[0] * size[1] <= max_pixels:
        pixels = _turbo(data, size, factor(size))
        if pixels is not None:
            return pixels, (size[1], size[0])
    try:
        with _quiet(), _opened(data) as image:
            _refuse(image, max_pixels)
            if size is None and image.format == "JPEG" and image.mode in ("RGB", "L") and _is_upright(image):
                reduced = _turbo(data, image.size, factor(image.size))
                if reduced is not None:
                    return reduced, (image.size[1], image.size[0])
            pixels = _pixels(image)
            return pixels, (pixels.shape[0], pixels.shape[1])
    except ImageError:
        raise
    # Pillow's readers answer malformed files with whatever exception the malformation causes.
    except Exception as error:
        raise ImageError(f"damaged or truncated: {str(error) or type(error).__name__}") from error


def decode_batch(
    batch: Sequence[bytes | None], max_bytes: int = MAX_BYTES, max_pixels: int = MAX_PIXELS
) -> tuple[list[Pixels | None], list[str | None]]:
    """Returns the pixels of each row, and the error of each row, as `decoded` does."""
    pairs = [decoded(data, max_bytes, max_pixels) for data in batch]
    return [pixels for pixels, _ in pairs], [error for _, error in pairs]


def decoded(
    data: bytes | None, max_bytes: int = MAX_BYTES, max_pixels: int = MAX_PIXELS
) -> tuple[Pixels | None, str | None]:
    """Returns the pixels of an image and why there are none: exactly one of the two is None. None has no bytes."""
    if data is None:
        return None, "no bytes"
    try:
        return decode(data, max_bytes, max_pixels), None
    except ImageError as reason:
        return None, str(reason)


def pixels_of(images: pa.Table) -> list[int]:
    """Returns the number of pixels that each row decodes to, by `pixels` or the header of its `bytes`; 0 where nothing
    will be decoded.

    Of rows with neither column, which hold a place or pixels of their own size, all weigh 0.
    """
    nulls: list[None] = [None] * images.num_rows
    counts, data = (images[name].to_pylist() if name in images.column_names else nulls for name in ("pixels", "bytes"))
    return [pixel_count(row_data) if count is None else count for count, row_data in zip(counts, data, strict=True)]


def pixel_count(data: bytes | None) -> int:
    """Returns the number of pixels that `data` decodes to, by its header; 0 where it will not be decoded."""
    if not data or len(data) > MAX_BYTES:
        return 0
    try:
        if data.startswith(b"\xff\xd8\xff"):  # a tenth of the time that Pillow takes
            height, width, *_ = simplejpeg.decode_jpeg_header(data)
        else:
            with _quiet(), _opened(data) as image:
                width, height = image.size
    except Exception:  # as in decode, which says what it is
        return 0
    return width * height if width * height <= MAX_PIXELS else 0


def _opened(data: bytes) -> ImageFile.ImageFile:
    """Opens the file: its header is read, but no pixel decoded."""
    for reader, prefixes in _FORMATS:
        if data.startswith(prefixes) and (prefixes != (b"RIFF",) or data[8:12] == b"WEBP"):
            return reader(BytesIO(data), "")
    kind = media_picture(data)
    if kind == "heic":
        with needed_by("a HEIC picture", ImageError):
            from pillow_heif import HeifImageFile
        opened: ImageFile.ImageFile = HeifImageFile(BytesIO(data), "")  # type: ignore[no-untyped-call]
        return opened
    if kind == "avif":
        return AvifImagePlugin.AvifImageFile(BytesIO(data), "")
    raise ImageError("not an image of a known format (JPEG, PNG, WebP, AVIF, HEIC, GIF, BMP, TIFF, PPM)")


def media_picture(data: bytes) -> Literal["avif", "heic"] | None:
    """Returns which picture in an ISO media file `data` is, by the brands of its first box; None for anything else,
    films included."""
    if data[4:8] != b"ftyp":
        return None
    # The box: its length, its name, the major brand, a version, the brands of readers that understand the file.
    brands = {data[start : start + 4] for start in range(8, min(int.from_bytes(data[:4]), _LONGEST_BOX), 4)}
    if brands & {b"heic", b"heix", b"heim", b"heis"}:
        return "heic"
    return "avif" if brands & {b"avif", b"avis"} else None


def _refuse(image: ImageFile.ImageFile, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise ImageError(f"too large: {width} × {height} pixels, at most {max_pixels} are decoded")
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "HEIF":
        kind = "several pages" if isinstance(image, TiffImagePlugin.TiffImageFile) else "animated"
        raise ImageError(f"{kind}: {frames} frames; give single frames")


def _reduction(side: int, least: int) -> int:
    return next((factor for factor in (8, 4, 2) if side >= factor * least), 1)


def _size_of_plain(data: bytes) -> tuple[int, int] | None:
    """Returns width and height of a JPEG of 8 bits, grey or of three colours, that is upright by its own markers; None
    for everything else.

    Most pictures of data sets are such, and Pillow takes as long to open one as its fingerprint takes.
    """
    header = read_header(data)
    if header is None or header.bits != 8 or header.components not in (1, 3) or header.orientation != 1:
        return None
    return header.width, header.height


def _turbo(data: bytes, size: tuple[int, int], factor: int) -> Pixels | None:
    """Returns the pixels of a JPEG of this width and height that needs only decoding, at 1/`factor` of its size; None
    where it is damaged."""
    width, height = (math.ceil(side / factor) for side in size)
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width, min_factor=factor)
    except ValueError:  # damage, some of which Pillow forgives
        return None
    return pixels if pixels.shape[:2] == (height, width) else None


def _is_upright(image: ImageFile.ImageFile) -> bool:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1)) == 1
    except Exception:  # as for _upright
        return True


def _pixels(image: ImageFile.ImageFile) -> Pixels:
    depth = _bits(image)
    image.load()
    upright = _upright(image)
    return np.array(_rgb(upright, depth), dtype=np.uint8)


def _bits(image: ImageFile.ImageFile) -> int:
    """Returns the bits of a grey sample where Pillow keeps samples as they are (modes I;16 and I); 16 except in
    a TIFF."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        sample = image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (16,))
        return int(sample[0] if isinstance(sample, tuple) else sample)
    return 16


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # a camera's broken EXIF block says nothing of the picture
        return image


def _rgb(image: Image.Image, bits: int) -> Image.Image:
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ImageError(f"pixels of mode {image.mode!r} state no range of brightness; save as 8 or 16 bits a channel")
    if image.mode.startswith("I"):
        return _grey_from_deep(image, bits).convert("RGB")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        ground = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(ground, rgba).convert("RGB")
    return image.convert("RGB")


def _grey_from_deep(image: Image.Image, bits: int) -> Image.Image:
    # Pillow's own conversion clips every value above 255 to white.
    deep = np.asarray(image).astype(np.float32)
    grey = np.rint(deep * (255 / (2**bits - 1))).astype(np.uint8)
    if isinstance(transparent := image.info.get("transparency"), int):
        grey[deep == transparent] = 255
    return Image.fromarray(grey)


_quiet_lock = threading.Lock()
_quiet_inside = 0
_quiet_filters = warnings.catch_warnings()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses Pillow's warnings about files that are refused or accepted here anyway.

    warnings.catch_warnings restores the wrong filters when threads overlap, so the first thread in sets them and the
    last one out restores them.
    """
    global _quiet_inside, _quiet_filters
    with _quiet_lock:
        if _quiet_inside == 0:
            _quiet_filters = warnings.catch_warnings()
            _quiet_filters.__enter__()
            warnings.simplefilter("ignore")
        _quiet_inside += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_inside -= 1
            if _quiet_inside == 0:
                _quiet_filters.__exit__(None, None, None)
