"""Where the images of a run lie as files, if they do: below the folder of its labelled table.

An index's images are copied, for most indices hold them inside their parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.errors import InputError
from c2b_ray.storage import is_remote
from c2b_ray.storage.labelled import LabelledTable, table_opener

CHUNK = 256
"""Images whose bytes are in memory at once."""


@dataclass
class Place:
    """The source of a run's images. `opened`: None where they lie in no files of their own, or these are gone."""

    opened: LabelledTable | None

    def locations(self, rows: Sequence[int]) -> list[str | None]:
        """Returns the path or URI of the image of each row of the source; None where there is none."""
        return [None] * len(rows) if self.opened is None else self.opened.locations(rows)

    @property
    def root(self) -> str:
        """The folder above the files; "" where there is none, or they lie in a store."""
        if self.opened is None or is_remote(folder := self.opened.root or self.opened.location):
            return ""
        path = os.path.realpath(folder)
        return path if os.path.isdir(path) else os.path.dirname(path)


def place_of(images: Any) -> Place:
    """Returns the place of the images of a config's section `images`, given as its fields."""
    if not isinstance(images, Mapping) or images.get("table") is None:
        return Place(None)
    return Place(_or_none(table_opener(images)))


def _or_none(load: Callable[[], LabelledTable]) -> LabelledTable | None:
    try:
        return load()
    except (InputError, OSError):  # moved, or of another form, since the run read it
        return None
