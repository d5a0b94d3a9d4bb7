"""Pictures of one outcome side by side, as text: the caption of each, and the source of its bytes.

Knows thumbnails by id; knows nothing of tables, files or pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
class Shelf:
    """The available thumbnails and keys of images, by id."""

    thumbnails: Mapping[str, str]
    keys: Mapping[str, str]
