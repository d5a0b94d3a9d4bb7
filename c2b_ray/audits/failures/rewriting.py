"""Other wordings of captions that fail: adjectives dropped by rule, and shorter captions by a language model.

The language model gets each caption once. Its reply is kept beside the descriptions, for a run that resumes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from c2b_ray.audits.failures.screening import Purse, rate, screen
from c2b_ray.audits.failures.work import Hypothesis, Kind, Work
from c2b_ray.audits.kit.noted import language_model_row
from c2b_ray.roles import ChatReply
from c2b_ray.schemas import DESCRIPTIONS, content_id
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.refine import rewrite_request, rewrites, without_adjectives
from c2b_ray.store.parts import writing

MOST = 6
"""Wordings of one caption that are drawn."""


def rewrite(work: Work, hypotheses: Sequence[Hypothesis], purse: Purse, most: int) -> list[Hypothesis]:
    """Draws other wordings of the captions of each kind that failed most, and returns hypotheses on them."""
    best: dict[Kind, Hypothesis] = {}
    for one in hypotheses:
        if one.caption.sentences and (one.kind not in best or rate(work, one) > rate(work, best[one.kind])):
            best[one.kind] = one
    replies = _replies(work, list(dict.fromkeys(one.caption for one in best.values())))
    result = []
    for one in best.values():
        wordings = without_adjectives(one.caption)
        if one.caption.caption_id in replies:
            wordings += rewrites(one.caption, replies[one.caption.caption_id], _others(work, one.caption))[0]
        result += [Hypothesis(one.kind, work.register(wording)) for wording in wordings[:MOST]]
    screen(work, result, purse, most)
    return result


def _others(work: Work, caption: Candidate) -> list[str]:
    """Returns the words that no wording may hold: the other labels that a failure can be."""
    return [label for label in work.baselines if label != caption.label]


def _replies(work: Work, captions: Sequence[Candidate]) -> dict[str, ChatReply]:
    spec = work.config.language_model
    if spec is None or not captions:
        return {}
    row = language_model_row(work.models, spec)
    work.run.update({"models": {"language model": row}})
    ids = {content_id("shorten", row["revision"], one.caption_id): one for one in captions}
    rows = work.run.read("descriptions").to_pylist()
    known = {row["description_id"]: row for row in rows if row["description_id"] in ids}
    if missing := [one for one in ids if one not in known]:
        with work.steps.step("shorten captions by a language model"):
            requests = [rewrite_request(ids[one], work.config.seed) for one in missing]
            replies = work.models.language_model(spec).chat(requests)
        new = [
            {"description_id": one, "text": reply.text, "error": reply.error}
            for one, reply in zip(missing, replies, strict=True)
        ]
        work.run.begin_writing()
        with writing(work.run.location("descriptions")) as parts:
            parts.write(pa.Table.from_pylist(new, DESCRIPTIONS), "description_id")
        known |= {row["description_id"]: row for row in new}
    return {ids[one].caption_id: ChatReply(row["text"] or "", row["error"]) for one, row in known.items()}
