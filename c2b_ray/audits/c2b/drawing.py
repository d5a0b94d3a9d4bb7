"""Where an audit's images come from: one plan per source, which says what every cell draws and fetches or makes it.

It composes steps, models and the run, and does not know how many images are wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.verifying import Verifier
from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.identity import check_unchanged
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config import AuditConfig
from c2b_ray.errors import RunError, SourceError
from c2b_ray.pipelines.images import ImageStages, OnProgress, of_revision
from c2b_ray.pipelines.search import finder_of
from c2b_ray.pipelines.search import retrieve as search
from c2b_ray.schemas import seed_of
from c2b_ray.steps.accept import COLUMNS, Content, SeenImages, contents
from c2b_ray.steps.cells import CellKey
from c2b_ray.steps.draw import ImageSource, generated, labelled, labelled_pairs, lacking, together
from c2b_ray.steps.intersect import pairs
from c2b_ray.steps.labels import left_out
from c2b_ray.steps.retrieve import retrieved, to_retrieve
from c2b_ray.steps.select import NEAREST, Pools, Selection, cells_of, check_captions, shares
from c2b_ray.steps.thresholds import Limit
from c2b_ray.store.c2b_run import C2BRun
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.store.parts import read_stage

TOLD = 20
"""Warnings that are shown one by one; the manifest has all."""

Collect = Callable[[pa.Table, str, OnProgress], object]
Targets = Mapping[CellKey, int]
"""Images of each cell, from each source."""


class Select(Protocol):
    def __call__(self, targets: Targets, seen: SeenImages, besides: Collection[str] = ()) -> Selection: ...


@dataclass(frozen=True)
class SourcePlan:
    """`select`: what cells draw, of what is known by now. `wanted`: what `collect` is given of each image, by
    `image_id`; `doing` says so to people."""

    select: Select
    wanted: pa.Table
    collect: Collect
    doing: str

    def gather(self, draws: pa.Table, run: C2BRun, steps: Steps) -> None:
        """Collects the images of these draws into the run, those that it lacks."""
        needed = self.wanted.filter(pc.is_in(self.wanted["image_id"], draws["image_id"].combine_chunks()))
        run.begin_writing()
        with steps.step(self.doing) as on_progress:
            self.collect(needed, run.location("images"), on_progress)


@dataclass(frozen=True)
class Drawing:
    """Draws from the plans of an audit into its run; `verifier`: None where it has none."""

    plans: Sequence[SourcePlan]
    run: C2BRun
    verifier: Verifier | None
    steps: Steps

    def draw(self, targets: Targets) -> None:
        """As many images of each cell as `targets` says, or as there are, into the run's `draws` and `pool`."""
        chosen = self._chosen(targets, ())
        looked, drawn = (pa.concat_tables([getattr(one, name) for one in chosen]) for name in ("looked", "drawn"))
        self.run.write("pool", looked)
        self.run.write("draws", drawn)
        if looked.num_rows and not drawn.num_rows:
            raise SourceError(f"{self.run.path}: {_nothing_accepted(self.run)}")

    def confirm(self, targets: Targets) -> None:
        """As many again, of images that the run did not draw, into `confirmation` and `confirmation_pool`."""
        chosen = self._chosen(targets, frozenset(self.run.draws["image_id"].to_pylist()))
        self.run.write("confirmation_pool", pa.concat_tables([one.looked for one in chosen]))
        self.run.write("confirmation", pa.concat_tables([one.drawn for one in chosen]))

    def _chosen(self, targets: Targets, besides: Collection[str]) -> list[Selection]:
        """Images are looked at in a few rounds, all cells together: what is missing is fetched and verified until no
        cell lacks anything. What is drawn depends on the pools and what was seen in them, not on the rounds."""
        run, before = self.run, None
        about = contents(run.proposals, run.captions)
        while True:
            seen = _looked(run, self.verifier, about)
            chosen = [plan.select(targets, seen, besides) for plan in self.plans]
            missing = pa.concat_tables([one.missing for one in chosen])
            if not missing.num_rows:
                return chosen
            if missing.equals(before):
                raise RunError(
                    f"{run.path}: {missing.num_rows} images were looked at and are not there; delete the run"
                )
            for plan, one in zip(self.plans, chosen, strict=True):
                if one.missing.num_rows:
                    plan.gather(one.missing, run, self.steps)
            if self.verifier is not None:
                self.verifier.verify(missing, run, self.steps)
            before = missing


def _nothing_accepted(run: C2BRun) -> str:
    rows = run.verifications
    reason = Counter(rows["error"].drop_null().to_pylist()).most_common(1)
    why = f"{reason[0][1]} could not be verified ({reason[0][0]})" if reason else "they show another class or value"
    return (
        f"of {rows.num_rows} images that were looked at the verifier accepted none: {why}. Give the audit an index "
        "that holds such images, or look into its verifications whether the verifier is right"
    )


def _looked(run: C2BRun, verifier: Verifier | None, about: Mapping[str, Content]) -> SeenImages:
    verified = None if verifier is None else run.verifications.select(COLUMNS)
    return SeenImages(partial(run.read, "images"), verified, about)


def from_labels(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> SourcePlan:
    """Proposals and captions from the columns of a labelled table, written to the run, and its rows as images."""
    path = str(config.images.table)
    with steps.step("read labels"):
        opened = partial(LabelledTable, path, columns=config.images.renamed)
        table = opened()
        limit = Limit(config.images_per_caption, config.seed)
        proposals, captions, draws, wanted = labelled(
            table.labels, table.revision, config.classes, config.attributes, limit
        )
        chosen = pairs(proposals, config.intersections)
        more_captions, more_draws, more = labelled_pairs(table.labels, table.revision, chosen, limit)
        draws, wanted = pa.concat_tables([draws, more_draws]), together(wanted, more, table.revision)
        captions = pa.concat_tables([captions, more_captions])
        check_unchanged(run, wanted, opened, models.runner)
        run.write("proposals", proposals)
        run.write("captions", captions)
        warnings = _warnings(config, table, proposals)
        for warning in [*warnings[:TOLD], *([f"and {len(warnings) - TOLD} more"] if len(warnings) > TOLD else [])]:
            steps.warn(warning)
        run.update({"models": {"table": {"spec": path, "revision": table.revision}}, "warnings": warnings})
    shuffled = draws if config.budget is None else _shuffled(draws, config.seed)
    return SourcePlan(_first_of(shuffled, captions), wanted, _fetching(models, opened), "fetch images")


def _warnings(config: AuditConfig, table: LabelledTable, proposals: pa.Table) -> list[str]:
    """What of a labelled table is not compared though one might think so."""
    if config.attributes:
        return lacking(proposals, config.classes, config.attributes)
    return [f"column {name} is no attribute: {why}" for name, why in left_out(table.labels).items()]


def from_index(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> SourcePlan:
    """Images of an index, from the pools of the run's captions."""
    path, about = str(config.images.index), config.images
    assert about.pool is not None
    assert about.selection is not None
    assert config.images_per_cell is not None
    with steps.step("retrieve") as on_progress:
        index = models.describe("index", path)
        encoder = models.describe("encoder", index.encoder)
        captions = run.captions
        searches = to_retrieve(captions, encoder.revision, index.revision, about.pool)
        finder, out = partial(finder_of, models.encoder(index.encoder), models.index(path)), run.location("retrieved")
        search(models.searcher, searches, finder, about.pool, out, on_progress)
        searched = read_stage(out)
        searched = searched.filter(pc.is_in(searched["retrieval_id"], searches["retrieval_id"].combine_chunks()))
        nearest, wanted = retrieved(captions, searched, index.revision)
        pools = Pools(captions, nearest, about.selection, config.seed, shuffled=about.selection != NEAREST)
        if about.selection == NEAREST and config.budget is not None:
            pools = pools.fixed(config.images_per_cell)
        check_unchanged(run, wanted, models.index(path), models.runner)
        models_used = {
            "encoder": {"spec": index.encoder, "revision": encoder.revision},
            "index": {"spec": path, "revision": index.revision},
        }
        run.update({"models": models_used})
    return SourcePlan(pools.select, wanted, _fetching(models, models.index(path)), "fetch images")


def from_generator(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> SourcePlan:
    """Images to be made from each of the run's captions."""
    spec = str(config.images.generator)
    assert config.images_per_cell is not None
    with steps.step("plan images to generate"):
        revision = models.describe("image_generator", spec).revision
        factory = partial(of_revision, models.image_generator(spec), revision, spec)
        captions = run.captions
        check_captions(captions)
        fewest = min(map(len, cells_of(captions).values()), default=1)
        most = ceil(config.images_per_cell / fewest) * (2 if config.confirm else 1)
        draws, wanted = generated(captions, revision, most, config.seed)
        run.update({"models": {"generator": {"spec": spec, "revision": revision}}})

    def collect(needed: pa.Table, out: str, on_progress: OnProgress) -> object:
        return ImageStages(models.runner).generate(needed, factory, out, on_progress)

    return SourcePlan(_first_of(draws, captions), wanted, collect, "generate images")


def _first_of(draws: pa.Table, captions: pa.Table) -> Select:
    """The first images of each caption, which are its own; `draws` has them in the order of drawing."""
    cells = cells_of(captions)

    def select(targets: Targets, seen: SeenImages, besides: Collection[str] = ()) -> Selection:
        left = draws
        if besides:
            left_out = pa.array(sorted(besides), pa.string())
            left = draws.filter(pc.invert(pc.is_in(draws["image_id"], left_out)))
        captions = left["caption_id"].combine_chunks().dictionary_encode()
        share = shares(cells, targets)
        most = np.array([share.get(caption, 0) for caption in captions.dictionary.to_pylist()], np.int64)
        owners = captions.indices.to_numpy()
        drawn = left.filter(pa.array(_number_within(owners) < most[owners]))
        return Selection(drawn, drawn, drawn.filter(pa.array(seen.lacking(drawn))))

    return select


def _number_within(owners: NDArray[np.int32]) -> NDArray[np.int64]:
    """Of each row its number, from 0, among the rows of the same owner."""
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    numbers = np.empty(len(owners), np.int64)
    numbers[order] = np.arange(len(owners)) - np.repeat(starts, np.diff(np.append(starts, len(owners))))
    return numbers


def _fetching(models: Backend, source: Callable[[], ImageSource]) -> Collect:
    def collect(needed: pa.Table, out: str, on_progress: OnProgress) -> object:
        return ImageStages(models.runner).collect(needed, source, out, on_progress)

    return collect


def _shuffled(draws: pa.Table, seed: int) -> pa.Table:
    """Ranks in random order within each caption: a table's first rows may not be like the others."""
    ranks = draws["rank"].to_numpy().copy()
    captions = np.array(draws["caption_id"].to_pylist(), dtype=object)
    for caption in dict.fromkeys(captions.tolist()):
        here = np.flatnonzero(captions == caption)
        ranks[here] = np.random.default_rng(seed_of("order", caption, seed)).permutation(len(here))
    shuffled = draws.set_column(draws.schema.get_field_index("rank"), draws.schema.field("rank"), pa.array(ranks))
    return shuffled.take(pc.sort_indices(shuffled, [("rank", "ascending")]))
