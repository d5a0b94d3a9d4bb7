"""A labelled table as the source of an audit's images: its columns are compared, its rows are the images.

It composes steps and the run; `steps.labelled_images` represents rows until they are written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.classifying import classifying
from c2b_ray.audits.c2b.drawing import CollectRows, Plan, SourcePlan, Targets, by_rows, first_of
from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.identity import check_unchanged
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.tables_of_predictions import compared_with, is_table
from c2b_ray.config import AuditConfig
from c2b_ray.pipelines.images import Contestant, OnProgress
from c2b_ray.pipelines.one_pass import Places, look_and_classify
from c2b_ray.schemas import seed_of
from c2b_ray.steps.accept import SeenImages
from c2b_ray.steps.draw import Rows, image_ids, wanted
from c2b_ray.steps.in_place import Load
from c2b_ray.steps.intersect import pairs
from c2b_ray.steps.labelled_images import RowDraws, labelled_pair_rows, labelled_rows, lacking
from c2b_ray.steps.labels import (
    TARGET,
    Compared,
    blanks,
    left_out,
    may_be_clusters,
    not_compared,
    without_cluster,
)
from c2b_ray.steps.select import Draws, Selection, cells_of, shares
from c2b_ray.steps.thresholds import Limit
from c2b_ray.store.c2b_run import C2BRun
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.store.memory import give_back

WARNINGS_SHOWN = 20
"""The most warnings that are shown one by one; the manifest has all."""


@dataclass(frozen=True)
class TablePlan:
    """A `Plan` of all rows of a labelled table. `draws`: of the captions; `collect` fetches their images by row.

    Rows are numbers rather than text, and none is verified: a table may have millions.
    """

    draws: RowDraws
    captions: pa.Table
    collect: CollectRows
    doing: str
    source: Load | None = None

    def select(self, targets: Targets, seen: SeenImages, besides: Collection[str] = ()) -> Selection:
        assert not besides  # no fresh images confirm what a labelled table shows (`config.defaults`)
        drawn = self.draws.first(shares(cells_of(self.captions), targets))
        return Selection(drawn, drawn, drawn.where(seen.absent))

    def gather(self, draws: Draws, run: C2BRun, steps: Steps) -> None:
        assert isinstance(draws, RowDraws)
        run.begin_writing()
        with steps.step(self.doing) as on_progress:
            self.collect(draws.distinct(), run.location("images"), on_progress)


def from_labels(
    config: AuditConfig, run: C2BRun, models: Backend, classifiers: Sequence[Contestant], steps: Steps
) -> Plan:
    """Writes proposals and captions from the columns of a labelled table into the run; returns a plan with its rows as
    images.

    All images that it gathers are to be classified, so that it has the classifiers answer at once.
    """
    path = str(config.images.table)
    with steps.step("read labels"):
        load = partial(LabelledTable, path, columns=config.images.renamed)
        table = load()
        limit, revision = Limit(config.images_per_caption, config.seed), table.revision
        labels = compared_labels(config, table)
        proposals, captions, draws = labelled_rows(
            labels, revision, config.classes, config.attributes, limit, config.perturb is None
        )
        chosen = pairs(proposals, config.intersections)
        more_captions, more = labelled_pair_rows(labels, revision, chosen, limit)
        draws = RowDraws({**draws.rows, **more.rows}, revision)
        captions = pa.concat_tables([captions, more_captions])
        check_unchanged(run, partial(wanted, draws.distinct(), revision), load, models.runner)
        run.write("proposals", proposals)
        run.write("captions", captions)
        if config.images.cluster is not None:
            run.write("clusters", _clusters(config.images.cluster, table, draws))
        blank, warnings = _remarks(config, table, proposals)
        _warn(steps, warnings)
        notes = {"blank_rows": blank, "left_out": table.left_out.as_dict(), "warnings": warnings}
        run.update({"models": {"table": {"spec": path, "revision": revision}}, **notes})

    del table, labels
    give_back()

    def collect(rows: Rows, out: str, on_progress: OnProgress) -> object:
        to = Places(out, run.location("predictions"), config.keep_images)
        return look_and_classify(models.runner, (rows, revision), load, classifiers, to, on_progress)

    if config.budget is None:
        return TablePlan(draws, captions, collect, classifying(config), load)
    images = wanted(draws.distinct(), revision)
    select = first_of(_shuffled(draws.table(), config.seed), captions)
    return SourcePlan(select, images, by_rows(collect), classifying(config), load)


def compared_labels(config: AuditConfig, table: LabelledTable) -> pa.Table:
    """Returns the labels whose columns can be attributes. Raises ConfigError for a column of clusters that is not
    there, or is an attribute too."""
    if config.images.cluster is not None:
        table.clusters(config.images.cluster)
    return without_cluster(table.labels, config.images.cluster, config.attributes or ())


def _clusters(name: str, table: LabelledTable, draws: RowDraws) -> pa.Table:
    rows = draws.distinct()
    of_rows = table.clusters(name).take(pa.array(rows))
    return pa.table({"image_id": image_ids(rows, draws.revision), "cluster": of_rows})


def _warn(steps: Steps, warnings: Sequence[str]) -> None:
    for warning in warnings[:WARNINGS_SHOWN]:
        steps.warn(warning)
    if len(warnings) > WARNINGS_SHOWN:
        steps.warn(f"and {len(warnings) - WARNINGS_SHOWN} more")


def remarks(config: AuditConfig) -> list[str]:
    """Returns what an audit of a labelled table will not use of it, and why."""
    table = LabelledTable(str(config.images.table), columns=config.images.renamed)
    labels = compared_labels(config, table)
    proposals, *_ = labelled_rows(
        labels, "", config.classes, config.attributes, Limit(1, config.seed), config.perturb is None
    )
    return _remarks(config, table, proposals)[1]


def _remarks(config: AuditConfig, table: LabelledTable, proposals: pa.Table) -> tuple[dict[str, int], list[str]]:
    """Returns the rows without a value by column, and all remarks in words."""
    blank = blanks(table.labels, config.classes, pc.unique(proposals["attribute"]).to_pylist())
    said = [*table.left_out.sentences(), *_of_predictions(config, table), *_warnings(config, table, proposals)]
    return blank, [*said, *map(_of_blank, blank.items())]


def _warnings(config: AuditConfig, table: LabelledTable, proposals: pa.Table) -> list[str]:
    """Returns what a labelled table seems to offer but is not compared."""
    labels = compared_labels(config, table)
    found = may_be_clusters(labels) if config.images.cluster is None else {}
    clusters = [f"{why}: write `cluster: {name}` under `images`" for name, why in found.items()]
    if config.attributes:
        return [*clusters, *lacking(proposals, config.classes, config.attributes)]
    reasons = left_out(labels) | table.not_labels
    said = [f"column {name} is no attribute: {why}" for name, why in reasons.items()]
    attributes = [name for name in labels.column_names if name != TARGET and name not in reasons]
    return [*clusters, *said, *not_compared(labels, config.classes, attributes)]


def _of_predictions(config: AuditConfig, table: LabelledTable) -> list[str]:
    """Returns what is odd about tables of predictions, on the images of the audit's classes."""
    if not any(map(is_table, config.specs.values())):
        return []
    targets = Compared.of(table.labels, TARGET)
    rows = np.flatnonzero(np.logical_or.reduce([targets.equal(name) for name in config.classes]))
    keys, truth = table.keys.take(pa.array(rows)).to_pylist(), table.labels[TARGET].take(pa.array(rows)).to_pylist()
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    return compared_with(config.specs, keys, truth, config.classes, label_map)


def _of_blank(column: tuple[str, int]) -> str:
    name, count = column
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    cells = "no cell" if name == TARGET else f"no cell of {name}"
    return f"{rows} no {name}, and so {'is' if count == 1 else 'are'} in {cells}"


def _shuffled(draws: pa.Table, seed: int) -> pa.Table:
    """Ranks each caption's draws in random order: a table's first rows may differ from the others."""
    ranks = draws["rank"].to_numpy().copy()
    captions = draws["caption_id"].combine_chunks().dictionary_encode()
    owners = captions.indices.to_numpy()
    ends = np.cumsum(np.bincount(owners))
    rows_of = np.split(np.argsort(owners, kind="stable"), ends[:-1])
    for caption, here in zip(captions.dictionary.to_pylist(), rows_of, strict=False):  # one empty group of no draws
        ranks[here] = np.random.default_rng(seed_of("order", caption, seed)).permutation(len(here))
    shuffled = draws.set_column(draws.schema.get_field_index("rank"), draws.schema.field("rank"), pa.array(ranks))
    return shuffled.take(pc.sort_indices(shuffled, [("rank", "ascending")]))
