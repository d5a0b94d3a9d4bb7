"""The attributes of a labelled table: its columns, columns of numbers and dates that are cut, and properties of its
images that are measured.

It joins the config with `audits.c2b.hypotheses.derived` and `audits.c2b.hypotheses.derived`, and measures images in a
stage of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.hypotheses.derived import (
    Derived,
    OfClasses,
    can_be_cut,
    cut_columns,
    derived_properties,
    with_derived,
)
from c2b_ray.audits.c2b.hypotheses.labelled import labelled_rows, measure_images
from c2b_ray.audits.c2b.reading import columns_named
from c2b_ray.audits.c2b.run import C2BRun, check_unchanged
from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.steps.draw import image_ids, wanted
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.image_properties import PROPERTIES_OF_IMAGES, ImageProperty
from c2b_ray.steps.labels import check_classes, compared_somewhere, left_out, without_cluster
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import PROPOSALS


@dataclass(frozen=True)
class Attributes:
    """What is compared on a labelled table.

    `labels`: the columns that can be attributes, the derived ones among them. `named`: those that the config names, and
    the derived ones; None: every column that can be one. `to_measure`: properties of images that are not yet among
    them. `not_cut`: columns that could be cut, and are not → how (`can_be_cut`). `by_models`: whether models have yet
    to look at the images for more. `reasons`: what is no attribute → why.
    """

    labels: pa.Table
    of: OfClasses
    named: Mapping[str, Sequence[str]] | None
    derived: tuple[Derived, ...] = ()
    to_measure: tuple[ImageProperty, ...] = ()
    not_cut: Mapping[str, str] = field(default_factory=dict)
    by_models: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)

    def and_derived(self, derived: Sequence[Derived], reasons: Mapping[str, str]) -> Attributes:
        labels, named = with_derived(self.labels, derived), self.named
        if named is not None:
            known = {normalise(name) for name in named}
            values = {one.attribute: one.column.drop_null().unique().to_pylist() for one in derived}
            named = {**named, **{name: sorted(of) for name, of in values.items() if normalise(name) not in known}}
        every = (*self.derived, *derived)
        return replace(self, labels=labels, named=named, derived=every, reasons={**self.reasons, **reasons})


def attributes_of(config: AuditConfig, table: LabelledTable) -> Attributes:
    """Returns the attributes that are known before any image is measured.

    Columns are cut, and properties measured, where the config says so; by default where no column of the table can be
    compared within any class, since a run that compares columns keeps its results and its id. Raises ConfigError for a
    column of clusters that is not there, or is an attribute too; for a column that cannot be cut; and for an unknown
    property.
    """
    cluster, asked = config.images.cluster, columns_named(config, table.labels)
    if cluster is not None:
        table.clusters(cluster)
    labels = without_cluster(table.labels, cluster, asked or ())
    check_classes(labels, config.classes)
    of = OfClasses.of(labels, config.classes)
    alone = not asked and not compared_somewhere(labels, config.classes, left_out(labels))
    cut = config.images.cut if config.images.cut is not None or alone else {}
    labels, derived, reasons = cut_columns(labels, of, cut)
    properties = _properties(alone if config.images.properties is None else config.images.properties)
    kept, others = [], set(map(normalise, set(labels.column_names) - set(left_out(labels))))
    for one in properties:
        if normalise(one.name) in others:
            reasons[one.name] = "the table has a column of this name, which is compared in its place"
        else:
            kept.append(one)
    images = config.images
    by_models = images.read is not None or images.words is not None or images.slices is not None
    empty = Attributes(
        labels, of, asked or None, to_measure=tuple(kept), not_cut=can_be_cut(labels), by_models=by_models
    )
    return empty.and_derived(derived, reasons)


def proposals_of(config: AuditConfig, attributes: Attributes) -> pa.Table:
    """Returns the proposals that are known before any image is measured. Raises the errors of `labelled_rows`, but for
    a table without attributes whose images are to be measured or looked at."""
    chosen = attributes.named or None
    if (attributes.to_measure or attributes.by_models) and not compared_somewhere(
        attributes.labels, config.classes, left_out(attributes.labels), chosen
    ):
        return PROPOSALS.empty_table()
    needed = config.perturb is None
    return labelled_rows(attributes.labels, "", config.classes, chosen, Limit(1, config.seed), needed)[0]


def measure(
    config: AuditConfig,
    attributes: Attributes,
    run: C2BRun,
    source: tuple[str, Load],
    runner: Runner,
    on_progress: OnProgress,
) -> Attributes:
    """Measures the images of the audit's classes and returns the attributes with their properties. `source`: its
    revision, and how it is opened.

    All images of the classes are measured, whatever a budget allows: edges that are chosen after some answers would
    depend on them.
    """
    revision, load = source
    rows = attributes.of.rows
    check_unchanged(run, partial(wanted, rows, revision), load, runner, "properties")
    run.begin_writing()
    measure_images(runner, (rows, revision), load, run.location("properties"), on_progress)
    derived, reasons = derived_properties(
        pa.concat_tables(_measured(run, revision, [one.column for one in attributes.to_measure])),
        attributes.to_measure,
        attributes.of,
    )
    return replace(attributes.and_derived(derived, reasons), to_measure=())


def _measured(run: C2BRun, revision: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields `row` and these columns of the measured images of this revision, a part at a time. A run that resumes on a
    table with other rows holds the images of the former ones too."""
    for part in run.each("properties", ["image_id", "row", *columns]):
        ours = pc.equal(part["image_id"], image_ids(part["row"].to_numpy(), revision))
        yield part.filter(ours).drop_columns(["image_id"])


def _properties(asked: bool | Sequence[str]) -> list[ImageProperty]:
    """Returns the properties that the config asks for. Raises ConfigError for one that is not known."""
    if isinstance(asked, bool):
        return list(PROPERTIES_OF_IMAGES.values()) if asked else []
    known = {normalise(name): one for name, one in PROPERTIES_OF_IMAGES.items()}
    for name in asked:
        if normalise(name) not in known:
            raise ConfigError("images.properties", f"no property {name!r}; {nearest(name, list(PROPERTIES_OF_IMAGES))}")
    return [known[normalise(name)] for name in asked]
