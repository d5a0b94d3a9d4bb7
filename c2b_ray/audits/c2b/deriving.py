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
        labels, chosen_values = with_derived(self.labels, derived), self.named
        if chosen_values is not None:
            chosen_names = {normalise(name) for name in chosen_values}
            values = {attribute.attribute: attribute.column.drop_null().unique().to_pylist() for attribute in derived}
            chosen_values = {
                **chosen_values,
                **{
                    name: sorted(values_of_attribute)
                    for name, values_of_attribute in values.items()
                    if normalise(name) not in chosen_names
                },
            }
        all_derived = (*self.derived, *derived)
        return replace(
            self, labels=labels, named=chosen_values, derived=all_derived, reasons={**self.reasons, **reasons}
        )


def attributes_of(config: AuditConfig, table: LabelledTable) -> Attributes:
    """Returns the attributes that are known before any image is measured.

    Columns are cut, and properties measured, where the config says so; by default where no column of the table can be
    compared within any class, since a run that compares columns keeps its results and its id. Raises ConfigError for a
    column of clusters that is not there, or is an attribute too; for a column that cannot be cut; and for an unknown
    property.
    """
    cluster, named_columns = config.images.cluster, columns_named(config, table.labels)
    if cluster is not None:
        table.clusters(cluster)
    labels = without_cluster(table.labels, cluster, named_columns or ())
    check_classes(labels, config.classes)
    image_classes = OfClasses.of(labels, config.classes)
    nothing_to_compare = not named_columns and not compared_somewhere(labels, config.classes, left_out(labels))
    cut = config.images.cut if config.images.cut is not None or nothing_to_compare else {}
    labels, derived, reasons = cut_columns(labels, image_classes, cut)
    properties = _properties(nothing_to_compare if config.images.properties is None else config.images.properties)
    to_measure, column_forms = [], set(map(normalise, set(labels.column_names) - set(left_out(labels))))
    for image_property in properties:
        if normalise(image_property.name) in column_forms:
            reasons[image_property.name] = "the table has a column of this name, which is compared in its place"
        else:
            to_measure.append(image_property)
    images = config.images
    by_models = images.read is not None or images.words is not None or images.slices is not None
    empty = Attributes(
        labels,
        image_classes,
        named_columns or None,
        to_measure=tuple(to_measure),
        not_cut=can_be_cut(labels),
        by_models=by_models,
    )
    return empty.and_derived(derived, reasons)


def proposals_of(config: AuditConfig, attributes: Attributes) -> pa.Table:
    """Returns the proposals that are known before any image is measured. Raises the errors of `labelled_rows`, but for
    a table without attributes whose images are to be measured or looked at."""
    named_attributes = attributes.named or None
    if (attributes.to_measure or attributes.by_models) and not compared_somewhere(
        attributes.labels, config.classes, left_out(attributes.labels), named_attributes
    ):
        return PROPOSALS.empty_table()
    must_compare = config.perturb is None
    return labelled_rows(attributes.labels, "", config.classes, named_attributes, Limit(1, config.seed), must_compare)[
        0
    ]


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
        pa.concat_tables(_measured(run, revision, [image_property.column for image_property in attributes.to_measure])),
        attributes.to_measure,
        attributes.of,
    )
    return replace(attributes.and_derived(derived, reasons), to_measure=())


def _measured(run: C2BRun, revision: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields `row` and these columns of the measured images of this revision, a part at a time. A run that resumes on a
    table with other rows holds the images of the former ones too."""
    for part in run.each("properties", ["image_id", "row", *columns]):
        of_revision = pc.equal(part["image_id"], image_ids(part["row"].to_numpy(), revision))
        yield part.filter(of_revision).drop_columns(["image_id"])


def _properties(requested: bool | Sequence[str]) -> list[ImageProperty]:
    """Returns the properties that the config asks for. Raises ConfigError for one that is not known."""
    if isinstance(requested, bool):
        return list(PROPERTIES_OF_IMAGES.values()) if requested else []
    by_form = {normalise(name): image_property for name, image_property in PROPERTIES_OF_IMAGES.items()}
    for name in requested:
        if normalise(name) not in by_form:
            raise ConfigError("images.properties", f"no property {name!r}; {nearest(name, list(PROPERTIES_OF_IMAGES))}")
    return [by_form[normalise(name)] for name in requested]
