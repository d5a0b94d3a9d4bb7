"""The stages that measure a verifier on labelled images: rows are the questions, parts hold its answers.

It leaves reading, writing and resuming to `stage`, and the questions to `audits.c2b.verification.calibration`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.verification.calibration import BATCH, VerifierSource, ask
from c2b_ray.audits.c2b.verification.negatives import CaptionReach, NegativeChecker, compare
from c2b_ray.engine.images import VERIFY, OnProgress
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.verify import Checks
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

    The answers are written as `schemas.CALIBRATION_ANSWERS` under `out` and read back from there.
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

    The answers are written as `schemas.NEGATIVES` under `out` and read back from there.
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
