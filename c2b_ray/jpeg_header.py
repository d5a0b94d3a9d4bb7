"""What a JPEG's markers say (ITU T.81, JFIF, Exif, XMP, Adobe), read in some microseconds without decoding.

Knows bytes; imports no decoder.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a length
_FRAMES = frozenset((*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)))
_SEQUENTIAL = frozenset((0xC0, 0xC1))
_START, _SCAN, _APP1, _APP14, _END = b"\xff\xd8", 0xDA, 0xE1, 0xEE, b"\xff\xd9"
_ORIENTATION = 0x0112
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


@dataclass(frozen=True)
class JpegHeader:
    """`components`: 1 grey, 3 colour, 4 CMYK. `sequential`: one pass of Huffman codes, neither progressive nor
    arithmetic. `orientation`: Exif's, 1 upright; 0 where it is not
    known, or only XMP states it. `transformed`: whether three components are luminance and colour
    differences, not red, green and blue."""

    width: int
    height: int
    components: int
    bits: int
    sequential: bool
    orientation: int
    transformed: bool

    @property
    def plain(self) -> bool:
        """Whether every decoder of JPEGs gives the picture as it is meant: 8 bits, sequential, upright, grey or with
        colour differences."""
        is_baseline = self.bits == 8 and self.sequential and self.orientation == 1
        return is_baseline and (self.components == 1 or (self.components == 3 and self.transformed))


def read_header(data: bytes) -> JpegHeader | None:
    """Returns the header of a whole JPEG: from its first marker to the end marker that closes the file. None for
    anything else, such as a file that was cut short."""
    if data[:2] != _START or not data[-64:].rstrip(b"\0").endswith(_END):
        return None
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError):
        return None


def _read(data: bytes) -> JpegHeader | None:
    offset, orientation, is_turned_by_xmp, frame = 2, 1, False, None
    adobe: int | None = None
    while True:
        if data[offset] != 0xFF:
            return None
        marker = data[offset + 1]
        offset += 1
        if marker == 0xFF:  # filling
            continue
        offset += 1
        if marker in _ALONE:
            continue
        (length,) = struct.unpack_from(">H", data, offset)
        if marker == _SCAN:
            break
        if marker in _FRAMES:
            if frame is not None:
                return None
            frame = (marker, *struct.unpack_from(">BHHB", data, offset + 2), data[offset + 8 : offset + length])
        elif marker == _APP1 and data[offset + 2 : offset + 8] == b"Exif\0\0":
            orientation = _orientation(data[offset + 8 : offset + length])
        elif marker == _APP1 and data.startswith(_XMP, offset + 2):
            is_turned_by_xmp = b"tiff:Orientation" in data[offset : offset + length]
        elif marker == _APP14 and data[offset + 2 : offset + 7] == b"Adobe":
            adobe = data[offset + 13]
        offset += length
    if frame is None:
        return None
    marker, bits, height, width, components, parts = frame
    if not width or not height:
        return None
    # As libjpeg decides: Adobe's marker says it; without one, components named R, G and B are just that.
    named_rgb = bytes(parts[0::3]) == b"RGB"
    transformed = components == 3 and (adobe == 1 if adobe is not None else not named_rgb)
    orientation = 0 if is_turned_by_xmp else orientation
    return JpegHeader(width, height, components, bits, marker in _SEQUENTIAL, orientation, transformed)


def _orientation(tiff: bytes) -> int:
    """Returns the orientation of an Exif block; 1 where it says none; 0 where it cannot be read here."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 0
    (first,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, first)
    for entry in range(count):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, first + 2 + 12 * entry)
        if tag == _ORIENTATION:
            return int(value) if kind == 3 else 0
    return 1
