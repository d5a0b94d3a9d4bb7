"""The stage of `c2b latent`: one search per row, each in a process that holds its generator and its classifier.

On Ray each search is a task. Reading, writing and resuming are left to `stage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from c2b_ray.audits.latent.search import Direction, SearchTask, Vectors, search_problems
from c2b_ray.config.latent import LatentConfig
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.stage import Rows, Runner, StageConfig, each_alone
from c2b_ray.models import catalog
from c2b_ray.roles import Captioner, Description, Floats
from c2b_ray.steps.classify import check_revision
from c2b_ray.steps.generate import ImageCounter
from c2b_ray.tables.latent import SEARCHES

IMAGES = ImageCounter()

SEARCH = StageConfig(SEARCHES, stage="generate", rows_per_file=1, weigh=each_alone, most_weight=1)


@dataclass(frozen=True)
class Specs:
    """The models of one problem, and by spec the revisions that they had when the run began."""

    generator: str
    classifier: str
    label: str | None
    references: tuple[str, ...]
    revisions: Mapping[str, str]


@dataclass
class LatentWork:
    """The models that a process holds; implements `audits.latent.search.SearchModels`. Each model is loaded once."""

    config: LatentConfig
    orders: Mapping[str, SearchTask]
    specs: Mapping[str, Specs]
    captioner: Captioner | None = None
    _loaded: dict[tuple[str, str], Any] = field(default_factory=dict)
    _spaces: dict[Any, Any] = field(default_factory=dict)

    def order(self, search_id: str) -> SearchTask:
        return self.orders[search_id]

    def space(self, order: SearchTask) -> Any:
        return self.space_of(self.specs[order.problem])

    def space_of(self, specs: Specs) -> Any:
        key = (specs.generator, specs.classifier, specs.label, specs.references)
        if key not in self._spaces:
            from c2b_ray.models.latent.space import Space

            references = [self._model("classifier", spec, specs) for spec in specs.references]
            generator = self._model("latent_generator", specs.generator, specs)
            classifier = self._model("classifier", specs.classifier, specs)
            self._spaces[key] = Space(generator, classifier, specs.label, references)
            self._spaces[key].on_images = IMAGES.add
        return self._spaces[key]

    def find(self, space: Any, method: str, order: SearchTask, kept: Vectors, seed: int) -> Direction:
        from c2b_ray.models.latent.finder import find
        from c2b_ray.models.latent.search import Constraints

        rows = order.others.reshape(-1, space.dimension)
        return find(space, method, self.config.search, Constraints(rows, kept, order.target), seed)

    def total_variation(self, space: Any, latents: Floats, normal: Vectors) -> float:
        from c2b_ray.models.latent.baselines import total_variation

        return total_variation(space, latents, normal, self.config.search)

    def _model(self, role: str, spec: str, specs: Specs) -> Any:
        if (role, spec) not in self._loaded:
            from c2b_ray.models.gradients import gradient_classifier

            model: Any = catalog.load(role, spec) if role != "classifier" else gradient_classifier(spec)
            check_revision(spec, model.revision, specs.revisions.get(spec, model.revision))
            self._loaded[role, spec] = model
        return self._loaded[role, spec]


def search_all(
    runner: Runner,
    rows: Sequence[Mapping[str, str]],
    work: tuple[LatentConfig, Mapping[str, SearchTask], Mapping[str, Specs]],
    out: str,
    on_progress: OnProgress,
) -> None:
    """Writes a row of `tables.latent.SEARCHES` per row (`search_id`, `problem`, `method`) into parts under `out`."""
    schema = pa.schema([SEARCHES.field(name) for name in ("search_id", "problem", "method")])
    blocks = [pa.Table.from_pylist([dict(row)], schema) for row in rows]
    runner.run(
        Rows(blocks, total=len(blocks)),
        search_problems,
        partial(_load, *work),
        out,
        id_column="search_id",
        config=SEARCH,
        on_progress=on_progress,
    )


def labelled_by_references(config: LatentConfig, specs: Specs, count: int, seed: int) -> tuple[Floats, Any]:
    """Returns `count` latents of the prior, and for each whether the references' mean P(label) of its image is above
    one half (bool)."""
    space = LatentWork(config, {}, {"": specs}).space_of(specs)
    latents = space.sample(count, seed)
    return latents, space.answers(latents)[:, 1:].mean(axis=1) > 0.5


def described(spec: str) -> Description:
    """Returns a latent generator's description. The generator is loaded only if no other source describes it."""
    return catalog.described("latent_generator", spec)


def _load(config: LatentConfig, orders: Mapping[str, SearchTask], specs: Mapping[str, Specs]) -> LatentWork:
    captioner = catalog.captioner(config.captioner) if config.captioner is not None else None
    return LatentWork(config, orders, specs, captioner)
