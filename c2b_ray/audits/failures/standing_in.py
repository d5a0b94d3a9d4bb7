"""Makes rounds of labelled images from their answers, so that reports read one table whatever the source of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from c2b_ray.audits.failures.drawing import CONFIRMATION, DISCOVERY, MEASURE, SEARCH, TEST
from c2b_ray.schemas import ROUNDS, content_id
from c2b_ray.schemas.failure_rows import AnswerRow, ExampleRow, RoundRow
from c2b_ray.steps.discovery.conditions import Answered, Condition
from c2b_ray.store.labelled import LabelledTable

KEPT = 4
"""Images of failures that a round keeps."""


def rounds_of(
    images: LabelledTable,
    rows: Sequence[int],
    answered: Answered,
    answers: Mapping[str, Sequence[AnswerRow]],
    captions: Sequence[Condition],
) -> pa.Table:
    """Returns a table of `schemas.ROUNDS`: a row per part, classifier and caption; labels alone are captions too."""
    with_labels = [*(Condition(label) for label in dict.fromkeys(one.label for one in captions)), *captions]
    result = []
    for condition in dict.fromkeys(with_labels):
        mask = answered.of_label(condition.label) & answered.showing(condition.values)
        for stage, part in ((DISCOVERY, SEARCH), (CONFIRMATION, TEST), (CONFIRMATION, MEASURE)):
            chosen = np.flatnonzero(answered.once(mask & answered.of_part(part))).tolist()
            for name, group in answers.items():
                kept = [(rows[index], group[index]) for index in chosen]
                result.append(_round(condition, stage, part, name, images, kept))
    return pa.Table.from_pylist(result, ROUNDS)


def _round(
    condition: Condition,
    stage: str,
    part: str,
    classifier: str,
    images: LabelledTable,
    answers: Sequence[tuple[int, AnswerRow]],
) -> RoundRow:
    failed = [(row, answer) for row, answer in answers if answer["failed"]]
    taken_for = Counter(answer["predicted"] for _, answer in failed if answer["predicted"] is not None)
    silent = [answer["error"] or "" for _, answer in answers if answer["failed"] is None]
    caption_id = condition.caption.caption_id
    return {
        "round_id": content_id("labelled round", images.revision, caption_id, part, classifier),
        "caption_id": caption_id,
        "stage": stage,
        "part": part,
        "generator": images.location,
        "classifier": classifier,
        "first": 0,
        "draws": len(answers) - len(silent),
        "unusable": len(silent),
        "reasons": list(dict.fromkeys(silent))[:KEPT],
        "failures": len(failed),
        "predicted": sorted(taken_for),
        "counts": [taken_for[name] for name in sorted(taken_for)],
        "examples": _examples(images, failed[:KEPT]),
        "seconds": 0.0,
    }


def _examples(images: LabelledTable, failed: Sequence[tuple[int, AnswerRow]]) -> list[ExampleRow]:
    files = images.fetch([row for row, _ in failed])["bytes"].to_pylist()
    return [
        {
            "seed": row,
            "predicted": answer["predicted"],
            "top3": answer["top3"],
            "confidence": answer["confidence"],
            "image": file,
        }
        for (row, answer), file in zip(failed, files, strict=True)
        if file is not None
    ]
