"""The stages that measure a verifier on labelled images: rows are the questions, parts hold its answers.

It leaves reading, writing and resuming to `stage`, and the questions to `audits.c2b.verification.calibration`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.verification.calibration import BATCH, VerifierSource, ask, counted, to_ask, uncalibrated
from c2b_ray.audits.c2b.verification.negatives import CaptionReach, NegativeChecker, compare
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import VERIFY, ImageStages, OnProgress, of_revision
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.names import normalise
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.verify import Checks, checks, wanted
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import CALIBRATION_ANSWERS, NEGATIVES

CALIBRATE = replace(VERIFY, schema=CALIBRATION_ANSWERS, weigh=None)
COMPARE = replace(CALIBRATE, schema=NEGATIVES)


def calibrate(
    runner: Runner,
    questions: pa.Table,
    beholder: Callable[[], VerifierSource],
    checks: Checks,
    out: str,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """Returns the verifier's answers to the `questions` (`audits.c2b.verification.calibration.TO_ASK`).

    The answers are written as `tables.CALIBRATION_ANSWERS` under `out` and read back from there.
    """
    step = partial(ask, checks=checks)
    return _answers(runner, questions, step, beholder, out, "calibration_id", CALIBRATE, on_progress)


def beholder_of(captioner: Callable[[], Captioner], source: Callable[[], ImageSource]) -> VerifierSource:
    return VerifierSource(captioner(), source())


def compare_negatives(
    runner: Runner,
    images: pa.Table,
    checker: Callable[[], NegativeChecker],
    checks: Checks,
    out: str,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """Returns what the verifier says of the `images` (`audits.c2b.verification.negatives.TO_COMPARE`) that are near to
    a caption.

    The answers are written as `tables.NEGATIVES` under `out` and read back from there.
    """
    return _answers(runner, images, partial(compare, checks=checks), checker, out, "negative_id", COMPARE, on_progress)


def negative_checker_of(
    captioner: Callable[[], Captioner],
    encoder: Callable[[], TextImageEncoder],
    source: Callable[[], ImageSource],
    reach: CaptionReach,
) -> NegativeChecker:
    return NegativeChecker(captioner(), encoder(), source(), reach)


def _answers(
    runner: Runner,
    questions: pa.Table,
    step: Callable[..., pa.Table],
    role: Callable[[], object],
    out: str,
    id_column: str,
    config: StageConfig,
    on_progress: OnProgress | None,
) -> pa.Table:
    """Runs the stage, and returns those rows of its parts that answer these questions."""
    of_all = replace(config, total=questions.num_rows)
    rows = Rows.of(questions, BATCH)
    runner.run(rows, step, role, out, id_column=id_column, config=of_all, on_progress=on_progress)
    answers = read_stage(out)
    return answers.filter(pc.is_in(answers[id_column], questions[id_column].combine_chunks()))


# The verifier of an audit: loaded once, calibrated once, and called whenever images were drawn or looked at.


@dataclass(frozen=True)
class Verifier:
    """`captioner` loads the model, `questions` are put to it, and `stages` run it."""

    captioner: Callable[[], Captioner]
    questions: Checks
    stages: ImageStages

    def verify(self, draws: pa.Table, run: C2BRun, steps: Steps, source: Load | None) -> None:
        """Verifies the images of these draws that are not verified yet, each once for each class that it was
        drawn for. `source`: of images whose bytes the run does not hold."""
        run.begin_writing()
        with steps.step("verify images") as on_progress:
            rows_needed = wanted(run.captions, draws, self.questions)
            images, out = run.location("images"), run.location("verifications")
            self.stages.verify(images, rows_needed, self.captioner, self.questions, out, on_progress, source)


def verifier_of(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> Verifier | None:
    """Returns the audit's verifier, noted in the run and calibrated; None where the config has none."""
    section = config.verification
    if section is None:
        return None
    description = models.describe("captioner", section.model)
    revision = description.revision
    factory = partial(of_revision, models.captioner(section.model), revision, section.model)
    questions = checks(section.model, revision, config.classes, run.captions)
    run.update({"models": {"verifier": model_row(section.model, description)}})
    warn_of_assumptions(steps, section.model, description)
    if section.calibration is not None and not run.has("calibration"):
        with steps.step("calibrate the verifier") as on_progress:
            open_table = partial(calibration_table, section.calibration)
            table = open_table()
            proposed = {
                name: question.choices
                for questions_of_class in questions.attributes.values()
                for name, question in questions_of_class.items()
            }
            for text in uncalibrated(table.labels, _others(proposed, config.attributes or {})):
                steps.warn(text)
            to_answer = to_ask(table.labels, table.revision, questions, config.seed)
            verifier_source, out = partial(beholder_of, factory, open_table), run.location("calibration_answers")
            answers = calibrate(models.runner, to_answer, verifier_source, questions, out, on_progress)
            run.write("calibration", counted(answers))
    return Verifier(factory, questions, ImageStages(models.runner))


def warn_of_uncalibrated(config: AuditConfig, steps: Steps) -> None:
    """Warns, before anything is made, of attributes and values of the config that its calibration does not have."""
    for text in uncalibrated_of(config):
        steps.warn(text)


def uncalibrated_of(config: AuditConfig) -> list[str]:
    """Returns in words what of the config's own attributes its calibration does not have."""
    section = config.verification
    if section is None or section.calibration is None or not config.attributes:
        return []
    return uncalibrated(calibration_table(section.calibration).labels, config.attributes)


def _others(
    attributes: Mapping[str, Sequence[str]], configured: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """Returns the attributes that the config does not name itself: of its own it was told at the start."""
    names = set(map(normalise, configured))
    return {name: values for name, values in attributes.items() if normalise(name) not in names}


def calibration_table(path: str) -> LabelledTable:
    return LabelledTable(path, "verification.calibration")
