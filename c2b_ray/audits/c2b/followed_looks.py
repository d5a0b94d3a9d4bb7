"""What the answers to labelled images follow: the class, or how the picture looks.

    answers → images that are not answered by their class → descriptors of their pictures → looks, look_alikes

A folder of photographs names no texture, colour or background that a classifier could go by instead of the object. The
images do: one that is answered as the images of other classes that look like it are answered. It composes steps and
the run; `steps.image_properties` has the descriptors and `stats.look_alikes` the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.budget import call_with_run
from c2b_ray.audits.c2b.hypotheses.labelled import prepare_rows
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import image_rows, selected
from c2b_ray.engine.stage import StageConfig
from c2b_ray.stats.look_alikes import RESAMPLES, FollowedLook, class_answers, followed_look, mean_over_classes
from c2b_ray.steps.answers import NO_ANSWER, ClassifierAnswers, answers_of, gives_each_label
from c2b_ray.steps.cells import classes_of_labelled
from c2b_ray.steps.draw import ImageIds, Ints, Mask, numbered
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS as OF_COPIES
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.fetch import Load, in_place
from c2b_ray.steps.image_properties import DESCRIPTORS, LOOK_NAMES, described
from c2b_ray.storage.parts import Digests, digests
from c2b_ray.tables import LOOK_ALIKES, LOOK_VECTORS, LOOKS, content_ids

MOST_IMAGES = 3_000
"""More are sampled: what most answers follow shows on these."""
LEAST_SHARE = 0.1
"""Of all answers, those that have to follow a look beyond chance. A classifier that is right on 80 % and whose labels
are named in another order is right on none; of its errors no more than half agree with their look-alikes."""
TABLE, ALIKE, VECTORS = "looks", "look_alikes", "look_vectors"
_OF_ANSWERS = ["image_id", "label", "predicted_class", "answered", "undecided", "error"]
_DESCRIBE = StageConfig(LOOK_VECTORS, stage="measure", rows_per_file=1024)


def follow_looks(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps, source: Load | None) -> None:
    """Writes what the answers of each classifier follow, of those that mostly give other answers than the class's.

    `source`: of images whose bytes the run does not hold. Where most answers follow the class nothing is described:
    more cannot follow a look. Nor where images come in clusters, which the test takes as independent, where a budget
    decided from the answers which images are drawn, or where an image has several labels, and so no one answer.
    """
    if config.images.sources != ("labelled",) or config.images.cluster is not None or config.budget is not None:
        return
    if gives_each_label(run.predictions_of(["predicted_class"])):
        return
    images_of_classifier = call_with_run(partial(_asked, config=config), run, config, models.runner)
    if not images_of_classifier and not run.has(TABLE):
        return
    if images_of_classifier:
        _describe(sorted({image for ids in images_of_classifier.values() for image in ids}), run, models, steps, source)
    with steps.step("looks"):
        made = partial(_tables, config=config, classifiers=list(images_of_classifier))
        for name, table in call_with_run(made, run, config, models.runner).items():
            run.write(name, table)


@dataclass(frozen=True)
class _Answered:
    """One classifier's answers to pictures of an audit, each once, at most `MOST_IMAGES`.

    `ids`: of the images. `truth`: the number of each one's class. `answer`: of what it was taken for, among `names`;
    an image without a single answer has a number of its own.
    """

    ids: list[str]
    truth: Ints
    answer: Ints
    names: tuple[str, ...]


def _answered(run: C2BRun, config: AuditConfig) -> Iterator[tuple[str, _Answered]]:
    """Yields each classifier with its answers."""
    captions, draws = run.captions, run.draws
    known = classes_of_labelled(captions, draws)
    assert known is not None
    ids, number = known
    _, of_caption = numbered(captions["target_class"])
    classes = dict(zip(of_caption.tolist(), captions["target_class"].to_pylist(), strict=True))
    # Ids are hashes: the first are a random sample. Twice as many as are kept, since copies and failures fall out.
    order = np.asarray(ids.alphabetical(np.arange(len(ids))))[: 2 * MOST_IMAGES]
    sample = ids.names(order).cast(pa.string())
    images, predictions = (
        table.filter(pc.is_in(table["image_id"], sample))
        for table in (run.read("images", OF_COPIES), run.predictions_of(_OF_ANSWERS))
    )
    # Of copies the first id: also of those that are filed under two classes, which no class can be told from.
    pictures = Distinct(images).pictures(ids)[order]
    order = order[np.sort(np.unique(pictures, return_index=True)[1])]
    for classifier in config.classifiers:
        answers = answers_of(predictions, classifier)
        yield classifier, _of_classifier(answers, ids, order, number, classes)


def _of_classifier(
    answers: ClassifierAnswers, ids: ImageIds, order: Ints, number: Ints, classes: dict[int, str]
) -> _Answered:
    rows = answers.rows_of(ids)[order]
    target = np.array([answers.number(classes[one]) for one in number[order].tolist()], np.int64)
    taken = answers.taken(rows, target)
    kept = np.flatnonzero(taken != NO_ANSWER)[:MOST_IMAGES]
    taken, target, images = taken[kept], target[kept], order[kept]
    undecided = answers.is_undecided(rows[kept])
    of_name: dict[str, int] = {}
    truth = np.array([of_name.setdefault(classes[one], len(of_name)) for one in number[images].tolist()], np.int64)
    answer = truth.copy()
    for at in np.flatnonzero(taken != target).tolist():
        name = answers.name(int(taken[at]))
        answer[at] = of_name.setdefault(f"{name} {at}" if undecided[at] else name, len(of_name))
    return _Answered(ids.names(images).cast(pa.string()).to_pylist(), truth, answer, tuple(of_name))


def _asked(run: C2BRun, config: AuditConfig) -> dict[str, list[str]]:
    """Returns the images to describe, by classifier: those that are not answered by their class, where these are most
    of the images."""
    images_of_classifier = {}
    set_up_wrongly = {row.get("classifier") for row in run.manifest.get("setup") or [] if row.get("hopeless")}
    for classifier, answered in _answered(run, config):
        if classifier in set_up_wrongly:
            continue
        others = ~class_answers(answered.truth, answered.answer)
        if len(set(answered.truth.tolist())) > 1 and 2 * int(others.sum()) > len(others):
            images_of_classifier[classifier] = [answered.ids[at] for at in np.flatnonzero(others).tolist()]
    return images_of_classifier


def _describe(ids: list[str], run: C2BRun, models: Backend, steps: Steps, source: Load | None) -> None:
    """Describes the pictures of these images that the run has no descriptor of."""
    images = selected(run.location("images"), partial(_chosen, ids))
    rows = image_rows(images, "look_id", _look_ids)
    with steps.step("describe looks") as on_progress:
        if run.lacks(VECTORS, "look_id", rows.ids):
            run.begin_writing()
        config = replace(_DESCRIBE, total=images.total)
        prepare_rows(
            models.runner, rows, partial(_described, load=source), run.location(VECTORS), "look_id", config, on_progress
        )


def _described(images: pa.Table, load: Load | None) -> pa.Table:
    return described(in_place(load).with_bytes(images))


def _chosen(ids: list[str]) -> Iterator[Digests]:
    yield digests(pa.chunked_array([pa.array(ids, pa.string())]))


def _look_ids(image_ids: list[str]) -> pa.Array:
    return pa.array(content_ids("look", image_ids, DESCRIPTORS), pa.string())


def _tables(run: C2BRun, config: AuditConfig, classifiers: list[str]) -> dict[str, pa.Table]:
    rows: list[dict[str, Any]] = []
    alike: list[dict[str, Any]] = []
    keys = run.read("images", ["image_id", "key"])
    key_of = dict(zip(keys["image_id"].to_pylist(), keys["key"].to_pylist(), strict=True))
    tests = len(classifiers) * len(LOOK_NAMES)
    resamples = max(RESAMPLES, ceil(2 * tests / config.alpha))  # else no p-value could pass
    for classifier, answered in _answered(run, config):
        if classifier not in classifiers:
            continue
        vectors = {look: _vectors_of(run, answered.ids, look) for look in LOOK_NAMES}
        if not np.isfinite(vectors[LOOK_NAMES[0]]).all(axis=1).any():  # no picture could be described
            continue
        followed = {
            look: followed_look(of_look, answered.truth, answered.answer, 1 - config.alpha, config.seed, resamples)
            for look, of_look in vectors.items()
        }
        established = {look: one for look, one in followed.items() if is_established(one, config.alpha, tests)}
        strongest = strongest_looks(established, answered.truth, 1 - config.alpha)
        for look, one in followed.items():
            named = {"classifier": classifier, "look": look}
            marks = {"established": look in established, "strongest": look in strongest}
            rows.append({**named, **_numbers(one), **marks})
            if look in established:
                alike += [{**named, **row} for row in _alike(answered, one, key_of)]
    return {
        TABLE: pa.Table.from_pylist(rows, LOOKS),
        ALIKE: pa.Table.from_pylist(alike, LOOK_ALIKES),
    }


def is_established(look: FollowedLook, alpha: float, tests: int) -> bool:
    """Tells whether more answers follow the look than the class: that they follow it at all is no chance at α over the
    number of tests (Bonferroni), at the lower limits they are more than `LEAST_SHARE` of all answers, and more than
    those that follow the class."""
    return look.p_value <= alpha / tests and look.share_low > LEAST_SHARE and look.margin_low > 0


def strongest_looks(followed: Mapping[str, FollowedLook], truth: Ints, confidence: float) -> set[str]:
    """Returns the looks of which no other one is established to be followed by more of the same answers: looks go
    together, and what does not differ is not ranked."""

    def more(one: FollowedLook, other: FollowedLook) -> bool:
        return mean_over_classes(one.beyond_chance - other.beyond_chance, truth, confidence)[1] > 0

    return {look for look, one in followed.items() if not any(more(other, one) for other in followed.values())}


def _numbers(look: FollowedLook) -> dict[str, Any]:
    limits = ("share", "share_low", "share_high", "margin", "margin_low", "margin_high", "expected", "p_value")
    return {
        "images": len(look.look_answer),
        "follow_class": int(look.follows_class.sum()),
        "compared": int(look.compared.sum()),
        "follow_look": int(look.follows_look.sum()),
        **{name: getattr(look, name) for name in limits},
    }


def _alike(answered: _Answered, look: FollowedLook, key_of: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yields the images whose answer follows the look, with the look-alikes that have the same answer."""
    for at in np.flatnonzero(look.follows_look).tolist():
        near = [one for one in look.neighbours[at].tolist() if one >= 0 and answered.answer[one] == answered.answer[at]]
        yield {
            "key": key_of.get(answered.ids[at]),
            "label": answered.names[answered.truth[at]],
            "answer": answered.names[answered.answer[at]],
            "image_id": answered.ids[at],
            "look_alikes": [
                {
                    "image_id": answered.ids[one],
                    "key": key_of.get(answered.ids[one]),
                    "label": answered.names[answered.truth[one]],
                }
                for one in near
            ],
        }


def _vectors_of(run: C2BRun, ids: list[str], look: str) -> NDArray[np.float32]:
    """Returns the descriptors of the images, float32 (images, dimension); NaN where there is none."""
    table = run.read(VECTORS, ["look_id", look])
    table = table.filter(pc.is_valid(table[look]))
    if not table.num_rows:
        return np.full((len(ids), 1), np.nan, np.float32)
    at = pc.fill_null(pc.index_in(_look_ids(ids), table["look_id"].combine_chunks()), -1).to_numpy()
    column = table[look].combine_chunks()
    known = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float32).reshape(table.num_rows, -1)
    vectors = np.full((len(ids), known.shape[1]), np.nan, np.float32)
    has: Mask = at >= 0
    vectors[has] = known[at[has]]
    return vectors
