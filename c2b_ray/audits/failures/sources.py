"""Where the images of a run come from: a generator, whose draws have no end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.pipelines.images import of_revision
from c2b_ray.roles import ImageGenerator
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.rounds import Draws, GeneratedDraws


@dataclass(frozen=True)
class Generated:
    """`name`: the generator's spec. `load`: makes its draws where the stage runs."""

    name: str
    revision: str
    load: Callable[[], Draws]

    def rows(self, caption: Candidate, stage: str) -> Sequence[int] | None:
        return None


def generated(spec: str, models: Backend, seed: int) -> Generated:
    revision = models.describe("image_generator", spec).revision
    factory = partial(of_revision, models.image_generator(spec), revision, spec)
    return Generated(spec, revision, partial(_draws, factory, seed))


def _draws(generator: Callable[[], ImageGenerator], seed: int) -> Draws:
    return GeneratedDraws(generator(), seed)
