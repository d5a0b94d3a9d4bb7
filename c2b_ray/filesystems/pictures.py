"""Which files of a folder are pictures, by their names, and what is left out: by reason, with a count and an example.

It knows names and opens no file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from c2b_ray.extras import INSTALL

_HEIC = (".heic", ".heif", ".hif")
IMAGES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".pjpeg", ".pjp", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif",
    ".tiff", ".ppm", *(_HEIC if find_spec("pillow_heif") else ()),
)  # fmt: skip
"""The endings of pictures that are read, in lower case; HEIC, the format of telephones, with the extra `heic`."""

_OTHER_PICTURES = frozenset(
    [".jxl", ".svg", ".psd", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf",
     ".rw2", ".jp2", ".j2k", ".tga", ".ico", ".exr", ".hdr", ".pgm", ".pbm", ".pnm", ".dib", ".apng", ".eps"]
)  # fmt: skip
_ARCHIVES = frozenset([".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst"])
_LISTED = 3


@dataclass
class LeftOut:
    """What a source does not give: reason → how many, with the first example of each. `notes`: what else is odd."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, reason: str, example: str = "", count: int = 1) -> None:
        if count:
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.examples.setdefault(reason, example)

    def add_files(self, names: Iterable[str], used: Iterable[str] = ()) -> None:
        """Adds files that are no pictures, in the order of their names; `used`: those that are read all the same."""
        known = set(used)
        for name in sorted(names):
            if name not in known:
                self.add(reason_of(name), name)

    def merge(self, other: LeftOut) -> None:
        for reason, count in other.counts.items():
            self.add(reason, other.examples[reason], count)
        self.notes += other.notes

    def sentences(self) -> Iterator[str]:
        """Yields a sentence for each reason, in the order in which they were met, and the notes."""
        for reason, count in self.counts.items():
            example = f", such as {self.examples[reason]!r}" if self.examples[reason] else ""
            yield f"left out: {count:,} × {reason}{example}"
        yield from self.notes

    def as_dict(self) -> dict[str, int]:
        return dict(self.counts)


def said(left_out: Mapping[str, int]) -> str:
    """Returns the reasons and counts in one line."""
    return "; ".join(f"{count:,} × {reason}" for reason, count in left_out.items())


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGES)


def is_hidden(name: str) -> bool:
    """Returns whether any part of the path begins with a dot, or is what macOS adds to archives."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/") if part not in (".", ".."))


def reason_of(name: str) -> str:
    """Returns why a file that is no picture is left out, and what to do."""
    suffix = posixpath.splitext(name)[1].lower()
    if is_hidden(name):
        return "hidden file or folder (its name begins with a dot, or is __MACOSX)"
    if suffix in _HEIC:
        return f"{suffix} picture, which needs a package more (pip install {INSTALL['pillow_heif']})"
    if suffix in _OTHER_PICTURES:
        return f"{suffix} picture, a format that is not read (convert it to JPEG or PNG)"
    if suffix in _ARCHIVES:
        return f"{suffix} archive (unpack it)"
    if not suffix:
        return "file without a suffix (if it is a picture, add .jpg or .png to its name)"
    return f"{suffix} file (no picture by its suffix)"
