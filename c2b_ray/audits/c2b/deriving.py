"""Attributes that are no columns of a labelled table: derived from numbers, or read off images by a model.

A model looks at each image where the image lies, and is asked about it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.hypotheses.derived import (
    Derived,
    ImageClasses,
    can_be_cut,
    coded,
    cut_columns,
    derived_properties,
    with_derived,
)
from c2b_ray.audits.c2b.hypotheses.labelled import labelled_rows, measure_images
from c2b_ray.audits.c2b.run import C2BRun, check_unchanged
from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.audits.c2b.verification.calibration import calibrate, counted, to_ask, uncalibrated, verifier_source_of
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import check_language_model, model_row, note_models, warn_of_assumptions
from c2b_ray.audits.kit.replies import KeptReplies
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import VERIFY, OnProgress, of_revision
from c2b_ray.engine.numbered import numbered
from c2b_ray.engine.stage import Runner, StageConfig
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.names import normalise
from c2b_ray.steps.caption import caption
from c2b_ray.steps.draw import image_ids, wanted
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.image_properties import PROPERTIES_OF_IMAGES, ImageProperty
from c2b_ray.steps.labels import TARGET, check_classes, compared_somewhere, left_out, without_cluster
from c2b_ray.steps.observe import CLASS, Checks, checks, read, with_files
from c2b_ray.steps.propose import propose
from c2b_ray.storage import files
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import PROPOSALS, READINGS, content_id

LEAST = 0.5
"""The least share of the images that a model must say something of."""


@dataclass(frozen=True)
class Looked:
    """What a model looks at: the images `of` the audit's classes, in a source of this `revision`, opened by `load`."""

    image_classes: ImageClasses
    revision: str
    load: Load

    @property
    def rows(self) -> NDArray[np.int64]:
        return self.image_classes.rows


@dataclass(frozen=True)
class Look:
    """How a model is asked. `table`: of the run, where its answers are written; `identity`: class → what makes an
    answer another one, such as the model's revision and its questions; `step`, `role`, `config`: of the stage."""

    table: str
    identity: Mapping[str, Sequence[Any]]
    step: Callable[[pa.Table, Any], pa.Table]
    role: Callable[[], Any]
    config: StageConfig


def observe(run: C2BRun, runner: Runner, looked: Looked, look: Look, on_progress: OnProgress) -> pa.Table:
    """Has a model look at all images of the audit's classes; returns what it says, by ascending row.

    Raises SourceError where it says nothing of more than half of them.
    """
    rows, revision, load = looked.rows, looked.revision, looked.load
    check_unchanged(run, partial(wanted, rows, revision), load, runner, look.table)
    run.begin_writing()
    digests = [content_id("asked", name, *look.identity[name]) for name in looked.image_classes.classes]
    places = looked.image_classes.places.astype(np.min_scalar_type(-len(digests)))
    name_rows = partial(_named, classes=looked.image_classes.classes, digests=digests, places=places)
    runner.run(
        replace(numbered(rows, revision, "observation_id", name_rows), total=len(rows)),
        look.step,
        look.role,
        run.location(look.table),
        id_column="observation_id",
        config=replace(look.config, total=len(rows)),
        on_progress=on_progress,
        prepare=partial(with_files, load=load),
    )
    observed = pa.concat_tables(_said(run, look, looked, digests))
    errors = observed["error"].drop_null()
    if len(errors) > LEAST * observed.num_rows:
        raise SourceError(
            f"{run.path}: of {len(errors):,} of {observed.num_rows:,} images {look.table} say nothing; the first "
            f"reason: {errors[0]}. Mend the cause, delete {run.location(look.table)} and run the audit again"
        )
    return observed.filter(pc.is_null(observed["error"])).sort_by("row")


def _named(
    rows: pa.Table, classes: Sequence[str], digests: Sequence[str], places: NDArray[np.signedinteger[Any]]
) -> pa.Table:
    of_rows = places[rows["row"].to_numpy()].tolist()
    ids = [
        content_id("observe", image, digests[class_number])
        for image, class_number in zip(rows["image_id"].to_pylist(), of_rows, strict=True)
    ]
    rows = rows.append_column("observation_id", pa.array(ids, pa.string()))
    return rows.append_column(
        "target_class", pa.array([classes[class_number] for class_number in of_rows], pa.string())
    )


def _said(run: C2BRun, look: Look, looked: Looked, digests: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the answers to these questions, a part at a time. A run that resumes with other questions, or on a table
    with other rows, holds the former answers too."""
    for part in run.each(look.table, look.config.schema.names):
        rows = part["row"].to_numpy()
        is_of_class = (rows < len(looked.image_classes.places)) & (
            looked.image_classes.places[np.minimum(rows, len(looked.image_classes.places) - 1)] >= 0
        )
        part = part.filter(pa.array(is_of_class))
        ids = image_ids(part["row"].to_numpy(), looked.revision)
        expected = [
            content_id("observe", image, digests[class_number])
            for image, class_number in zip(
                ids.to_pylist(), looked.image_classes.places[part["row"].to_numpy()].tolist(), strict=True
            )
        ]
        yield part.filter(pc.equal(part["observation_id"], pa.array(expected, pa.string())))


# Attributes whose values a model reads off each image, and those that are cut from numbers.


READ = replace(VERIFY, schema=READINGS, weigh=None)
FIELD = "images.read"


def columns_named(config: AuditConfig, labels: pa.Table) -> dict[str, list[str]]:
    """Returns those of the config's attributes that are columns of the table; without `images.read`, all."""
    if config.images.read is None:
        return dict(config.attributes or {})
    columns = {normalise(name) for name in labels.column_names if name != TARGET}
    return {name: values for name, values in (config.attributes or {}).items() if normalise(name) in columns}


def read_values(
    config: AuditConfig, run: C2BRun, models: Backend, looked: Looked, labels: pa.Table, steps: Steps
) -> list[Derived]:
    """Returns the attributes whose values the model of `images.read` reads off the images; writes its questions, its
    calibration where the config has one, and its answers into the run."""
    section = config.images.read
    assert section is not None
    questions = _questions(config, run, models, labels, steps)
    description = models.describe("captioner", section.model)
    note_models(run, {"reader": model_row(section.model, description)})
    warn_of_assumptions(steps, section.model, description)
    captions, _ = caption(config.task, questions, None, 1, config.seed, config.templates)
    questions_asked = checks(section.model, description.revision, config.classes, captions)
    role = partial(of_revision, models.captioner(section.model), description.revision, section.model)
    if section.calibration is not None and not run.has("calibration"):
        with steps.step("calibrate the reader") as on_progress:
            open_table = partial(calibration_of, section.calibration)
            table = open_table()
            _warn_of_uncalibrated(table.labels, questions_asked, steps)
            rows = to_ask(table.labels, table.revision, questions_asked, config.seed)
            rows = rows.filter(pc.not_equal(rows["attribute"], CLASS))  # the class of an image is known
            verifier, out = partial(verifier_source_of, role, open_table), run.location("calibration_answers")
            run.write(
                "calibration",
                counted(calibrate(models.runner, rows, verifier, questions_asked, out, on_progress), FIELD),
            )
    with steps.step("read values") as on_progress:
        of_class = {name: dict(questions_asked.attributes.get(name, {})) for name in config.classes}
        texts = {
            name: [
                description.revision,
                *(
                    [key, question.text, question.choices, question.texts]
                    for key, question in questions_of_class.items()
                ),
            ]
            for name, questions_of_class in of_class.items()
        }
        look = Look("readings", texts, partial(read, questions=of_class), role, READ)
        readings = observe(run, models.runner, looked, look, on_progress)
    measure = f"what {section.model} reads off the images"
    return _attributes(readings, questions, looked.image_classes, measure)


def _questions(config: AuditConfig, run: C2BRun, models: Backend, labels: pa.Table, steps: Steps) -> pa.Table:
    """Returns the attributes of each class that are read, once in a run's life: a language model might answer
    differently when it is called again."""
    if run.has("questions"):
        if config.language_model is not None:
            check_language_model(run, "language_model", config.language_model)
        return run.read("questions")
    columns = {normalise(name) for name in labels.column_names}
    configured = {name: values for name, values in (config.attributes or {}).items() if normalise(name) not in columns}
    replies = run.location("replies")
    with steps.step("propose", images_per_row=0) as report_progress:
        model, kept_replies = None, None
        if config.language_model is not None:
            model = models.language_model(config.language_model)
            kept_replies = KeptReplies(model, replies, report_progress)
        proposals, rejected = propose(config.task, config.classes, kept_replies, configured, config.seed)
        is_column = [normalise(name) in columns for name in proposals["attribute"].to_pylist()]
        proposals = proposals.filter(pa.array([not is_known for is_known in is_column], pa.bool_()))
        if proposals.num_rows == 0:
            raise ConfigError(
                FIELD, "there is nothing to read: each attribute of the config, or that was proposed, is a column"
            )
        run.write("rejected", rejected)
        if model is not None:
            run.update({"models": {"language_model": {"spec": config.language_model, "revision": model.revision}}})
        run.write("questions", proposals)
        if files.entries(replies):
            files.remove_directory(replies)
    return proposals


def calibration_of(path: str) -> LabelledTable:
    return LabelledTable(path, f"{FIELD}.calibration")


def check_reading(config: AuditConfig) -> None:
    """Raises ConfigError where a calibration of what is read has none of the audit's classes."""
    section = config.images.read
    if section is None or section.calibration is None:
        return
    targets = calibration_of(section.calibration).labels[TARGET].unique().to_pylist()
    if not {normalise(str(name)) for name in targets if name is not None} & set(map(normalise, config.classes)):
        raise ConfigError(f"{FIELD}.calibration", "none of its rows has a target_class of this audit's classes")


def _warn_of_uncalibrated(labels: pa.Table, questions: Checks, steps: Steps) -> None:
    proposed: dict[str, Sequence[str]] = {}
    for of_class in questions.attributes.values():
        for name, question in of_class.items():
            proposed[name] = list(dict.fromkeys([*proposed.get(name, []), *question.choices]))
    for text in uncalibrated(labels, proposed):
        steps.warn(f"{text}; the scores of that attribute rest on the reader's word")


def _attributes(readings: pa.Table, questions: pa.Table, image_classes: ImageClasses, measure: str) -> list[Derived]:
    """Returns each attribute with the values that were read. Raises SourceError where no value was."""
    values = _values(questions)
    rows, names, answers = (readings[name].to_pylist() for name in ("row", "attributes", "values"))
    codes_of_attribute = {name: np.full(len(image_classes.places), -1, np.int64) for name in values}
    numbers = {name: {value: i for i, value in enumerate(of_name)} for name, of_name in values.items()}
    for row, of_row, read_answers in zip(rows, names, answers, strict=True):
        for name, value in zip(of_row, read_answers, strict=True):
            if value is not None:
                codes_of_attribute[name][row] = numbers[name][value]
    attributes = [
        Derived(name, "read", measure, coded(codes, values[name]))
        for name, codes in codes_of_attribute.items()
        if (codes >= 0).any()
    ]
    if not attributes:
        raise SourceError(f"{FIELD}: no value was read off any image")
    return attributes


def _values(questions: pa.Table) -> Mapping[str, list[str]]:
    """Returns attribute → all values that are asked about, of any class."""
    values: dict[str, list[str]] = {}
    for name, listed in zip(questions["attribute"].to_pylist(), questions["bias_classes"].to_pylist(), strict=True):
        values[name] = list(dict.fromkeys([*values.get(name, []), *listed]))
    return values


@dataclass(frozen=True)
class Attributes:
    """What is compared on a labelled table.

    `labels`: the columns that can be attributes, the derived ones among them. `named`: those that the config names, and
    the derived ones; None: every column that can be one. `to_measure`: properties of images that are not yet among
    them. `not_cut`: columns that could be cut, and are not → how (`can_be_cut`). `by_models`: whether models have yet
    to look at the images for more. `reasons`: what is no attribute → why.
    """

    labels: pa.Table
    image_classes: ImageClasses
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
    image_classes = ImageClasses.of(labels, config.classes)
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
    rows = attributes.image_classes.rows
    check_unchanged(run, partial(wanted, rows, revision), load, runner, "properties")
    run.begin_writing()
    measure_images(runner, (rows, revision), load, run.location("properties"), on_progress)
    columns = [image_property.column for image_property in attributes.to_measure]
    measured = pa.concat_tables(_measured(run, revision, ["error", *columns]))
    if measured.num_rows and not measured["error"].null_count:
        raise SourceError(
            f"{run.path}: none of its {measured.num_rows:,} images can be read; the first reason: "
            f"{measured['error'][0]}. Mend the cause, delete {run.location('properties')}, where the failures are "
            "noted, and run the audit again"
        )
    derived, reasons = derived_properties(
        measured.drop_columns(["error"]), attributes.to_measure, attributes.image_classes
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
