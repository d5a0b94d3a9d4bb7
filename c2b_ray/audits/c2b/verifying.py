"""The verifier of an audit: loaded once, calibrated once, and called whenever images were drawn or looked at.

Where images are drawn from those of an index that it accepts, it also looks at the calibration's images of other
classes that are near to the captions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.facts import model_row, warn_of_assumptions
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config import AuditConfig
from c2b_ray.pipelines.calibrate import beholder_of, calibrate, compare_negatives, lookout_of
from c2b_ray.pipelines.images import ImageStages, of_revision
from c2b_ray.roles import Captioner
from c2b_ray.schemas import content_id
from c2b_ray.steps.calibrate import counted, to_ask
from c2b_ray.steps.in_place import Load
from c2b_ray.steps.intersect import ATTRIBUTE, of_kind
from c2b_ray.steps.negatives import Reach, to_compare
from c2b_ray.steps.select import NEAREST
from c2b_ray.steps.verify import Checks, checks, wanted
from c2b_ray.store.c2b_run import C2BRun
from c2b_ray.store.labelled import LabelledTable


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
            needed = wanted(run.captions, draws, self.questions)
            images, out = run.location("images"), run.location("verifications")
            self.stages.verify(images, needed, self.captioner, self.questions, out, on_progress, source)


def verifier_of(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> Verifier | None:
    """Returns the audit's verifier, noted in the run and calibrated; None where the config has none."""
    about = config.verification
    if about is None:
        return None
    known = models.describe("captioner", about.model)
    revision = known.revision
    factory = partial(of_revision, models.captioner(about.model), revision, about.model)
    questions = checks(about.model, revision, config.classes, run.captions)
    run.update({"models": {"verifier": model_row(about.model, known)}})
    warn_of_assumptions(steps, about.model, known)
    if about.calibration is not None and not run.has("calibration"):
        with steps.step("calibrate the verifier") as on_progress:
            opened = partial(calibration_table, about.calibration)
            table = opened()
            to_answer = to_ask(table.labels, table.revision, questions, config.seed)
            beholder, out = partial(beholder_of, factory, opened), run.location("calibration_answers")
            answers = calibrate(models.runner, to_answer, beholder, questions, out, on_progress)
            run.write("calibration", counted(answers))
    return Verifier(factory, questions, ImageStages(models.runner))


def look_at_negatives(
    config: AuditConfig, run: C2BRun, models: Backend, steps: Steps, verifier: Verifier, nearest: pa.Table
) -> None:
    """Writes what the verifier says of the calibration's images of other classes that are near to the captions.

    `nearest`: of `schemas.DRAWS`, the pool of each caption. Does nothing without a calibration table, or where images
    are drawn without looking which of them the verifier accepts.
    """
    about = config.verification
    if about is None or about.calibration is None or config.images.selection == NEAREST or run.has("negatives"):
        return
    with steps.step("look for similar images in the calibration") as on_progress:
        opened = partial(calibration_table, about.calibration)
        table, index = opened(), models.describe("index", str(config.images.index))
        encoder = models.describe("encoder", index.encoder)
        asked, reach = verifier.questions, Reach.of(of_kind(run.captions, ATTRIBUTE), nearest)
        made_by = content_id(index.revision, encoder.revision, asked.verifier, asked.revision, repr(asked))
        images = to_compare(table.labels, table.revision, made_by, reach, config.seed)
        encode = partial(of_revision, models.encoder(index.encoder), encoder.revision, index.encoder)
        lookout = partial(lookout_of, verifier.captioner, encode, opened, reach)
        out = run.location("negative_answers")
        run.write("negatives", compare_negatives(models.runner, images, lookout, asked, out, on_progress))


def calibration_table(path: str) -> LabelledTable:
    return LabelledTable(path, "verification.calibration")
