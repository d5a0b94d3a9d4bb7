"""Where the images of a run come from: a generator, whose draws have no end, or the nearest images of an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from c2b_ray.audits.failures.discovery.candidates import Candidate
from c2b_ray.audits.failures.discovery.rounds import Draws, GeneratedDraws, LabelledDraws
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.engine.images import of_revision
from c2b_ray.roles import ImageGenerator, ImageIndex
from c2b_ray.tables import content_id


@dataclass(frozen=True)
class GeneratorSource:
    """`name`: the generator's spec. `load`: makes its draws where the stage runs."""

    name: str
    revision: str
    load: Callable[[], Draws]

    def rows(self, caption: Candidate, stage: str) -> Sequence[int] | None:
        return None


def generated(spec: str, models: Backend, seed: int) -> GeneratorSource:
    revision = models.describe("image_generator", spec).revision
    factory = partial(of_revision, models.image_generator(spec), revision, spec)
    return GeneratorSource(spec, revision, partial(_draws, factory, seed))


def _draws(generator: Callable[[], ImageGenerator], seed: int) -> Draws:
    return GeneratedDraws(generator(), seed)


@dataclass(frozen=True)
class IndexSource:
    """The images of an index nearest to a caption, in random order. `name`: the index's path."""

    name: str
    revision: str
    load: Callable[[], Draws]
    nearest: Mapping[str, Sequence[int]]

    def rows(self, caption: Candidate, stage: str) -> Sequence[int] | None:
        return self.nearest[caption.caption_id]


def indexed(path: str, captions: Sequence[Candidate], images: int, models: Backend) -> IndexSource:
    """`images` of the index for each caption."""
    index = models.index(path)()
    embeddings = models.text_encoder(index.encoder).encode_texts([caption.text for caption in captions])
    ids = index.search(embeddings, images).ids
    nearest = {}
    for caption, row in zip(captions, ids.tolist(), strict=True):
        there = [image for image in row if image >= 0]
        nearest[caption.caption_id] = sorted(there, key=lambda image: content_id("order", caption.caption_id, image))
    return IndexSource(path, index.revision, partial(_of_index, models.index(path)), nearest)


def _of_index(index: Callable[[], ImageIndex]) -> Draws:
    return LabelledDraws(index())
