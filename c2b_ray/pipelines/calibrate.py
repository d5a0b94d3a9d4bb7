"""The stage that measures a verifier on labelled images: rows are the questions, parts hold its answers.

It leaves reading, writing and resuming to `stage`, and the questions to `steps.calibrate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.pipelines.images import VERIFY, OnProgress
from c2b_ray.pipelines.stage import Rows, Runner
from c2b_ray.roles import Captioner
from c2b_ray.schemas import CALIBRATION_ANSWERS
from c2b_ray.steps.calibrate import BATCH, Beholder, ask
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.verify import Checks
from c2b_ray.store.parts import read_stage

CALIBRATE = replace(VERIFY, schema=CALIBRATION_ANSWERS, weigh=None)


def calibrate(
    runner: Runner,
    questions: pa.Table,
    beholder: Callable[[], Beholder],
    checks: Checks,
    out: str,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """Returns the verifier's answers to the `questions` (`steps.calibrate.TO_ASK`).

    The answers are written as `schemas.CALIBRATION_ANSWERS` under `out` and read back from there.
    """
    rows, config = Rows.of(questions, BATCH), replace(CALIBRATE, total=questions.num_rows)
    step = partial(ask, checks=checks)
    runner.run(rows, step, beholder, out, id_column="calibration_id", config=config, on_progress=on_progress)
    answers = read_stage(out)
    ids = questions["calibration_id"].combine_chunks()
    return answers.filter(pc.is_in(answers["calibration_id"], ids))


def beholder_of(captioner: Callable[[], Captioner], source: Callable[[], ImageSource]) -> Beholder:
    return Beholder(captioner(), source())
