"""proposals → captions: a template for the task, then a caption for each class and bias class (C2B, Eq. 3 and 4).

Without a language model, and for cells whose replies cannot be used, a fixed template is filled in. It does not know
which model answers, nor what the captions are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.roles import ChatRequest, LanguageModel
from c2b_ray.schemas import CAPTIONS, REJECTED, content_id, seed_of
from c2b_ray.steps.propose import TEMPERATURE, TOP_P, described, normalise
from c2b_ray.steps.replies import CAPTION_SCHEMA, TEMPLATE_SCHEMA, parse_reply

DEFAULT_TEMPLATE = "a photo of a [CLASS], [ATTRIBUTE]: [VALUE]"
MAX_TOKENS = 96
IDENTITY = ("proposal_id", "bias_class", "number")
Cell = dict[str, Any]


def cells(proposals: pa.Table, captions_per_cell: int) -> list[Cell]:
    """A row per caption to be written: class, attribute, bias class and its number within the cell."""
    return [
        {
            "proposal_id": row["proposal_id"],
            "target_class": row["target_class"],
            "attribute": row["attribute"],
            "bias_class": bias_class,
            "number": number,
        }
        for row in proposals.to_pylist()
        for bias_class in row["bias_classes"]
        for number in range(captions_per_cell)
    ]


def caption(
    task: str, proposals: pa.Table, language_model: LanguageModel | None, captions_per_cell: int, seed: int
) -> tuple[pa.Table, pa.Table]:
    """Tables of `schemas.CAPTIONS` (one row per cell and number, whatever was rejected) and `schemas.REJECTED`."""
    rows = cells(proposals, captions_per_cell)
    rejected: list[dict[str, str]] = []
    if language_model is None:
        texts = [fill(DEFAULT_TEMPLATE, row) for row in rows]
    else:
        classes = proposals["target_class"].unique().to_pylist()
        template, rejected = _template(described(task, classes), language_model, seed)
        texts, more = _texts(template, rows, language_model, seed)
        rejected += more
    for row, text in zip(rows, texts, strict=True):
        row["text"] = text
        row["caption_id"] = content_id("caption", row["proposal_id"], row["bias_class"], row["number"], text)
    return pa.Table.from_pylist(rows, CAPTIONS), pa.Table.from_pylist(rejected, REJECTED)


def fill(template: str, row: Cell) -> str:
    places = {"[CLASS]": "target_class", "[ATTRIBUTE]": "attribute", "[VALUE]": "bias_class"}
    for place, column in places.items():
        template = template.replace(place, row[column])
    return template


def _template(task: str, language_model: LanguageModel, seed: int) -> tuple[str, list[dict[str, str]]]:
    request = ChatRequest(
        prompts.messages("template", task=task),
        schema=TEMPLATE_SCHEMA,
        temperature=TEMPERATURE,
        top_p=TOP_P,
        max_tokens=MAX_TOKENS,
        seed=seed_of("template", prompts.text("template"), task, seed),
    )
    reply = language_model.chat([request])[0]
    try:
        template = str(parse_reply(reply, TEMPLATE_SCHEMA)["template"])
        if "[CLASS]" not in template or "[VALUE]" not in template:
            raise ReplyError("the template lacks the place [CLASS] or [VALUE]", reply.text)
    except ReplyError as error:
        return DEFAULT_TEMPLATE, [_rejection("template", task, error)]
    return template, []


def _texts(
    template: str, rows: Sequence[Cell], language_model: LanguageModel, seed: int
) -> tuple[list[str], list[dict[str, str]]]:
    requests = [
        ChatRequest(
            prompts.messages(
                "caption",
                template=template,
                target_class=row["target_class"],
                attribute=row["attribute"],
                bias_class=row["bias_class"],
                number=str(row["number"] + 1),
            ),
            schema=CAPTION_SCHEMA,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            max_tokens=MAX_TOKENS,
            seed=seed_of("caption", prompts.text("caption"), [row[name] for name in IDENTITY], seed),
        )
        for row in rows
    ]
    texts, rejected = [], []
    for row, reply in zip(rows, language_model.chat(requests) if requests else [], strict=True):
        try:
            text = " ".join(str(parse_reply(reply, CAPTION_SCHEMA)["caption"]).split())
            if normalise(row["target_class"]) not in normalise(text):
                raise ReplyError("the caption does not name the class", reply.text)
        except ReplyError as error:
            text = fill(template, row)
            about = f"{row['target_class']}/{row['attribute']}/{row['bias_class']}"
            rejected.append(_rejection("caption", about, error))
        texts.append(text)
    return texts, rejected


def _rejection(step: str, about: str, error: ReplyError) -> dict[str, str]:
    return {"step": step, "about": about, "reply": error.reply, "reason": str(error)}
