"""Attributes that are no column of a labelled table: a model reads their values off each image.

It joins the config with the stage that asks the model (`hypotheses.observing`) and the one that calibrates it;
`scoring.read_values` corrects scores for its errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.hypotheses.derived import Derived, OfClasses, coded
from c2b_ray.audits.c2b.hypotheses.observing import Look, Looked, observe
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.verification.calibration import counted, to_ask, uncalibrated
from c2b_ray.audits.c2b.verification.stage import beholder_of, calibrate
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import check_language_model, model_row, note_models, warn_of_assumptions
from c2b_ray.audits.kit.replies import KeptReplies
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import VERIFY, of_revision
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.names import normalise
from c2b_ray.steps.caption import caption
from c2b_ray.steps.labels import TARGET
from c2b_ray.steps.observe import read
from c2b_ray.steps.propose import propose
from c2b_ray.steps.verify import CLASS, Checks, checks
from c2b_ray.storage import files
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import READINGS

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
            verifier, out = partial(beholder_of, role, open_table), run.location("calibration_answers")
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
    return _attributes(readings, questions, looked.of, measure)


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


def _attributes(readings: pa.Table, questions: pa.Table, image_classes: OfClasses, measure: str) -> list[Derived]:
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
