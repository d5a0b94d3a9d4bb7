"""Decides from verifications whether an image shows what a caption says: its class and its value, or both values of a
pair.

It knows what captions say and what a verifier answered; `select` decides which images are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.steps.intersect import INTERSECTION, of_run

COLUMNS = ["image_id", "target_class", "class_shown", "attributes", "values", "error"]
"""The columns of `schemas.VERIFICATIONS` that `accepts` needs."""


@dataclass(frozen=True)
class Content:
    """What an image of a caption must show: the class, and a value of each attribute."""

    target_class: str
    values: Mapping[str, str]


def contents(proposals: pa.Table, captions: pa.Table) -> dict[str, Content]:
    """Returns caption id → what its images must show; for a pair's caption, a value of each of the two attributes."""
    pairs = {
        (pair.proposal_id, f"{x}, {y}"): {pair.a["attribute"]: x, pair.b["attribute"]: y}
        for pair in of_run(proposals, captions)
        for x, y in pair.cells()
    }
    return {
        row["caption_id"]: Content(
            row["target_class"],
            pairs[row["proposal_id"], row["bias_class"]]
            if row["kind"] == INTERSECTION
            else {row["attribute"]: row["bias_class"]},
        )
        for row in captions.to_pylist()
    }


class VerificationRow(TypedDict):
    """A row of `schemas.VERIFICATIONS` with COLUMNS. `class_shown` is None where the verifier was not asked for the
    class."""

    image_id: str
    target_class: str
    class_shown: str | None
    attributes: list[str]
    values: list[str | None]
    error: str | None


def accepts(verification: VerificationRow, content: Content) -> bool:
    """Returns whether the verifier saw the content's class and values. `verification` was made for that class.

    An image is refused where the verifier was asked about an attribute and gave no answer or another value. Class and
    attributes that the verifier was not asked about count as shown.
    """
    if verification["error"] is not None or verification["class_shown"] not in (None, content.target_class):
        return False
    shown = dict(zip(verification["attributes"], verification["values"], strict=True))
    return all(shown[name] == value for name, value in content.values.items() if name in shown)


class SeenImages:
    """The images of a run that were looked at: fetched or generated and, where there is a verifier, verified.

    `images`: reads columns of a table with `image_id` and `fingerprint`; fingerprints take ten times the memory of the
    ids, and are read only where pictures are compared. `verifications`: a table with COLUMNS; None: there is no
    verifier, and every image counts as showing what its caption says. `absent`: tells which image ids have no image,
    where the caller can tell it without holding all ids as text.
    """

    def __init__(
        self,
        images: Callable[[list[str]], pa.Table],
        verifications: pa.Table | None,
        contents: Mapping[str, Content],
        absent: Callable[[pa.Array], NDArray[np.bool_]] | None = None,
    ) -> None:
        self._images = images
        self.absent = absent or self._not_read
        self._contents = contents
        self._verified: dict[tuple[str, str], VerificationRow] | None = None
        if verifications is not None:
            rows = verifications.select(COLUMNS).to_pylist()
            self._verified = {(row["image_id"], row["target_class"]): row for row in rows}

    @cached_property
    def _fingerprints(self) -> dict[str, bytes | None]:
        table = self._images(["image_id", "fingerprint"])
        columns = (table[name].to_pylist() for name in ("image_id", "fingerprint"))
        return dict(zip(*columns, strict=True))

    def lacking(self, draws: pa.Table) -> NDArray[np.bool_]:
        """Returns which of the draws have images that were not looked at."""
        if self._verified is not None:
            columns = (draws[name].to_pylist() for name in ("image_id", "caption_id"))
            return np.array([not self.looked_at(*pair) for pair in zip(*columns, strict=True)], bool)
        return self.absent(draws["image_id"].combine_chunks())

    def _not_read(self, ids: pa.Array) -> NDArray[np.bool_]:
        there = self._images(["image_id"])["image_id"].combine_chunks()
        return ~np.asarray(pc.is_in(ids, there.cast(pa.string())))

    def looked_at(self, image: str, caption: str) -> bool:
        if self._verified is not None and (image, self._contents[caption].target_class) not in self._verified:
            return False
        return image in self._fingerprints

    def accepts(self, image: str, caption: str) -> bool:
        content = self._contents[caption]
        return self._verified is None or accepts(self._verified[image, content.target_class], content)

    def fingerprint(self, image: str) -> bytes | None:
        """Returns the fingerprint; None for an image that is no picture or was not looked at."""
        return self._fingerprints.get(image)
