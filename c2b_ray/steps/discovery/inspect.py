"""Asks a verifier what images of a label show, for `reliability`. It knows only bytes and answers."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.roles import Answer, Captioner
from c2b_ray.schemas import DESCRIPTIONS
from c2b_ray.steps import encoded
from c2b_ray.steps.discovery.reliability import inspection
from c2b_ray.steps.verify import weighed


def inspect(images: pa.Table, verifier: Captioner) -> pa.Table:
    """Returns a table of `schemas.DESCRIPTIONS`, a row per row of `images`.

    `images`: `description_id`, `label`, `image`, and `labels`, the other labels that it may show. `text` in the result
    is the label that the verifier sees.
    """
    rows = images.to_pylist()
    questions = [inspection(row["label"], row["labels"]).shown for row in rows]
    replies, undecoded = encoded.answers([row["image"] for row in rows], [[one] for one in questions], verifier)
    described = []
    for row, question, of_image, error in zip(rows, questions, replies, undecoded, strict=True):
        answer = weighed(of_image[0], question) if error is None else Answer(None, error=error)
        described.append({"description_id": row["description_id"], "text": answer.choice, "error": answer.error})
    return pa.Table.from_pylist(described, DESCRIPTIONS)


def answer_of(text: str | None, error: str | None) -> Answer:
    """Returns as an answer what `inspect` wrote."""
    return Answer(text, error=None if text is not None else error or "no answer")
