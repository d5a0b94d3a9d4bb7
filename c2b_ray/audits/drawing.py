"""Where an audit's images come from: one plan per source, whose first images are drawn first.

A plan says which images every caption may get, in which order, and how they are had. It composes steps, models and the
run, and does not know how many images are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.backend import Backend
from c2b_ray.audits.events import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.pipelines import images as pipeline
from c2b_ray.schemas import seed_of
from c2b_ray.steps.draw import ImageSource, generated, labelled, labelled_pairs, retrieve, together
from c2b_ray.steps.intersect import pairs
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.store.run import Run

Collect = Callable[[pa.Table, str, pipeline.OnProgress], object]


@dataclass(frozen=True)
class Plan:
    """`draws`: of `schemas.DRAWS`; an image of rank r is drawn once its caption is granted more than r images.

    `wanted`: what `collect` is given of each image, by `image_id`; `doing` says so to people.
    """

    draws: pa.Table
    wanted: pa.Table
    collect: Collect
    doing: str

    def drawn(self, granted: Mapping[str, int]) -> pa.Table:
        """The draws of captions that were granted so many images."""
        most = [granted[caption] for caption in self.draws["caption_id"].to_pylist()]
        return self.draws.filter(pc.less(self.draws["rank"], pa.array(most, pa.int32())))

    def gather(self, draws: pa.Table, run: Run, steps: Steps) -> None:
        """Collects the images of these draws into the run, those that it lacks."""
        needed = self.wanted.filter(pc.is_in(self.wanted["image_id"], draws["image_id"].combine_chunks()))
        with steps.step(self.doing) as on_progress:
            self.collect(needed, run.location("images"), on_progress)


def from_labels(asked: AuditConfig, run: Run, steps: Steps) -> Plan:
    """Proposals and captions from the columns of a labelled table, written to the run, and its rows as images."""
    path = str(asked.images.table)
    with steps.step("read labels"):
        table = LabelledTable(path)
        bounded = "images_per_caption" in asked.model_fields_set or asked.budget is not None
        most = asked.images_per_caption if bounded else None
        limit = (most, asked.seed)
        proposals, captions, draws, wanted = labelled(
            table.labels, table.revision, asked.classes, asked.attributes, limit
        )
        chosen = pairs(proposals, asked.intersections)
        more_captions, more_draws, more = labelled_pairs(table.labels, table.revision, chosen, limit)
        draws, wanted = pa.concat_tables([draws, more_draws]), together(wanted, more, table.revision)
        run.write("proposals", proposals)
        run.write("captions", pa.concat_tables([captions, more_captions]))
        run.update({"models": {"table": {"spec": path, "revision": table.revision}}})
    return Plan(_shuffled(draws, asked), wanted, _fetching(partial(LabelledTable, path)), "fetch images")


def from_index(asked: AuditConfig, run: Run, models: Backend, steps: Steps) -> Plan:
    """The images of an index that are nearest to each of the run's captions."""
    path = str(asked.images.index)
    with steps.step("retrieve"):
        index = models.index(path)()
        encoder = models.encoder(index.encoder)()
        draws, wanted = retrieve(run.captions, encoder, index, asked.images_per_caption)
        about = {
            "encoder": {"spec": index.encoder, "revision": encoder.revision},
            "index": {"spec": path, "revision": index.revision},
        }
        run.update({"models": about})
    return Plan(_shuffled(draws, asked), wanted, _fetching(models.index(path)), "fetch images")


def from_generator(asked: AuditConfig, run: Run, models: Backend, steps: Steps) -> Plan:
    """Images to be made from each of the run's captions."""
    spec = str(asked.images.generator)
    with steps.step("load the generator"):
        factory = models.image_generator(spec)
        revision = factory().revision
        draws, wanted = generated(run.captions, revision, asked.images_per_caption, asked.seed)
        run.update({"models": {"generator": {"spec": spec, "revision": revision}}})

    def collect(needed: pa.Table, out: str, on_progress: pipeline.OnProgress) -> object:
        return pipeline.generate(needed, factory, out, on_progress)

    return Plan(draws, wanted, collect, "generate images")


def _fetching(source: Callable[[], ImageSource]) -> Collect:
    def collect(needed: pa.Table, out: str, on_progress: pipeline.OnProgress) -> object:
        return pipeline.collect(needed, source, out, on_progress)

    return collect


def _shuffled(draws: pa.Table, asked: AuditConfig) -> pa.Table:
    """With a budget, ranks in random order within each caption: the nearest images are not like the others."""
    if asked.budget is None:
        return draws
    ranks = draws["rank"].to_numpy().copy()
    captions = np.array(draws["caption_id"].to_pylist(), dtype=object)
    for caption in dict.fromkeys(captions.tolist()):
        here = np.flatnonzero(captions == caption)
        ranks[here] = np.random.default_rng(seed_of("order", caption, asked.seed)).permutation(len(here))
    return draws.set_column(draws.schema.get_field_index("rank"), draws.schema.field("rank"), pa.array(ranks))
