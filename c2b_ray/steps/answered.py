"""Whether a run's images were answered at all: scores of a few images that are left of many are no audit.

It knows which images were drawn and which of them have an answer, and why the others have none; it does not know files.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

LEAST = 0.5
"""The least share of the drawn images that each classifier must have answered."""

_LONGEST = 300
_VARYING = re.compile(r"\S*[/\\]\S*|\S+\.\w{2,4}\b|'[^']*'|\d+")  # paths, files, quoted names, numbers


def unanswered(draws: pa.Table, images: pa.Table, predictions: pa.Table, classifiers: Sequence[str]) -> str | None:
    """What is wrong where a classifier answered less than `LEAST` of the drawn images: how many it answered, and the
    commonest reason; None where each answered enough.

    `images`: `image_id` and `error` of `schemas.IMAGES`; `draws`, `predictions`: tables of their schemas.
    """
    drawn = set(draws["image_id"].to_pylist())
    if not drawn:
        return "no image was drawn, so nothing was audited"
    bad = images.filter(pc.is_valid(images["error"]))
    broken = {i: e for i, e in zip(bad["image_id"].to_pylist(), bad["error"].to_pylist(), strict=True) if i in drawn}
    told = []
    for classifier in classifiers:
        own = predictions.filter(pc.equal(predictions["classifier"], classifier))
        errors = dict(zip(own["image_id"].to_pylist(), own["error"].to_pylist(), strict=True))
        reasons = {i: broken.get(i) or errors.get(i, "the classifier was never shown it") for i in drawn}
        lacking = [reason for reason in reasons.values() if reason is not None]
        answered = len(drawn) - len(lacking)
        if answered < LEAST * len(drawn):
            count, example = _commonest(lacking)
            told.append(
                f"{classifier} answered {answered} of the {len(drawn)} images drawn; the commonest reason, of {count}: "
                f"{example}"
            )
    return "; ".join(told) or None


def _commonest(reasons: Sequence[str]) -> tuple[int, str]:
    """How many share the commonest reason, whatever file or number it names, and the first of them in order."""
    kinds = Counter(map(_kind, reasons))
    examples = defaultdict(list)
    for reason in reasons:
        examples[_kind(reason)].append(reason)
    kind, count = min(kinds.items(), key=lambda item: (-item[1], item[0]))
    example = " ".join(min(examples[kind]).split())
    return count, example if len(example) <= _LONGEST else example[: _LONGEST - 1] + "…"


def _kind(reason: str) -> str:
    return _VARYING.sub("…", reason)
