"""Calibrates a verifier on labelled images: how often it gives each answer for images of known content.

It decides which images are looked at and counts the answers; the questions are those of `steps.verify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.names import normalise
from c2b_ray.roles import Captioner, Question
from c2b_ray.steps import encoded
from c2b_ray.steps.draw import ImageSource, Rows
from c2b_ray.steps.verify import CLASS, OTHER, Checks, weighed
from c2b_ray.tables import CALIBRATION, CALIBRATION_ANSWERS, content_id, seed_of

CALIBRATED_ON = 150
"""The most images of a calibration table that are looked at for each value of an attribute, and for each class."""

BATCH = 64

TO_ASK = pa.schema(
    [
        pa.field("calibration_id", pa.string()),
        pa.field("row", pa.int64()),  # of the image in its table
        pa.field("target_class", pa.string()),  # whose question it is; null: the question after the class
        pa.field("attribute", pa.string()),
        pa.field("value", pa.string()),
    ]
)


@dataclass(frozen=True)
class VerifierSource:
    """A verifier, and the source of the images that it looks at."""

    captioner: Captioner
    source: ImageSource


def check_calibration(labels: pa.Table, classes: Sequence[str]) -> None:
    """Raises ConfigError where no row of a calibration table has one of the audit's classes."""
    if not set(_labels(labels, "target_class").tolist()) & {normalise(name) for name in classes}:
        raise ConfigError("verification.calibration", "none of its rows has a target_class of this audit's classes")


def uncalibrated(labels: pa.Table, attributes: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns in words which attributes and values a calibration table knows nothing of, with the nearest that it has:
    for these the verifier's errors are not known, so that little is found and nothing is called clear."""
    columns = [name for name in labels.column_names if name != "target_class"]
    said = []
    for attribute, values in attributes.items():
        if attribute not in columns:
            said.append(f"calibration has no column {attribute!r}; {nearest(attribute, columns)}")
            continue
        known = {normalise(str(value)) for value in labels[attribute].unique().to_pylist() if value is not None}
        absent = [value for value in values if normalise(value) not in known]
        said += [f"calibration has no image with {attribute}: {v!r}; {nearest(normalise(v), known)}" for v in absent]
    return said


def to_ask(labels: pa.Table, revision: str, checks: Checks, seed: int) -> pa.Table:
    """Returns which images are looked at for which value: a table of `TO_ASK`, with the rows of one image together.

    `labels`: `target_class` and a column per attribute, a row per image. Attributes without a column, and values that
    no image has, are left out; for these, `verified` relies on the verifier's own certainty. A null is no label. Images
    of classes that the audit does not have show what the verifier answers for something else.

    Those of a value depend on nothing that is asked beside it, nor on the order of classes, attributes and values.
    """
    targets = _labels(labels, "target_class")
    known = {name: targets == normalise(name) for name in checks.classes.choices}
    # Any name that is not one of the task's classes means something else, whether or not it is called so.
    of_classes = [here for name, here in known.items() if name != OTHER]
    known[OTHER] = np.array([target is not None for target in targets], bool) & ~np.any(of_classes, axis=0)
    jobs: list[tuple[int, str | None, str, str]] = []
    for name, here in known.items():
        # An image of something else may be taken for any class, rarely each: measuring that takes more images.
        most = CALIBRATED_ON * (len(of_classes) if name == OTHER else 1)
        of_class = seed_of("calibrate", CLASS, name, seed)
        jobs += [(row, None, CLASS, name) for row in _some(here, of_class, most).tolist()]
    having = Counter(attribute for groups in checks.attributes.values() for attribute in groups)
    for target, groups in checks.attributes.items():
        for attribute, question in groups.items():
            if attribute not in labels.column_names:
                continue
            column = _labels(labels, attribute)
            for value in question.choices:
                here = (targets == normalise(target)) & (column == normalise(value))
                share = max(1, CALIBRATED_ON // having[attribute])  # classes answer for an attribute together
                of_value = seed_of("calibrate", target, attribute, value, seed)
                jobs += [(row, target, attribute, value) for row in _some(here, of_value, share).tolist()]
    jobs.sort(key=lambda job: job[0])
    rows = [
        {"calibration_id": _id(job, revision, checks), **dict(zip(TO_ASK.names[1:], job, strict=True))} for job in jobs
    ]
    return pa.Table.from_pylist(rows, TO_ASK)


def _id(job: tuple[int, str | None, str, str], revision: str, checks: Checks) -> str:
    row, target, attribute, value = job
    question = _question(target, attribute, checks)
    said = [question.text, question.choices, question.texts]
    return content_id("calibrate", revision, row, attribute, value, checks.verifier, checks.revision, said)


def _question(target: str | None, attribute: str, checks: Checks) -> Question:
    return checks.classes if target is None else checks.attributes[target][attribute]


def ask(batch: pa.Table, beholder: VerifierSource, checks: Checks) -> pa.Table:
    """Asks the verifier the questions of a batch of `to_ask`; returns a table of `schemas.CALIBRATION_ANSWERS`.

    Each row's picture is fetched once.
    """
    jobs = batch.to_pylist()
    rows = sorted({job["row"] for job in jobs})
    jobs_of = {row: [job for job in jobs if job["row"] == row] for row in rows}
    shown = beholder.source.fetch(rows)
    questions = [[_question(job["target_class"], job["attribute"], checks) for job in jobs_of[row]] for row in rows]
    replies, undecoded = encoded.answers(shown["bytes"].to_pylist(), questions, beholder.captioner)
    noted = shown["error"].to_pylist() if "error" in shown.column_names else undecoded
    why = [one or other for one, other in zip(noted, undecoded, strict=True)]
    reasons = {row: f"{key}: {text}" for row, key, text in zip(rows, shown["key"].to_pylist(), why, strict=True)}
    answers = {
        job["calibration_id"]: reply
        for row, of_row, error in zip(rows, replies, undecoded, strict=True)
        if error is None
        for job, reply in zip(jobs_of[row], of_row, strict=True)
    }
    result = []
    for job in jobs:
        answer = answers.get(job["calibration_id"])
        if answer is not None and job["attribute"] == CLASS:
            answer = weighed(answer, checks.classes)
        result.append(
            {
                **{name: job[name] for name in ("calibration_id", "attribute", "value")},
                "answer": None if answer is None else answer.choice,
                "error": reasons[job["row"]] if answer is None else None,
            }
        )
    return pa.Table.from_pylist(result, CALIBRATION_ANSWERS)


def counted(answers: pa.Table, field: str = "verification") -> pa.Table:
    """Returns a table of `schemas.CALIBRATION` from one of `CALIBRATION_ANSWERS`. `field`: of the config, whose
    `calibration` it is.

    Raises SourceError where no image could be read: otherwise the calibration would be empty without notice.
    """
    if answers.num_rows and answers["error"].null_count == 0:
        first = sorted(answers["error"].unique().to_pylist())[0]
        raise SourceError(
            f"{field}.calibration: none of the table's images can be read (the first is {first}); a path in its "
            "column `image` is relative to the table"
        )
    said = answers.filter(pc.is_valid(answers["answer"]))
    groups = said.group_by(["attribute", "value", "answer"]).aggregate([([], "count_all")])
    groups = groups.sort_by([("attribute", "ascending"), ("value", "ascending"), ("answer", "ascending")])
    columns = {
        **{name: groups[name] for name in ("attribute", "value", "answer")},
        "images": groups["count_all"].cast(pa.float64()),
        "source": pa.repeat("table", groups.num_rows),
    }
    return pa.table(columns).cast(CALIBRATION)


def _labels(labels: pa.Table, name: str) -> NDArray[np.object_]:
    return np.array([None if v is None else normalise(str(v)) for v in labels[name].to_pylist()], dtype=object)


def _some(here: NDArray[np.bool_], seed: int, most: int) -> Rows:
    return np.sort(np.random.default_rng(seed).permutation(np.flatnonzero(here))[:most])
