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
    about = config.images.read
    assert about is not None
    questions = _questions(config, run, models, labels, steps)
    known = models.describe("captioner", about.model)
    note_models(run, {"reader": model_row(about.model, known)})
    warn_of_assumptions(steps, about.model, known)
    captions, _ = caption(config.task, questions, None, 1, config.seed, config.templates)
    asked = checks(about.model, known.revision, config.classes, captions)
    role = partial(of_revision, models.captioner(about.model), known.revision, about.model)
    if about.calibration is not None and not run.has("calibration"):
        with steps.step("calibrate the reader") as on_progress:
            opened = partial(calibration_of, about.calibration)
            table = opened()
            _warn_of_uncalibrated(table.labels, asked, steps)
            rows = to_ask(table.labels, table.revision, asked, config.seed)
            rows = rows.filter(pc.not_equal(rows["attribute"], CLASS))  # the class of an image is known
            beholder, out = partial(beholder_of, role, opened), run.location("calibration_answers")
            run.write("calibration", counted(calibrate(models.runner, rows, beholder, asked, out, on_progress), FIELD))
    with steps.step("read values") as on_progress:
        of_class = {name: dict(asked.attributes.get(name, {})) for name in config.classes}
        texts = {
            name: [known.revision, *([key, one.text, one.choices, one.texts] for key, one in of.items())]
            for name, of in of_class.items()
        }
        look = Look("readings", texts, partial(read, questions=of_class), role, READ)
        readings = observe(run, models.runner, looked, look, on_progress)
    measure = f"what {about.model} reads off the images"
    return _attributes(readings, questions, looked.of, measure)


def _questions(config: AuditConfig, run: C2BRun, models: Backend, labels: pa.Table, steps: Steps) -> pa.Table:
    """Returns the attributes of each class that are read, once in a run's life: a language model might answer
    differently when it is called again."""
    if run.has("questions"):
        if config.language_model is not None:
            check_language_model(run, "language_model", config.language_model)
        return run.read("questions")
    columns = {normalise(name) for name in labels.column_names}
    own = {name: values for name, values in (config.attributes or {}).items() if normalise(name) not in columns}
    replies = run.location("replies")
    with steps.step("propose", images_per_row=0) as tell:
        model, kept = None, None
        if config.language_model is not None:
            model = models.language_model(config.language_model)
            kept = KeptReplies(model, replies, tell)
        proposals, rejected = propose(config.task, config.classes, kept, own, config.seed)
        known = [normalise(name) in columns for name in proposals["attribute"].to_pylist()]
        proposals = proposals.filter(pa.array([not one for one in known], pa.bool_()))
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
    about = config.images.read
    if about is None or about.calibration is None:
        return
    targets = calibration_of(about.calibration).labels[TARGET].unique().to_pylist()
    if not {normalise(str(name)) for name in targets if name is not None} & set(map(normalise, config.classes)):
        raise ConfigError(f"{FIELD}.calibration", "none of its rows has a target_class of this audit's classes")


def _warn_of_uncalibrated(labels: pa.Table, asked: Checks, steps: Steps) -> None:
    proposed: dict[str, Sequence[str]] = {}
    for of_class in asked.attributes.values():
        for name, question in of_class.items():
            proposed[name] = list(dict.fromkeys([*proposed.get(name, []), *question.choices]))
    for text in uncalibrated(labels, proposed):
        steps.warn(f"{text}; the scores of that attribute rest on the reader's word")


def _attributes(readings: pa.Table, questions: pa.Table, of: OfClasses, measure: str) -> list[Derived]:
    """Returns each attribute with the values that were read. Raises SourceError where no value was."""
    values = _values(questions)
    rows, names, answers = (readings[name].to_pylist() for name in ("row", "attributes", "values"))
    places = {name: np.full(len(of.places), -1, np.int64) for name in values}
    numbers = {name: {value: at for at, value in enumerate(of_name)} for name, of_name in values.items()}
    for row, of_row, said in zip(rows, names, answers, strict=True):
        for name, value in zip(of_row, said, strict=True):
            if value is not None:
                places[name][row] = numbers[name][value]
    found = [Derived(name, "read", measure, coded(at, values[name])) for name, at in places.items() if (at >= 0).any()]
    if not found:
        raise SourceError(f"{FIELD}: no value was read off any image")
    return found


def _values(questions: pa.Table) -> Mapping[str, list[str]]:
    """Returns attribute → all values that are asked about, of any class."""
    values: dict[str, list[str]] = {}
    for name, listed in zip(questions["attribute"].to_pylist(), questions["bias_classes"].to_pylist(), strict=True):
        values[name] = list(dict.fromkeys([*values.get(name, []), *listed]))
    return values
