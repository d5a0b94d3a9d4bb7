"""Whether a run's answers show that a classifier was set up wrongly: label names in another order, a wrong label map,
a head without weights.

It reads the run's tables, a part at a time; `steps.setup` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import call_with_run
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.config import AuditConfig
from c2b_ray.engine.stage import Runner
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.draw import ImageIds, codes, wide
from c2b_ray.steps.duplicates import COLUMNS, Distinct
from c2b_ray.steps.setup import SetupFinding, detected, setup_finding
from c2b_ray.steps.setup_maps import Ints, LabelledAnswers, positions

MOST_IMAGES = 20_000
"""The most images that are looked at: those whose ids, which are hashes, come first."""

_ANSWER = ["image_id", "classifier", "revision", "label", "predicted_class", "answered", "error"]


def note_setup(
    config: AuditConfig, run: C2BRun, askings: Sequence[Classification], runner: Runner
) -> list[SetupFinding]:
    """Writes what the answers so far show into the run's manifest, as `setup`, and returns it."""
    look = partial(setup_findings, askings=askings, specs=config.specs)
    findings = call_with_run(look, run, config, runner)
    run.update({"setup": findings})
    return findings


def setup_findings(run: C2BRun, askings: Sequence[Classification], specs: Mapping[str, str]) -> list[SetupFinding]:
    """Returns what is wrong with each classifier's set-up. `specs`: by the classifiers' names.

    Nothing is looked for where a classifier gives each label on its own: what it should have answered in place of a
    label, by which labels in another order are recognised, is then no one answer.
    """
    askings = [question for question in askings if question.head == "softmax"]
    if not askings:
        return []
    images, labelled = _drawn(run)
    rows = []
    for question, answers in zip(askings, _answers(run, askings, images), strict=True):
        truth = codes(images["target_class"], pa.array(question.classes, pa.large_string()))
        is_labelled = (answers >= NO_ANSWER) & (truth >= 0)
        is_table = specs[question.classifier].startswith("table:")
        kinds_found = detected(question, LabelledAnswers(truth[is_labelled], answers[is_labelled]), is_table)
        rows += [setup_finding(kind, question, labelled) for kind in kinds_found]
    return rows


def _drawn(run: C2BRun) -> tuple[pa.Table, bool]:
    """Returns the columns `image_id` and `target_class` of some of the drawn images, in random order and no picture
    twice, or where none was drawn, of those that are perturbed; and whether they are labelled."""
    captions = run.read("captions", ["caption_id", "target_class"])
    tables, sources = [], set()
    for part in run.each("draws", ["image_id", "caption_id", "source"]):
        sources |= set(part["source"].unique().to_pylist())
        targets = captions["target_class"].take(
            pc.index_in(part["caption_id"], captions["caption_id"].combine_chunks())
        )
        tables.append(pa.table({"image_id": wide(part["image_id"]), "target_class": wide(targets)}))
        tables = [_first(pa.concat_tables(tables))]
    perturbed = run.read("perturbed_images", ["image_id", "target_class"])
    images = (
        tables[0]
        if tables[0].num_rows
        else _first(pa.table({name: wide(perturbed[name]) for name in perturbed.schema.names}))
    )
    ids = ImageIds(images["image_id"].combine_chunks())
    pictures = pa.concat_tables(
        [part.filter(pc.is_in(wide(part["image_id"]), ids.ids)) for part in run.each("images", COLUMNS)]
    )
    classes = codes(images["target_class"], images["target_class"].unique())
    _, first = np.unique(Distinct(pictures, (ids, classes)).pictures(ids), return_index=True)
    return images.take(np.sort(first)), sources <= {"labelled"}


def _first(images: pa.Table) -> pa.Table:
    """Returns the first images by their ids, each once."""
    images = images.take(pc.sort_indices(images, [("image_id", "ascending"), ("target_class", "ascending")]))
    _, first = np.unique(codes(images["image_id"], images["image_id"].unique()), return_index=True)
    return images.take(np.sort(first)[:MOST_IMAGES])


NO_ANSWER, FAILED = -1, -2
"""No single answer; and none at all, as of a picture that cannot be read."""


def _answers(run: C2BRun, questions: Sequence[Classification], images: pa.Table) -> list[Ints]:
    """Returns the position of the label that each classifier gave each image."""
    ids = images["image_id"].combine_chunks()
    result = [np.full(len(ids), FAILED, np.int64) for _ in questions]
    for part in run.each("predictions", _ANSWER):
        part = part.filter(pc.is_in(wide(part["image_id"]), ids))
        for question, answers in zip(questions, result, strict=True):
            is_own = pc.and_(
                pc.equal(part["classifier"], question.classifier), pc.equal(part["revision"], question.revision)
            )
            rows = part.filter(pc.and_(is_own, pc.is_null(part["error"])))
            image_numbers = codes(rows["image_id"], ids)
            answers[image_numbers] = _positions(rows, question, images["target_class"].take(image_numbers).to_pylist())
    return result


def _positions(rows: pa.Table, question: Classification, targets: Sequence[str]) -> Ints:
    """Returns the position of each answer's label. Answers that are right by the rule have a label of their class."""
    of_label, of_class = positions(question.labels), dict(zip(question.classes, question.labels_of_class, strict=True))
    has_repeats = len(of_label) < len(question.labels)
    result = []
    columns = (rows[name].to_pylist() for name in ("label", "predicted_class", "answered"))
    for label, predicted, answered, target in zip(*columns, targets, strict=True):
        if answered is not None and target in answered:
            predicted = target
        elif answered is not None:
            predicted = None
        own_labels = of_class.get(predicted, ())
        position = of_label.get(label, NO_ANSWER)
        if own_labels and (position not in own_labels or has_repeats) and question.right != "top1":
            position = own_labels[0]
        elif own_labels and has_repeats:
            position = next((i for i in own_labels if question.labels[i] == label), position)
        elif not own_labels and question.right == "among_classes":
            position = NO_ANSWER
        result.append(position)
    return np.array(result, np.int64)
