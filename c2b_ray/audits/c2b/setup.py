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
    found = call_with_run(look, run, config, runner)
    run.update({"setup": found})
    return found


def setup_findings(run: C2BRun, askings: Sequence[Classification], specs: Mapping[str, str]) -> list[SetupFinding]:
    """Returns what is wrong with each classifier's set-up. `specs`: by the classifiers' names.

    Nothing is looked for where a classifier gives each label on its own: what it should have answered in place of a
    label, by which labels in another order are recognised, is then no one answer.
    """
    askings = [asking for asking in askings if asking.head == "softmax"]
    if not askings:
        return []
    images, labelled = _drawn(run)
    rows = []
    for asking, answers in zip(askings, _answers(run, askings, images), strict=True):
        truth = codes(images["target_class"], pa.array(asking.classes, pa.large_string()))
        known = (answers >= NO_ANSWER) & (truth >= 0)
        is_table = specs[asking.classifier].startswith("table:")
        found = detected(asking, LabelledAnswers(truth[known], answers[known]), is_table)
        rows += [setup_finding(one, asking, labelled) for one in found]
    return rows


def _drawn(run: C2BRun) -> tuple[pa.Table, bool]:
    """Returns the columns `image_id` and `target_class` of some of the drawn images, in random order and no picture
    twice, or where none was drawn, of those that are perturbed; and whether they are labelled."""
    captions = run.read("captions", ["caption_id", "target_class"])
    kept, sources = [], set()
    for part in run.each("draws", ["image_id", "caption_id", "source"]):
        sources |= set(part["source"].unique().to_pylist())
        targets = captions["target_class"].take(
            pc.index_in(part["caption_id"], captions["caption_id"].combine_chunks())
        )
        kept.append(pa.table({"image_id": wide(part["image_id"]), "target_class": wide(targets)}))
        kept = [_first(pa.concat_tables(kept))]
    perturbed = run.read("perturbed_images", ["image_id", "target_class"])
    images = (
        kept[0]
        if kept[0].num_rows
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


def _answers(run: C2BRun, askings: Sequence[Classification], images: pa.Table) -> list[Ints]:
    """Returns the position of the label that each classifier gave each image."""
    ids = images["image_id"].combine_chunks()
    result = [np.full(len(ids), FAILED, np.int64) for _ in askings]
    for part in run.each("predictions", _ANSWER):
        part = part.filter(pc.is_in(wide(part["image_id"]), ids))
        for asking, answers in zip(askings, result, strict=True):
            of = pc.and_(pc.equal(part["classifier"], asking.classifier), pc.equal(part["revision"], asking.revision))
            rows = part.filter(pc.and_(of, pc.is_null(part["error"])))
            at = codes(rows["image_id"], ids)
            answers[at] = _positions(rows, asking, images["target_class"].take(at).to_pylist())
    return result


def _positions(rows: pa.Table, asking: Classification, targets: Sequence[str]) -> Ints:
    """Returns the position of each answer's label. Answers that are right by the rule have a label of their class."""
    of_label, of_class = positions(asking.labels), dict(zip(asking.classes, asking.labels_of_class, strict=True))
    twice = len(of_label) < len(asking.labels)
    result = []
    columns = (rows[name].to_pylist() for name in ("label", "predicted_class", "answered"))
    for label, predicted, answered, target in zip(*columns, targets, strict=True):
        if answered is not None and target in answered:
            predicted = target
        elif answered is not None:
            predicted = None
        own = of_class.get(predicted, ())
        at = of_label.get(label, NO_ANSWER)
        if own and (at not in own or twice) and asking.right != "top1":
            at = own[0]
        elif own and twice:
            at = next((i for i in own if asking.labels[i] == label), at)
        elif not own and asking.right == "among_classes":
            at = NO_ANSWER
        result.append(at)
    return np.array(result, np.int64)
