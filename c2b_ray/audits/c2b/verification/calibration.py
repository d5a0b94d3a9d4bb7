"""The verifier of an audit: which images it accepts, how often it errs on images of known content, and its stages.

An image is accepted if it shows what its caption says: its class and its value, or both values of a pair. Which images
are drawn is decided in `sampling.selection`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.verification.false_accepts import CaptionReach, NegativeChecker, compare
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import VERIFY, ImageStages, OnProgress, of_revision
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.names import normalise
from c2b_ray.roles import Captioner, Question, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.cells import INTERSECTION, of_run
from c2b_ray.steps.draw import ImageSource, RowNumbers
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.observe import CLASS, OTHER, Checks, checks, wanted, weighed
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import CALIBRATION, CALIBRATION_ANSWERS, NEGATIVES, content_id, seed_of
from c2b_ray.tables.path import VerificationRow

COLUMNS = ["image_id", "target_class", "class_shown", "attributes", "values", "error"]
"""The columns of `tables.VERIFICATIONS` that `accepts` needs."""


@dataclass(frozen=True)
class Content:
    """What an image of a caption must show: the class, and a value of each attribute."""

    target_class: str
    values: Mapping[str, str]


def contents(proposals: pa.Table, captions: pa.Table) -> dict[str, Content]:
    """Returns caption id → what its images must show; for a pair's caption, a value of each of the two attributes."""
    pairs = {
        (pair.proposal_id, f"{x}, {y}"): {pair.a["attribute"]: x, pair.b["attribute"]: y}
        for pair in of_run(proposals, captions)
        for x, y in pair.cells()
    }
    return {
        row["caption_id"]: Content(
            row["target_class"],
            pairs[row["proposal_id"], row["bias_class"]]
            if row["kind"] == INTERSECTION
            else {row["attribute"]: row["bias_class"]},
        )
        for row in captions.to_pylist()
    }


def accepts(verification: VerificationRow, content: Content) -> bool:
    """Returns whether the verifier saw the content's class and values. `verification` was made for that class.

    An image is refused where the verifier was asked about an attribute and gave no answer or another value. Class and
    attributes that the verifier was not asked about count as shown.
    """
    if verification["error"] is not None or verification["class_shown"] not in (None, content.target_class):
        return False
    value_shown = dict(zip(verification["attributes"], verification["values"], strict=True))
    return all(value_shown[name] == value for name, value in content.values.items() if name in value_shown)


class SeenImages:
    """The images of a run that were looked at: fetched or generated and, where there is a verifier, verified.

    `images`: reads columns of a table with `image_id` and `fingerprint`; fingerprints take ten times the memory of the
    ids, and are read only where pictures are compared. `verifications`: a table with COLUMNS; None: there is no
    verifier, and every image counts as showing what its caption says. `absent`: tells which image ids have no image,
    where the caller can tell it without holding all ids as text.
    """

    def __init__(
        self,
        images: Callable[[list[str]], pa.Table],
        verifications: pa.Table | None,
        contents: Mapping[str, Content],
        absent: Callable[[pa.Array], NDArray[np.bool_]] | None = None,
    ) -> None:
        self._images = images
        self.absent = absent or self._not_read
        self._contents = contents
        self._verified: dict[tuple[str, str], VerificationRow] | None = None
        if verifications is not None:
            rows = verifications.select(COLUMNS).to_pylist()
            self._verified = {(row["image_id"], row["target_class"]): row for row in rows}

    @cached_property
    def _fingerprints(self) -> dict[str, bytes | None]:
        table = self._images(["image_id", "fingerprint"])
        columns = (table[name].to_pylist() for name in ("image_id", "fingerprint"))
        return dict(zip(*columns, strict=True))

    def lacking(self, draws: pa.Table) -> NDArray[np.bool_]:
        """Returns which of the draws have images that were not looked at."""
        if self._verified is not None:
            columns = (draws[name].to_pylist() for name in ("image_id", "caption_id"))
            return np.array([not self.looked_at(*pair) for pair in zip(*columns, strict=True)], bool)
        return self.absent(draws["image_id"].combine_chunks())

    def _not_read(self, ids: pa.Array) -> NDArray[np.bool_]:
        ids_read = self._images(["image_id"])["image_id"].combine_chunks()
        return ~np.asarray(pc.is_in(ids, ids_read.cast(pa.string())))

    def looked_at(self, image: str, caption: str) -> bool:
        if self._verified is not None and (image, self._contents[caption].target_class) not in self._verified:
            return False
        return image in self._fingerprints

    def accepts(self, image: str, caption: str) -> bool:
        content = self._contents[caption]
        return self._verified is None or accepts(self._verified[image, content.target_class], content)

    def fingerprint(self, image: str) -> bytes | None:
        """Returns the fingerprint; None for an image that is no picture or was not looked at."""
        return self._fingerprints.get(image)


# Calibrates a verifier on labelled images: how often it gives each answer for images of known content.


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
    sentences = []
    for attribute, values in attributes.items():
        if attribute not in columns:
            sentences.append(f"calibration has no column {attribute!r}; {nearest(attribute, columns)}")
            continue
        known_forms = {normalise(str(value)) for value in labels[attribute].unique().to_pylist() if value is not None}
        absent = [value for value in values if normalise(value) not in known_forms]
        sentences += [
            f"calibration has no image with {attribute}: {v!r}; {nearest(normalise(v), known_forms)}" for v in absent
        ]
    return sentences


def to_ask(labels: pa.Table, revision: str, checks: Checks, seed: int) -> pa.Table:
    """Returns which images are looked at for which value: a table of `TO_ASK`, with the rows of one image together.

    `labels`: `target_class` and a column per attribute, a row per image. Attributes without a column, and values that
    no image has, are left out; for these, `verified` relies on the verifier's own certainty. A null is no label. Images
    of classes that the audit does not have show what the verifier answers for something else.

    Those of a value depend on nothing that is asked beside it, nor on the order of classes, attributes and values.
    """
    targets = _labels(labels, "target_class")
    rows_of_class = {name: targets == normalise(name) for name in checks.classes.choices}
    # Every name that is not one of the task's classes means something else.
    of_classes = [mask for name, mask in rows_of_class.items() if name != OTHER]
    rows_of_class[OTHER] = np.array([target is not None for target in targets], bool) & ~np.any(of_classes, axis=0)
    jobs: list[tuple[int, str | None, str, str]] = []
    for name, mask in rows_of_class.items():
        # Images of something else are rarely taken for any one class: measuring that takes more images.
        most = CALIBRATED_ON * (len(of_classes) if name == OTHER else 1)
        of_class = seed_of("calibrate", CLASS, name, seed)
        jobs += [(row, None, CLASS, name) for row in _some(mask, of_class, most).tolist()]
    having = Counter(attribute for groups in checks.attributes.values() for attribute in groups)
    for target, groups in checks.attributes.items():
        for attribute, question in groups.items():
            if attribute not in labels.column_names:
                continue
            column = _labels(labels, attribute)
            for value in question.choices:
                mask = (targets == normalise(target)) & (column == normalise(value))
                share = max(1, CALIBRATED_ON // having[attribute])  # all classes calibrate an attribute together
                of_value = seed_of("calibrate", target, attribute, value, seed)
                jobs += [(row, target, attribute, value) for row in _some(mask, of_value, share).tolist()]
    jobs.sort(key=lambda job: job[0])
    rows = [
        {"calibration_id": _id(job, revision, checks), **dict(zip(TO_ASK.names[1:], job, strict=True))} for job in jobs
    ]
    return pa.Table.from_pylist(rows, TO_ASK)


def _id(job: tuple[int, str | None, str, str], revision: str, checks: Checks) -> str:
    row, target, attribute, value = job
    question = _question(target, attribute, checks)
    question_parts = [question.text, question.choices, question.texts]
    return content_id("calibrate", revision, row, attribute, value, checks.verifier, checks.revision, question_parts)


def _question(target: str | None, attribute: str, checks: Checks) -> Question:
    return checks.classes if target is None else checks.attributes[target][attribute]


def ask(batch: pa.Table, verifier_source: VerifierSource, checks: Checks) -> pa.Table:
    """Asks the verifier the questions of a batch of `to_ask`; returns a table of `tables.CALIBRATION_ANSWERS`.

    Each row's picture is fetched once.
    """
    jobs = batch.to_pylist()
    rows = sorted({job["row"] for job in jobs})
    jobs_of = {row: [job for job in jobs if job["row"] == row] for row in rows}
    fetched = verifier_source.source.fetch(rows)
    questions = [[_question(job["target_class"], job["attribute"], checks) for job in jobs_of[row]] for row in rows]
    replies, undecoded = encoded.answers(fetched["bytes"].to_pylist(), questions, verifier_source.captioner)
    fetch_errors = fetched["error"].to_pylist() if "error" in fetched.column_names else undecoded
    why = [fetch_error or decode_error for fetch_error, decode_error in zip(fetch_errors, undecoded, strict=True)]
    reasons = {row: f"{key}: {text}" for row, key, text in zip(rows, fetched["key"].to_pylist(), why, strict=True)}
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
    """Returns a table of `tables.CALIBRATION` from one of `CALIBRATION_ANSWERS`. `field`: of the config, whose
    `calibration` it is.

    Raises SourceError where no image could be read: otherwise the calibration would be empty without notice.
    """
    if answers.num_rows and answers["error"].null_count == 0:
        first = sorted(answers["error"].unique().to_pylist())[0]
        raise SourceError(
            f"{field}.calibration: none of the table's images can be read (the first is {first}); a path in its "
            "column `image` is relative to the table"
        )
    answered = answers.filter(pc.is_valid(answers["answer"]))
    groups = answered.group_by(["attribute", "value", "answer"]).aggregate([([], "count_all")])
    groups = groups.sort_by([("attribute", "ascending"), ("value", "ascending"), ("answer", "ascending")])
    columns = {
        **{name: groups[name] for name in ("attribute", "value", "answer")},
        "images": groups["count_all"].cast(pa.float64()),
        "source": pa.repeat("table", groups.num_rows),
    }
    return pa.table(columns).cast(CALIBRATION)


def _labels(labels: pa.Table, name: str) -> NDArray[np.object_]:
    return np.array([None if v is None else normalise(str(v)) for v in labels[name].to_pylist()], dtype=object)


def _some(mask: NDArray[np.bool_], seed: int, most: int) -> RowNumbers:
    return np.sort(np.random.default_rng(seed).permutation(np.flatnonzero(mask))[:most])


# The stages that measure a verifier on labelled images: rows are the questions, parts hold its answers.


CALIBRATE = replace(VERIFY, schema=CALIBRATION_ANSWERS, weigh=None)
COMPARE = replace(CALIBRATE, schema=NEGATIVES)


def calibrate(
    runner: Runner,
    questions: pa.Table,
    verifier_source: Callable[[], VerifierSource],
    checks: Checks,
    out: str,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """Returns the verifier's answers to the `questions` (`audits.c2b.verification.calibration.TO_ASK`).

    The answers are written as `tables.CALIBRATION_ANSWERS` under `out` and read back from there.
    """
    step = partial(ask, checks=checks)
    return _answers(runner, questions, step, verifier_source, out, "calibration_id", CALIBRATE, on_progress)


def verifier_source_of(captioner: Callable[[], Captioner], source: Callable[[], ImageSource]) -> VerifierSource:
    return VerifierSource(captioner(), source())


def compare_negatives(
    runner: Runner,
    images: pa.Table,
    checker: Callable[[], NegativeChecker],
    checks: Checks,
    out: str,
    on_progress: OnProgress | None = None,
) -> pa.Table:
    """Returns what the verifier says of `images` that are near to a caption (`false_accepts.TO_COMPARE`).

    The answers are written as `tables.NEGATIVES` under `out` and read back from there.
    """
    return _answers(runner, images, partial(compare, checks=checks), checker, out, "negative_id", COMPARE, on_progress)


def negative_checker_of(
    captioner: Callable[[], Captioner],
    encoder: Callable[[], TextImageEncoder],
    source: Callable[[], ImageSource],
    reach: CaptionReach,
) -> NegativeChecker:
    return NegativeChecker(captioner(), encoder(), source(), reach)


def _answers(
    runner: Runner,
    questions: pa.Table,
    step: Callable[..., pa.Table],
    role: Callable[[], object],
    out: str,
    id_column: str,
    config: StageConfig,
    on_progress: OnProgress | None,
) -> pa.Table:
    """Runs the stage, and returns those rows of its parts that answer these questions."""
    of_all = replace(config, total=questions.num_rows)
    rows = Rows.of(questions, BATCH)
    runner.run(rows, step, role, out, id_column=id_column, config=of_all, on_progress=on_progress)
    answers = read_stage(out)
    return answers.filter(pc.is_in(answers[id_column], questions[id_column].combine_chunks()))


# The verifier of an audit: loaded once, calibrated once, and called whenever images were drawn or looked at.


@dataclass(frozen=True)
class Verifier:
    """`captioner` loads the model, `questions` are put to it, and `stages` run it."""

    captioner: Callable[[], Captioner]
    questions: Checks
    stages: ImageStages

    def verify(self, draws: pa.Table, run: C2BRun, steps: Steps, source: Load | None) -> None:
        """Verifies the images of these draws that are not verified yet, each once for each class that it was
        drawn for. `source`: of images whose bytes the run does not hold."""
        run.begin_writing()
        with steps.step("verify images") as on_progress:
            rows_needed = wanted(run.captions, draws, self.questions)
            images, out = run.location("images"), run.location("verifications")
            self.stages.verify(images, rows_needed, self.captioner, self.questions, out, on_progress, source)


def verifier_of(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> Verifier | None:
    """Returns the audit's verifier, noted in the run and calibrated; None where the config has none."""
    section = config.verification
    if section is None:
        return None
    description = models.describe("captioner", section.model)
    revision = description.revision
    factory = partial(of_revision, models.captioner(section.model), revision, section.model)
    questions = checks(section.model, revision, config.classes, run.captions)
    run.update({"models": {"verifier": model_row(section.model, description)}})
    warn_of_assumptions(steps, section.model, description)
    if section.calibration is not None and not run.has("calibration"):
        with steps.step("calibrate the verifier") as on_progress:
            open_table = partial(calibration_table, section.calibration)
            table = open_table()
            proposed = {
                name: question.choices
                for questions_of_class in questions.attributes.values()
                for name, question in questions_of_class.items()
            }
            for text in uncalibrated(table.labels, _others(proposed, config.attributes or {})):
                steps.warn(text)
            to_answer = to_ask(table.labels, table.revision, questions, config.seed)
            verifier_source, out = partial(verifier_source_of, factory, open_table), run.location("calibration_answers")
            answers = calibrate(models.runner, to_answer, verifier_source, questions, out, on_progress)
            run.write("calibration", counted(answers))
    return Verifier(factory, questions, ImageStages(models.runner))


def warn_of_uncalibrated(config: AuditConfig, steps: Steps) -> None:
    """Warns, before anything is made, of attributes and values of the config that its calibration does not have."""
    for text in uncalibrated_of(config):
        steps.warn(text)


def uncalibrated_of(config: AuditConfig) -> list[str]:
    """Returns in words what of the config's own attributes its calibration does not have."""
    section = config.verification
    if section is None or section.calibration is None or not config.attributes:
        return []
    return uncalibrated(calibration_table(section.calibration).labels, config.attributes)


def _others(
    attributes: Mapping[str, Sequence[str]], configured: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """Returns the attributes that the config does not name itself: of its own it was told at the start."""
    names = set(map(normalise, configured))
    return {name: values for name, values in attributes.items() if normalise(name) not in names}


def calibration_table(path: str) -> LabelledTable:
    return LabelledTable(path, "verification.calibration")
