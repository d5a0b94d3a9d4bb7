"""Failure rates of real, labelled images, next to those of the baselines: rows of `schemas.TRANSFERS`.

The caption of a row is the label's baseline; the rate is compared with the baseline's draws of discovery.
"""

from __future__ import annotations

import numpy as np

from c2b_ray.audits.failures.drawing import DISCOVERY, SEARCH
from c2b_ray.audits.failures.labelled import Output, answers_to, rows_of, without_copies
from c2b_ray.audits.failures.work import Work
from c2b_ray.errors import ConfigError
from c2b_ray.schemas.failure_rows import TransferRow
from c2b_ray.store.labelled import LabelledTable


def beside(work: Work) -> list[TransferRow]:
    """Returns a row per label and classifier; no rows without `labelled`."""
    if work.config.labelled is None:
        return []
    images = LabelledTable(work.config.labelled, "labelled")
    rows, answered = rows_of(images, work.config, ())
    if not rows:
        raise ConfigError("labelled", f"no row of {images.location} has one of the run's labels as its target_class")
    for sentence in images.left_out.sentences():
        work.steps.warn(sentence)
    with work.steps.step("find copies") as on_progress:
        rows, answered = without_copies(images, rows, answered, Output(work.run, work.models.runner, on_progress))
    classifiers = work.drawing.stage.contenders
    with work.steps.step("classify labelled images") as on_progress:
        output = Output(work.run, work.models.runner, on_progress)
        answers = answers_to(images, rows, answered, classifiers, output)
    result: list[TransferRow] = []
    for label, caption in work.baselines.items():
        of_label = answered.of_label(label)
        for name, known in answers.known.items():
            drawn = work.drawing.counts(caption, name, DISCOVERY, SEARCH)
            failures = int(np.sum(answers.failed[name] & known & of_label))
            result.append(
                {
                    "caption_id": caption.caption_id,
                    "label": label,
                    "target": None,
                    "source": images.location,
                    "classifier": name,
                    "draws": int(np.sum(known & of_label)),
                    "failures": failures,
                    "any_failures": failures,
                    "baseline_draws": drawn.draws,
                    "baseline_failures": drawn.failures,
                    "rates": [],
                    "baseline_rates": [],
                    "p_value": None,
                }
            )
    return result
