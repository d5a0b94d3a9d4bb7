"""The stages that measure a verifier on labelled images: rows are the questions, parts hold its answers.

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
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.schemas import CALIBRATION_ANSWERS, NEGATIVES
from c2b_ray.steps.calibrate import BATCH, Beholder, ask
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.negatives import Lookout, Reach, compare
from c2b_ray.steps.verify import Checks
from c2b_ray.store.parts import read_stage

CALIBRATE = replace(VERIFY, schema=CALIBRATION_ANSWERS, weigh=None)
COMPARE = replace(CALIBRATE, schema=NEGATIVES)


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


def compare_negatives(
    runner: Runner,
    images: pa.Table,
    lookout: Callable[[], Lookout],
    checks: Checks,
    out: str,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """Returns what the verifier says of the `images` (`steps.negatives.TO_COMPARE`) that are near to a caption.

    The answers are written as `schemas.NEGATIVES` under `out` and read back from there.
    """
    rows, config = Rows.of(images, BATCH), replace(COMPARE, total=images.num_rows)
    step = partial(compare, checks=checks)
    runner.run(rows, step, lookout, out, id_column="negative_id", config=config, on_progress=on_progress)
    negatives = read_stage(out)
    return negatives.filter(pc.is_in(negatives["negative_id"], images["negative_id"].combine_chunks()))


def lookout_of(
    captioner: Callable[[], Captioner],
    encoder: Callable[[], TextImageEncoder],
    source: Callable[[], ImageSource],
    reach: Reach,
) -> Lookout:
    return Lookout(captioner(), encoder(), source(), reach)
