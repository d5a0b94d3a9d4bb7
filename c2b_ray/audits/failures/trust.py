"""Measures whether the generator draws a label at all, as a verifier sees it (Wiles et al. 2022, App. B.3), and with
what.

The images are the sample of each label's baseline. Their other content (Fig. 5b) comes from the captioner's
descriptions.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pyarrow as pa

from c2b_ray.audits.failures.labels import ancestry_of
from c2b_ray.audits.failures.work import Work
from c2b_ray.audits.kit.facts import model_row, warn_of_assumptions
from c2b_ray.metrics.intervals import wilson_interval
from c2b_ray.pipelines.images import of_revision
from c2b_ray.pipelines.rounds import inspect_all
from c2b_ray.roles import Answer
from c2b_ray.schemas import RELIABILITY, content_id
from c2b_ray.steps.discovery.hierarchy import Hierarchy
from c2b_ray.steps.discovery.inspect import answer_of
from c2b_ray.steps.discovery.reliability import doubts, inspection, reliability

SHOWN = 12
"""Sentences of each label that the table has: those that are said most."""


def measure_trust(work: Work) -> dict[str, str]:
    """Writes `schemas.RELIABILITY`; returns label → why it is not to be trusted."""
    if work.config.verifier is None:
        return {}
    labels = [label for label, caption in work.baselines.items() if work.drawing.sample(caption)]
    ancestry = ancestry_of(work.config)
    answers = _seen(work, labels)
    inspections = [inspection(label, work.config.labels) for label in labels]
    hierarchy = None if ancestry is None else Hierarchy(ancestry)
    each = [[[answer] for answer in answers[label]] for label in labels]
    rows = reliability(work.drawing.source, inspections, each, hierarchy)
    work.run.write("reliability", pa.concat_tables([rows, *(_said(work, label) for label in labels)]))
    return doubts(rows)


def _seen(work: Work, labels: list[str]) -> dict[str, list[Answer]]:
    """Returns what the verifier sees in each image of a label's sample."""
    spec = str(work.config.verifier)
    described = work.models.describe("captioner", spec)
    revision = described.revision
    work.run.update({"models": {"verifier": model_row(spec, described)}})
    warn_of_assumptions(work.steps, spec, described)
    images = [(label, one["image"]) for label in labels for one in work.drawing.sample(work.baselines[label])]
    ids = [content_id("inspect", revision, label, work.config.labels, data) for label, data in images]
    known = _known(work, ids)
    missing = {one: image for one, image in zip(ids, images, strict=True) if one not in known}
    if missing:
        work.run.begin_writing()
        rows = pa.table(
            {
                "description_id": list(missing),
                "label": [label for label, _ in missing.values()],
                "labels": [work.config.labels] * len(missing),
                "image": pa.array([data for _, data in missing.values()], pa.binary()),
            }
        )
        factory = partial(of_revision, work.models.captioner(spec), revision, spec)
        with work.steps.step("verify the generator") as on_progress:
            inspect_all(work.models.runner, rows, factory, work.run.location("descriptions"), on_progress)
        known = _known(work, ids)
    answers: dict[str, list[Answer]] = {label: [] for label in labels}
    for one, (label, _) in zip(ids, images, strict=True):
        answers[label].append(answer_of(*known[one]))
    return answers


def _known(work: Work, ids: list[str]) -> dict[str, tuple[str | None, str | None]]:
    wanted, rows = set(ids), work.run.read("descriptions").to_pylist()
    return {row["description_id"]: (row["text"], row["error"]) for row in rows if row["description_id"] in wanted}


def _said(work: Work, label: str) -> pa.Table:
    """Counts of how many of a label's images the captioner says each sentence."""
    if work.describing is None:
        return RELIABILITY.empty_table()
    sample = work.drawing.sample(work.baselines[label])
    said = [one for one in work.describing.sentences([(label, image["image"]) for image in sample]) if one]
    counts = Counter(sentence for one in said for sentence in set(one))
    rows = []
    for sentence, shown in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        low, high = wilson_interval(shown, len(said))
        about = {"generator": work.drawing.source, "label": label, "attribute": "description", "value": sentence}
        numbers = {"images": len(said), "shown": shown, "rate": shown / len(said), "rate_low": low, "rate_high": high}
        rows.append(about | numbers)
    return pa.Table.from_pylist(rows, RELIABILITY)
