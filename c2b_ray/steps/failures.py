"""predictions → the images that a classifier got wrong, each with what it shows and what it was taken for.

It knows which images belong to a cell and what counts as right; it knows nothing of files.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from c2b_ray.schemas import FAILURES
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.intersect import is_pair


def failures(captions: pa.Table, draws: pa.Table, images: pa.Table, predictions: pa.Table) -> pa.Table:
    """A table of `schemas.FAILURES`: a row per classifier, cell and image with a wrong answer.

    `images`: a table with image_id, key, content and fingerprint. Near-duplicates of an image count once in a cell, as
    in its scores; an image of several cells has a row in each. Images without an answer are no failures.
    """
    distinct = Distinct(images)
    key_of = dict(zip(images["image_id"].to_pylist(), images["key"].to_pylist(), strict=True))
    rows: list[dict[str, Any]] = []
    for classifier in predictions["classifier"].unique().to_pylist():
        answers = answers_of(predictions, classifier)
        sure = _probabilities(predictions, classifier)
        for (target, attribute, value), drawn in _cells(captions, draws).items():
            taken = answers.of(target)
            for image in sorted(distinct.distinct(drawn)):
                answer = taken.get(image)
                if answer in (None, target):
                    continue
                label, probability = sure[image]
                rows.append(
                    {
                        "key": key_of.get(image),
                        "truth": target,
                        "answer": answer,
                        "cell": f"{attribute}/{value}",
                        "attribute": attribute,
                        "bias_class": value,
                        "classifier": classifier,
                        "label": label,
                        "label_probability": probability,
                        "image_id": image,
                    }
                )
    return pa.Table.from_pylist(rows, FAILURES)


def _probabilities(predictions: pa.Table, classifier: str) -> dict[str, tuple[str | None, float | None]]:
    columns = (predictions[name].to_pylist() for name in ("image_id", "classifier", "label", "label_probability"))
    return {image: (label, sure) for image, whose, label, sure in zip(*columns, strict=True) if whose == classifier}


def _cells(captions: pa.Table, draws: pa.Table) -> dict[tuple[str, str, str], set[str]]:
    cells: dict[tuple[str, str, str], set[str]] = {}
    place = {}
    names = ("caption_id", "proposal_id", "target_class", "attribute", "bias_class")
    for caption, proposal, *cell in zip(*(captions[name].to_pylist() for name in names), strict=True):
        if not is_pair(proposal):
            place[caption] = cells.setdefault((cell[0], cell[1], cell[2]), set())
    for caption, image in zip(draws["caption_id"].to_pylist(), draws["image_id"].to_pylist(), strict=True):
        if caption in place:
            place[caption].add(image)
    return cells
