"""Asks a verifier what images of a label show, for `reliability`. It knows only bytes and answers."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.errors import ImageError
from c2b_ray.roles import Answer, Captioner
from c2b_ray.schemas import DESCRIPTIONS
from c2b_ray.steps.decode import decode
from c2b_ray.steps.discovery.reliability import inspection
from c2b_ray.steps.verify import weighed


def inspect(images: pa.Table, verifier: Captioner) -> pa.Table:
    """Returns a table of `schemas.DESCRIPTIONS`, a row per row of `images`.

    `images`: `description_id`, `label`, `image`, and `labels`, the other labels that it may show. `text` in the result
    is the label that the verifier sees.
    """
    rows = []
    for row in images.to_pylist():
        text, error = None, None
        try:
            question = inspection(row["label"], row["labels"]).shown
            answer = weighed(verifier.answer([decode(row["image"])], [question])[0], question)
            text, error = answer.choice, answer.error
        except ImageError as reason:
            error = str(reason)
        rows.append({"description_id": row["description_id"], "text": text, "error": error})
    return pa.Table.from_pylist(rows, DESCRIPTIONS)


def answer_of(text: str | None, error: str | None) -> Answer:
    """Returns as an answer what `inspect` wrote."""
    return Answer(text, error=None if text is not None else error or "no answer")
