"""Draws an audit's images: one plan per source, which decides what every cell draws and fetches or generates it.

It composes steps, models and the run, and does not know how many images are wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.run import C2BRun, check_unchanged
from c2b_ray.audits.c2b.sampling.selection import NEAREST, CellPools, Draws, Selection, cells_of, check_captions, shares
from c2b_ray.audits.c2b.scoring.clusters import clusters_of_index
from c2b_ray.audits.c2b.verification.calibration import COLUMNS, SeenImages, Verifier, contents
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import FETCH, ImageStages, OnProgress, of_revision
from c2b_ray.engine.index import finder_of
from c2b_ray.engine.index import retrieve as search
from c2b_ray.engine.progress import Progress
from c2b_ray.errors import RunError, SourceError
from c2b_ray.steps.cells import CellKey
from c2b_ray.steps.draw import RowNumbers, generated
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.retrieve import retrieved, to_retrieve
from c2b_ray.storage.parts import Digests, absent, opened, read_stage

FETCH_IMAGES = "fetch images"

Collect = Callable[[pa.Table, str, OnProgress], object]
CollectRows = Callable[[RowNumbers, str, OnProgress], object]
Some = Callable[[Selection], Selection]
Targets = Mapping[CellKey, int]
"""Images of each cell, from each source."""


class Look(Protocol):
    """Looks at the answers to some of the images while the others are answered."""

    def some(self, selection: Selection) -> Selection:
        """Returns the part of the draws that is looked at."""
        ...

    def at_answers_to(self, draws: Draws) -> OnProgress:
        """Returns a listener that looks once these images are answered. What it raises ends the stage."""
        ...


class First(NamedTuple):
    """Draws whose images are gathered, and answered, before the others; and who is told of the progress besides."""

    draws: Draws
    listener: OnProgress


class Select(Protocol):
    def __call__(self, targets: Targets, seen: SeenImages, excluded: Collection[str] = ()) -> Selection: ...


class Plan(Protocol):
    """Decides what cells draw from one source, given what is known so far, and brings the drawn images into the run."""

    def select(self, targets: Targets, seen: SeenImages, excluded: Collection[str] = ()) -> Selection: ...

    def gather(self, draws: Draws, run: C2BRun, steps: Steps, first: First | None = None) -> None:
        """Collects the images of these draws that the run lacks into the run. `first`: of some of them."""
        ...

    @property
    def source(self) -> Load | None:
        """Opens the source of images whose bytes the run does not hold; None where it holds all of this plan's."""
        ...


@dataclass(frozen=True)
class SourcePlan:
    """A `Plan` based on tables. `wanted`: what `collect` needs to know about each image, by `image_id`. `doing`: the
    step's name for people. `nearest`: the pools of captions, where images are retrieved."""

    select: Select
    wanted: pa.Table
    collect: Collect
    doing: str
    source: Load | None = None
    nearest: pa.Table | None = None

    def gather(self, draws: pa.Table, run: C2BRun, steps: Steps, first: First | None = None) -> None:
        images = self.wanted.filter(pc.is_in(self.wanted["image_id"], draws["image_id"].combine_chunks()))
        if first is not None:
            assert isinstance(first.draws, pa.Table)
            is_first = pc.is_in(images["image_id"], first.draws["image_id"].combine_chunks())
            images = pa.concat_tables([images.filter(is_first), images.filter(pc.invert(is_first))])
        run.begin_writing()
        with steps.step(self.doing) as on_progress:
            self.collect(images, run.location("images"), told_to(on_progress, first))


@dataclass(frozen=True)
class CellDrawing:
    """Draws from the plans of an audit into its run. `verifier`: None where the audit has none."""

    plans: Sequence[Plan]
    run: C2BRun
    verifier: Verifier | None
    steps: Steps

    @property
    def source(self) -> Load | None:
        """Opens the source of those images whose bytes the run does not hold."""
        return next((plan.source for plan in self.plans if plan.source is not None), None)

    def draw(self, targets: Targets, only: Some | None = None, look: Look | None = None) -> None:
        """Draws `targets` images of each cell, or as many as exist, into the run's `draws` and `pool`. `only`: takes
        some of the draws, and leaves the others for another call. `look`: is shown the answers to some of them as soon
        as these are there; until then the run's draws are these."""
        selections = self._chosen(targets, (), only, look)
        self._write_drawn(selections)
        if any(selection.looked.num_rows for selection in selections) and not any(
            selection.drawn.num_rows for selection in selections
        ):
            raise SourceError(f"{self.run.path}: {_nothing_accepted(self.run)}")

    def draw_again(self, targets: Targets, fresh: bool) -> None:
        """Draws `targets` images of each cell into `confirmation` and `confirmation_pool`. `fresh`: those that the run
        did not draw before; otherwise a cell's earlier ones come first."""
        excluded = frozenset(self.run.draws["image_id"].to_pylist()) if fresh else frozenset()
        chosen = self._chosen(targets, excluded)
        self._write("confirmation_pool", [one.looked for one in chosen])
        self._write("confirmation", [one.drawn for one in chosen])

    def _write_drawn(self, selections: Sequence[Selection]) -> None:
        self._write("pool", [selection.looked for selection in selections])
        self._write("draws", [selection.drawn for selection in selections])

    def _write(self, name: str, tables: Sequence[Draws]) -> None:
        self.run.write_batches(name, (batch for draws in tables for batch in draws.to_batches()))

    def _chosen(
        self, targets: Targets, excluded: Collection[str], only: Some | None = None, look: Look | None = None
    ) -> list[Selection]:
        """Selects images in a few rounds, all cells together: missing images are fetched and verified until no cell
        lacks any.

        The selection depends on the pools and on what was seen in them, not on the rounds.
        """
        run = self.run
        before: list[Draws] = []
        contents_of_captions = contents(run.proposals, run.captions)
        while True:
            verified = None if self.verifier is None else run.verifications.select(COLUMNS)
            seen = SeenImages(partial(run.read, "images"), verified, contents_of_captions, _Absent(run))
            selections = [plan.select(targets, seen, excluded) for plan in self.plans]
            if only is not None:
                selections = [only(selection) for selection in selections]
            missing = [selection.missing for selection in selections]
            missing_images = sum(table.num_rows for table in missing)
            if not missing_images:
                return selections
            if before and all(table.equals(other) for table, other in zip(missing, before, strict=True)):
                raise RunError(f"{run.path}: {missing_images} images were looked at and are not there; delete the run")
            first: list[First | None] = [None] * len(selections)
            if look is not None:
                looked_at = [look.some(selection) for selection in selections]
                self._write_drawn(looked_at)
                first = [First(part.missing, look.at_answers_to(part.drawn)) for part in looked_at]
            for plan, table, its_first in zip(self.plans, missing, first, strict=True):
                if table.num_rows:
                    plan.gather(table, run, self.steps, its_first)
            if self.verifier is not None:  # draws of labelled images are no tables, and have no verifier
                self.verifier.verify(pa.concat_tables(missing), run, self.steps, self.source)
            before = missing


def _nothing_accepted(run: C2BRun) -> str:
    rows = run.verifications
    reason = Counter(rows["error"].drop_null().to_pylist()).most_common(1)
    why = f"{reason[0][1]} could not be verified ({reason[0][0]})" if reason else "they show another class or value"
    return (
        f"the verifier accepted none of {rows.num_rows:,} images: {why}. Give the audit an index "
        "that holds such images, or look into its verifications whether the verifier is right"
    )


@dataclass(frozen=True)
class _Absent:
    """Tells which image ids have no image in the run. It holds digests, a seventh of the size of the ids."""

    run: C2BRun

    @cached_property
    def _there(self) -> Digests:
        return opened(self.run.location("images")).census("image_id").ids

    def __call__(self, ids: pa.Array) -> NDArray[np.bool_]:
        return absent(ids, self._there)


def from_index(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> SourcePlan:
    """Returns a plan for images of an index, from the pools of the run's captions."""
    path, image_config = str(config.images.index), config.images
    assert image_config.pool is not None
    assert image_config.selection is not None
    assert config.images_per_cell is not None
    with steps.step("retrieve") as on_progress:
        index = models.describe("index", path)
        encoder = models.describe("encoder", index.encoder)
        captions = run.captions
        searches = to_retrieve(captions, encoder.revision, index.revision, image_config.pool)
        finder, out = partial(finder_of, models.encoder(index.encoder), models.index(path)), run.location("retrieved")
        search(models.searcher, searches, finder, image_config.pool, out, on_progress)
        searched = read_stage(out)
        searched = searched.filter(pc.is_in(searched["retrieval_id"], searches["retrieval_id"].combine_chunks()))
        nearest, images = retrieved(captions, searched, index.revision)
        pools = CellPools(
            captions, nearest, image_config.selection, config.seed, shuffled=image_config.selection != NEAREST
        )
        if image_config.selection == NEAREST and config.budget is not None:
            pools = pools.fixed(config.images_per_cell)
        check_unchanged(run, lambda: images, models.index(path), models.runner)
        if image_config.cluster is not None:
            clusters = partial(clusters_of_index, models.index(path), images, image_config.cluster)
            run.write("clusters", models.runner.call(clusters, FETCH))
        models_used = {
            "encoder": model_row(index.encoder, encoder),
            "index": {"spec": path, "revision": index.revision},
        }
        warn_of_assumptions(steps, index.encoder, encoder)
        run.update({"models": models_used})

    def collect(images: pa.Table, out: str, on_progress: OnProgress) -> object:
        stages, rows = ImageStages(models.runner), images["row"].to_numpy()
        return stages.collect(rows, index.revision, models.index(path), out, on_progress, config.keep_images)

    return SourcePlan(pools.select, images, collect, FETCH_IMAGES, models.index(path), nearest)


def from_generator(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> SourcePlan:
    """Returns a plan for images to be generated from each of the run's captions."""
    spec = str(config.images.generator)
    assert config.images_per_cell is not None
    with steps.step("plan images to generate"):
        description = models.describe("image_generator", spec)
        revision = description.revision
        warn_of_assumptions(steps, spec, description)
        factory = partial(of_revision, models.image_generator(spec), revision, spec)
        captions = run.captions
        check_captions(captions)
        fewest = min(map(len, cells_of(captions).values()), default=1)
        assert config.most_per_cell is not None
        fresh_images = config.most_per_cell - config.images_per_cell
        most = ceil(config.images_per_cell / fewest) + ceil(fresh_images / fewest)
        draws, images = generated(captions, revision, most, config.seed)
        run.update({"models": {"generator": model_row(spec, description)}})

    def collect(images: pa.Table, out: str, on_progress: OnProgress) -> object:
        return ImageStages(models.runner).generate(images, factory, out, on_progress)

    return SourcePlan(first_of(draws, captions), images, collect, "generate images")


def first_of(draws: pa.Table, captions: pa.Table) -> Select:
    """Returns a selection of the first images of each caption. `draws`: every caption's images, in the order of
    drawing."""
    cells = cells_of(captions)

    def select(targets: Targets, seen: SeenImages, excluded: Collection[str] = ()) -> Selection:
        remaining = draws
        if excluded:
            left_out = pa.array(sorted(excluded), pa.string())
            remaining = draws.filter(pc.invert(pc.is_in(draws["image_id"], left_out)))
        captions = remaining["caption_id"].combine_chunks().dictionary_encode()
        share = shares(cells, targets)
        most = np.array([share.get(caption, 0) for caption in captions.dictionary.to_pylist()], np.int64)
        owners = captions.indices.to_numpy()
        selected = remaining.filter(pa.array(_number_within(owners) < most[owners]))
        return Selection(selected, selected, selected.filter(pa.array(seen.lacking(selected))))

    return select


def _number_within(owners: NDArray[np.int32]) -> NDArray[np.int64]:
    """Returns each row's number, from 0, among the rows of the same owner."""
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    numbers = np.empty(len(owners), np.int64)
    numbers[order] = np.arange(len(owners)) - np.repeat(starts, np.diff(np.append(starts, len(owners))))
    return numbers


def told_to(on_progress: OnProgress, first: First | None) -> OnProgress:
    """Returns a listener that tells both."""
    if first is None:
        return on_progress

    def told(progress: Progress) -> None:
        on_progress(progress)
        first.listener(progress)

    return told
