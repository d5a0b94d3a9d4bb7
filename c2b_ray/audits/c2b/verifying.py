"""The verifier of an audit: loaded once, calibrated once, and called whenever images were drawn or looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.facts import model_row, warn_of_assumptions
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config import AuditConfig
from c2b_ray.pipelines.calibrate import beholder_of, calibrate
from c2b_ray.pipelines.images import ImageStages, of_revision
from c2b_ray.roles import Captioner
from c2b_ray.steps.calibrate import counted, to_ask
from c2b_ray.steps.in_place import Load
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


def calibration_table(path: str) -> LabelledTable:
    return LabelledTable(path, "verification.calibration")
