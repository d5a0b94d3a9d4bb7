"""Classifies labelled images: whether each classifier fails on each image, and the label that it takes it for.

It knows images, labels and deciders; not what else the images show.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.roles import Classifier, Floats
from c2b_ray.schemas import ANSWERS
from c2b_ray.schemas.failure_rows import AnswerRow, Outcome
from c2b_ray.schemas.failures import PICTURES
from c2b_ray.steps.discovery.rounds import Decider
from c2b_ray.steps.draw import ImageSource, fetch
from c2b_ray.steps.encoded import DecodedOnce
from c2b_ray.steps.right import NO_ANSWER


@dataclass(frozen=True)
class LabelledModels:
    """The source of labelled images, and the classifiers."""

    source: ImageSource
    classifiers: tuple[tuple[Classifier, Decider], ...]


def answer_images(batch: pa.Table, models: LabelledModels) -> pa.Table:
    """Returns a table of `schemas.ANSWERS`: a row per image and classifier, for the ids that the image still has.

    `batch`: `answer_id` (a list: one per classifier that has not answered), `row` in the source, `name` of the image in
    it, and `label`.
    """
    rows, labels = batch["row"].to_pylist(), batch["label"].to_pylist()
    images = models.source.fetch(rows)
    errors = images["error"].to_pylist() if "error" in images.column_names else [None] * len(rows)
    files = DecodedOnce([None if e else data for data, e in zip(images["bytes"].to_pylist(), errors, strict=True)])
    keys, ids = images["key"].to_pylist(), [set(wanted) for wanted in batch["answer_id"].to_pylist()]
    names = batch["name"].to_pylist()
    result: list[AnswerRow] = []
    for classifier, decider in models.classifiers:
        logits, undecoded = files.logits(range(len(rows)), keys, classifier)
        for index, (row, name, label) in enumerate(zip(rows, names, labels, strict=True)):
            answer_id = decider.round_id(name, label)
            if answer_id in ids[index]:
                answer = _answer(decider, logits[index : index + 1], label, errors[index] or undecoded[index])
                result.append({"answer_id": answer_id, "row": row, "classifier": decider.classifier, **answer})
    return pa.Table.from_pylist(result, ANSWERS)


def pictures(batch: pa.Table, source: ImageSource) -> pa.Table:
    """Returns a table of `PICTURES`: what tells copies of an image. `batch`: `image_id`, and `row` in the source."""
    images = fetch(batch, source).select(["image_id", "content", "fingerprint"])
    return images.append_column("row", batch["row"]).select(PICTURES.names).cast(PICTURES)


def _answer(decider: Decider, logits: Floats, label: str, error: str | None) -> Outcome:
    if error is not None:
        return {"failed": None, "predicted": None, "top3": [], "confidence": None, "error": error}
    decisions = decider.decide(logits, label)
    if not decisions.answered[0]:
        return {"failed": None, "predicted": None, "top3": [], "confidence": None, "error": NO_ANSWER}
    position = int(decisions.predicted[0])
    return {
        "failed": bool(decisions.failed[0]),
        "predicted": None if position < 0 else decider.names[position],
        "top3": [decider.names[index] for index in decisions.top3[0].tolist() if index >= 0],
        "confidence": float(decisions.confidence[0]),
        "error": None,
    }
