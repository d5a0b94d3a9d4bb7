"""Checks whether a run's images were answered at all: scores from a small rest of the images are no audit.

It knows which images were drawn and which of them have an answer, and why the others have none; it does not know files.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.steps.image_ids import ImageIds

LEAST = 0.5
"""The least share of the drawn images that each classifier must have answered."""

NEVER_SHOWN = "the classifier was never shown it"

_LONGEST = 300
_VARYING = re.compile(r"\S*[/\\]\S*|\S+\.\w{2,4}\b|'[^']*'|\d+")  # paths, files, quoted names, numbers


def unanswered(draws: pa.Table, images: pa.Table, predictions: pa.Table, classifiers: Sequence[str]) -> str | None:
    """Returns a problem report where a classifier answered less than `LEAST` of the drawn images: how many it answered,
    and the most frequent reason; None where each classifier answered enough.

    `images`: `image_id` and `error` of `schemas.IMAGES`; `draws`, `predictions`: tables of their schemas.
    """
    drawn, _ = ImageIds.numbered(draws["image_id"])
    if not len(drawn):
        return "no image was drawn, so nothing was audited"
    broken = _errors(drawn, images)
    problems = []
    for classifier in classifiers:
        predicted = predictions.filter(pc.equal(predictions["classifier"], classifier)).select(["image_id", "error"])
        known = np.zeros(len(drawn), bool)
        known[(numbers := drawn.numbers(predicted["image_id"]))[numbers >= 0]] = True
        errors = _errors(drawn, predicted) | broken
        errors |= {i: NEVER_SHOWN for i in np.flatnonzero(~known).tolist() if i not in errors}
        answered = len(drawn) - len(errors)
        if answered < LEAST * len(drawn):
            count, example = _commonest(list(errors.values()))
            problems.append(
                f"{classifier} answered {answered:,} of the {len(drawn):,} images drawn; the commonest reason, of "
                f"{count:,}: {example}"
            )
    return "; ".join(problems) or None


def _errors(ids: ImageIds, rows: pa.Table) -> dict[int, str]:
    """Returns the number → error of these images that have one. `rows`: with `image_id` and `error`."""
    failed = rows.filter(pc.is_valid(rows["error"]))
    numbers, errors = ids.numbers(failed["image_id"]).tolist(), failed["error"].to_pylist()
    return {number: error for number, error in zip(numbers, errors, strict=True) if number >= 0}


def _commonest(reasons: Sequence[str]) -> tuple[int, str]:
    """Returns how many reasons are of the most frequent kind, whatever file or number they name, and the first of them
    in alphabetical order."""
    kinds = Counter(map(_kind, reasons))
    examples = defaultdict(list)
    for reason in reasons:
        examples[_kind(reason)].append(reason)
    kind, count = min(kinds.items(), key=lambda item: (-item[1], item[0]))
    example = " ".join(min(examples[kind]).split())
    return count, example if len(example) <= _LONGEST else example[: _LONGEST - 1] + "…"


def _kind(reason: str) -> str:
    return _VARYING.sub("…", reason)
