"""The sources of a dataset's images: a generator, the nearest images of an index, or rows of a labelled table.

Each gives draws: image number `draw` of a caption is always the same one. It does not know what is done with the
images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from c2b_ray.roles import GenerationRequest, ImageGenerator, ImageIndex, Pixels, TextEncoder
from c2b_ray.steps.decode import decoded
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.generate import images_of, png

PNG_LEVEL = 3
"""zlib's level. Higher ones take twice the time and save a hundredth of the bytes."""


@dataclass(frozen=True)
class Caption:
    """`number`: in the plan, from 0. `rows`: of a labelled table, the images that take the place of its draws."""

    number: int
    label: str
    text: str
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PlannedSample:
    """One image to be drawn. `draw`: its number among the caption's draws. `of_source`: among those of its source."""

    caption: Caption
    draw: int
    of_source: int
    seed: int


@dataclass(frozen=True)
class SampledImage:
    """One draw: `seed` (for an image that was not generated, its row), its key in the source, and `pixels` or, in
    `error`, why there are none. `data`: the image as its source encodes it; None: it has to be encoded."""

    seed: int
    key: str
    pixels: Pixels | None
    data: bytes | None = None
    error: str | None = None

    def encoded(self) -> bytes:
        if self.data is not None:
            return self.data
        assert self.pixels is not None
        return png(self.pixels, PNG_LEVEL)


class DrawSource(Protocol):
    @property
    def name(self) -> str:
        """The generator's spec, or the path of the images' source."""
        ...

    @property
    def revision(self) -> str: ...

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        """Returns one image for each wanted one, in their order."""
        ...


@dataclass(frozen=True)
class GeneratedSource:
    name: str
    generator: ImageGenerator

    @property
    def revision(self) -> str:
        return self.generator.revision

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        requests = [GenerationRequest(sample.caption.text, sample.seed) for sample in wanted]
        return [
            SampledImage(sample.seed, f"{sample.caption.text} (seed {sample.seed})", image.pixels, error=image.error)
            for sample, image in zip(wanted, images_of(self.generator, requests, self.name), strict=True)
        ]


@dataclass(frozen=True)
class FromTable:
    """Rows of a labelled table. Draw i of a caption is the i-th of its rows."""

    name: str
    table: ImageSource

    @property
    def revision(self) -> str:
        return self.table.revision

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        rows = [sample.caption.rows[sample.of_source] for sample in wanted if sample.caption.rows is not None]
        return _decoded(rows, self.table.fetch(rows))


@dataclass(frozen=True)
class Nearest:
    """Images of an index. Draw i of a caption is its i-th nearest image. `most`: the draws of a caption."""

    name: str
    encoder: TextEncoder
    index: ImageIndex
    most: int
    _ranked: dict[str, list[int]] = field(default_factory=dict)

    @property
    def revision(self) -> str:
        return self.index.revision

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        texts = dict.fromkeys(sample.caption.text for sample in wanted)
        for stale in self._ranked.keys() - texts.keys():
            del self._ranked[stale]
        for text in texts:
            if text not in self._ranked:  # alone: in a batch its embedding is rounded otherwise, and ties may differ
                neighbours = self.index.search(self.encoder.encode_texts([text]), self.most)
                self._ranked[text] = [number for number in neighbours.ids[0].tolist() if number >= 0]
        ids = [_at(self._ranked[sample.caption.text], sample.of_source) for sample in wanted]
        found = [number for number in ids if number is not None]
        fetched = iter(_decoded(found, self.index.fetch(found)) if found else [])
        none = SampledImage(-1, "", None, error="the index has no more images")
        return [none if number is None else next(fetched) for number in ids]


def _at(ids: list[int], index: int) -> int | None:
    return ids[index] if index < len(ids) else None


def _decoded(rows: Sequence[int], images: pa.Table) -> list[SampledImage]:
    errors = images["error"].to_pylist() if "error" in images.column_names else [None] * len(rows)
    result = []
    for row, key, data, error in zip(rows, images["key"].to_pylist(), images["bytes"].to_pylist(), errors, strict=True):
        pixels, reason = (None, error) if data is None and error else decoded(data)
        result.append(SampledImage(row, key, pixels, data, reason))
    return result
