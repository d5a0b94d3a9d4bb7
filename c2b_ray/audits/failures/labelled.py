"""Failures among labelled images instead of a generator's draws: each image is answered once; captions are column
values.

    images, copies left out → answers │ search: conditions that go with failures │ test │ measure

The last three use different images: a caption that passes its test failed often in it, also by chance, so that rates
from the test would be too high. The part of an image follows from its row and the run's seed, or from its cluster: an
effect that a camera has on its images would otherwise choose a caption and confirm it. This module composes steps,
models and a run directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.scoring.clusters import ClusterSums
from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.candidates import table
from c2b_ray.audits.failures.discovery.race import POWERS, SHARES, LabelSearch, least_rates
from c2b_ray.audits.failures.discovery.rounds_stage import DiscoveryClassifier, answer_all, read_pictures
from c2b_ray.audits.failures.discovery.value_sets import MOST_COLUMNS, MOST_SETS, Condition, LabelledAnswers, Texts
from c2b_ray.audits.failures.drawing import CONFIRMATION, DISCOVERY, MEASURE, SEARCH, TEST
from c2b_ray.audits.failures.labelled_claims import ClaimAnswers, Claims, Parts, claims_of, hypotheses
from c2b_ray.audits.failures.run import CauseSearch, FailuresRun, LabelReach
from c2b_ray.audits.failures.setup import note_setup, of_images
from c2b_ray.audits.failures.state import baselines, discovery_classifiers, noted_classifiers
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import compared_with, is_table
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.stage import Runner
from c2b_ray.names import normalise
from c2b_ray.steps.draw import ImageIds, Ints
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.labels import check_classes, chosen, compared, may_be_clusters, without_cluster
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.parts import writing
from c2b_ray.tables import ROUNDS, content_id
from c2b_ray.tables.failures import AnswerRow, ExampleRow, RoundRow

# Makes rounds of labelled images from their answers, so that reports read one table whatever the source of images.


KEPT = 4
"""Images of failures that a round keeps."""


def rounds_of(
    images: LabelledTable,
    rows: Sequence[int],
    answered: LabelledAnswers,
    answers: Mapping[str, Sequence[AnswerRow]],
    captions: Sequence[Condition],
) -> pa.Table:
    """Returns a table of `tables.ROUNDS`: a row per part, classifier and caption; labels alone are captions too."""
    with_labels = [*(Condition(label) for label in dict.fromkeys(caption.label for caption in captions)), *captions]
    result = []
    for condition in dict.fromkeys(with_labels):
        mask = answered.of_label(condition.label) & answered.showing(condition.values)
        for stage, part in ((DISCOVERY, SEARCH), (CONFIRMATION, TEST), (CONFIRMATION, MEASURE)):
            counted = np.flatnonzero(answered.once(mask & answered.of_part(part))).tolist()
            for name, group in answers.items():
                answered_rows = [(rows[index], group[index]) for index in counted]
                result.append(_round(condition, stage, part, name, images, answered_rows))
    return pa.Table.from_pylist(result, ROUNDS)


def _round(
    condition: Condition,
    stage: str,
    part: str,
    classifier: str,
    images: LabelledTable,
    answers: Sequence[tuple[int, AnswerRow]],
) -> RoundRow:
    failed = [(row, answer) for row, answer in answers if answer["failed"]]
    taken_for = Counter(answer["predicted"] for _, answer in failed if answer["predicted"] is not None)
    errors = [answer["error"] or "" for _, answer in answers if answer["failed"] is None]
    caption_id = condition.caption.caption_id
    return {
        "round_id": content_id("labelled round", images.revision, caption_id, part, classifier),
        "caption_id": caption_id,
        "stage": stage,
        "part": part,
        "generator": images.location,
        "classifier": classifier,
        "first": 0,
        "draws": len(answers) - len(errors),
        "unusable": len(errors),
        "reasons": list(dict.fromkeys(errors))[:KEPT],
        "failures": len(failed),
        "predicted": sorted(taken_for),
        "counts": [taken_for[name] for name in sorted(taken_for)],
        "examples": _examples(images, failed[:KEPT]),
        "seconds": 0.0,
    }


def _examples(images: LabelledTable, failed: Sequence[tuple[int, AnswerRow]]) -> list[ExampleRow]:
    fetched = images.fetch([row for row, _ in failed])
    return [
        {
            "seed": row,
            "key": key,
            "predicted": answer["predicted"],
            "top3": answer["top3"],
            "confidence": answer["confidence"],
            "image": file,
        }
        for (row, answer), key, file in zip(
            failed, fetched["key"].to_pylist(), fetched["bytes"].to_pylist(), strict=True
        )
        if file is not None
    ]


# Says how causes of failures were searched for among labelled images, and which would have been found.


def reach_of(config: FailuresConfig, parts: Parts, suggested: Claims, hypotheses: pa.Table) -> CauseSearch:
    """`hypotheses`: the run's rows of `tables.HYPOTHESES`."""
    searches = suggested.searches
    sets_tried = np.array([label_search.search.tried for label_search in searches.values()], np.int64).reshape(
        -1, MOST_COLUMNS
    )
    findings = hypotheses["verdict"].to_pylist().count("failure")
    keys = list(dict.fromkeys((name, label) for name, label, _ in searches))
    labels = [_searched(config, parts, suggested, *key) for key in keys]
    tested = len(suggested.claims)
    by_share = {
        share: least_rates(
            [label_search for label_search, _ in labels], share, tested, findings, config.alpha, config.smallest_ratio
        )
        for share in SHARES
    }
    return CauseSearch(
        columns=len(parts.answered.columns),
        most_columns=MOST_COLUMNS,
        tried=sets_tried.sum(axis=0).tolist(),
        not_extended=sum(label_search.search.not_extended for label_search in searches.values()),
        tested=tested,
        powers=list(POWERS),
        labels=[
            LabelReach(
                classifier=name,
                label=label,
                images=images,
                usual=label_search.usual,
                least=[
                    {"share": share, "rates": [None if np.isnan(rate) else float(rate) for rate in rates[number]]}
                    for share, rates in by_share.items()
                ],
            )
            for number, ((name, label), (label_search, images)) in enumerate(zip(keys, labels, strict=True))
        ],
    )


def _searched(
    config: FailuresConfig, parts: Parts, suggested: Claims, classifier: str, label: str
) -> tuple[LabelSearch, int]:
    """Returns what search and test had of one label, for failures of any kind or else of its first target, and its
    images in both. Where images come in clusters, the test had as many as tell as much if independent."""
    key = next((key for key in suggested.searches if key == (classifier, label, None)), None) or next(
        key for key in suggested.searches if key[:2] == (classifier, label)
    )
    answered, is_answered = parts.answered, parts.answers.known[classifier]
    failed = parts.answers.towards(classifier, key[2])
    searched, tested = (
        answered.once(answered.of_label(label) & is_answered & answered.of_part(part)) for part in (SEARCH, TEST)
    )
    images = int(searched.sum()), int(tested.sum())
    worth = images[1]
    if answered.clusters is not None and worth:
        names, cluster = np.unique(answered.clusters[tested], return_inverse=True)
        failures, of_cluster = np.bincount(cluster, failed[tested]), np.bincount(cluster)
        sums = ClusterSums(names, failures[None].astype(np.float64), of_cluster[None].astype(np.float64))
        worth = int(sums.effective(1 - config.alpha)[0])
    suggestion = suggested.searches[key]
    of_label = LabelSearch(
        images[0],
        worth,
        usual=(int((failed & (searched | tested)).sum()) + 0.5) / (sum(images) + 1),
        penalty=suggestion.search.penalty,
        least_excess=min(value_set.excess for value_set in suggestion.value_sets)
        if len(suggestion.value_sets) == MOST_SETS
        else -np.inf,
    )
    return of_label, sum(images)


FIELD = "images.labelled.table"
CLUSTER_FIELD = "images.labelled.cluster"
PARTS = (SEARCH, TEST, MEASURE)
"""A third of the images each; whole clusters, where images come in clusters."""


def find_labelled(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps) -> None:
    """Runs the whole protocol on labelled images, from the answers to the table of hypotheses."""
    assert config.images.labelled is not None
    baselines(config)  # refuses a hierarchy that lacks a label
    images = LabelledTable(config.images.labelled.table, FIELD, config.images.labelled.columns)
    attributes = check_images(images, config)
    classifiers = discovery_classifiers(config, models)
    recorded = noted_classifiers(config, models, steps)
    run.update({"models": {**recorded, "images": {"spec": images.location, "revision": images.revision}}})
    rows, answered = rows_of(images, config, attributes)
    warn(images, rows, answered, config, run, steps)
    with steps.step("find copies") as on_progress:
        row_count = len(rows)
        rows, answered = without_copies(images, rows, answered, Output(run, models.runner, on_progress))
    with steps.step("classify labelled images") as on_progress:
        answers = answers_to(images, rows, answered, classifiers, Output(run, models.runner, on_progress))
    note_setup(config, run, classifiers, of_images(answered, answers), steps)
    with steps.step("find conditions of failures"):
        suggested = claims_of(answered, answers, config)
        claims = suggested.claims
        tested = hypotheses(config, images.location, Parts(answered, answers), claims)
    captions = [Condition(label).caption for label in dict.fromkeys(claim.condition.label for claim in claims)]
    run.write("candidates", table([*captions, *(claim.condition.caption for claim in claims)]))
    rounds = rounds_of(images, rows, answered, answers.tables, [claim.condition for claim in claims])
    with writing(run.location("rounds")) as parts:
        if not parts.names():
            parts.write(rounds, "round_id")
    run.write("hypotheses", tested)
    run.update({"search": reach_of(config, Parts(answered, answers), suggested, tested).model_dump()})
    run.update(
        {"spent": {"labelled images": len(rows)}, "copies": row_count - len(rows), "other_copies": answered.copies}
    )


def check_images(images: LabelledTable, config: FailuresConfig) -> dict[str, list[str]]:
    """Returns the attributes of labelled images and their values. Raises ConfigError where the images lack one of the
    run's labels, or where no column can be an attribute."""
    check_classes(images.labels, config.labels, FIELD, "labels")
    assert config.images.labelled is not None
    return chosen(without_cluster(images.labels, config.images.labelled.cluster), None, FIELD)


@dataclass(frozen=True)
class Output:
    """Where answers are written, and who runs the stage that makes them."""

    run: FailuresRun
    runner: Runner
    on_progress: OnProgress


def rows_of(images: LabelledTable, config: FailuresConfig, columns: Iterable[str]) -> tuple[list[int], LabelledAnswers]:
    """Returns the rows of the run's labels, with their values in these columns."""
    labels = images.labels
    spelt = {normalise(name): name for name in config.labels}
    of_row = [None if name is None else spelt.get(normalise(name)) for name in labels["target_class"].to_pylist()]
    rows = [row for row, label in enumerate(of_row) if label is not None]
    row_numbers = np.array(rows, np.int64)
    values = {name: compared(labels, name)[row_numbers] for name in columns}
    names = images.keys.to_pylist()
    labelled = config.images.labelled
    clusters = None
    if labelled is not None and labelled.cluster is not None:
        clusters = clusters_of(images, rows, labelled.cluster)
        parts = parts_of_clusters(clusters, config.seed)
    else:
        part_numbers = [int(content_id("part", config.seed, names[row], row), 16) % len(PARTS) for row in rows]
        parts = np.array(part_numbers, np.int64)
    label_of_row = np.array([of_row[row] for row in rows], object)
    of_parts = np.array(PARTS, object)[parts]
    numbers = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
    return rows, LabelledAnswers(label_of_row, values, of_parts, np.arange(len(rows)), numbers)


def clusters_of(images: LabelledTable, rows: Sequence[int], name: str) -> Texts:
    """Returns the cluster of each of these rows; a name of its own for a row without one. Raises ConfigError for a
    column that is not there."""
    clusters = images.clusters(name, CLUSTER_FIELD).take(pa.array(rows, pa.int64())).to_pylist()
    cluster_names = [
        f"cluster {cluster}" if cluster is not None else f"row {row}"
        for cluster, row in zip(clusters, rows, strict=True)
    ]
    return np.array(cluster_names, object)


def parts_of_clusters(clusters: Texts, seed: int) -> Ints:
    """Returns the number of each image's part, about as many images in each: the largest clusters first, each to the
    part that has fewest images so far; clusters of one size in the order of a hash of name and seed."""
    names, cluster, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    by_hash = np.argsort([content_id("part", seed, str(name)) for name in names], kind="stable")
    order = by_hash[np.argsort(-sizes[by_hash], kind="stable")]
    filled, part = [(0, number) for number in range(len(PARTS))], np.zeros(len(names), np.int64)
    for position in order.tolist():
        images, number = heappop(filled)
        part[position] = number
        heappush(filled, (images + int(sizes[position]), number))
    return part[cluster]


def warn(
    images: LabelledTable,
    rows: list[int],
    answered: LabelledAnswers,
    config: FailuresConfig,
    run: FailuresRun,
    steps: Steps,
) -> None:
    """Says what the images' source holds besides, and what is odd about a table of predictions. Raises SourceError
    where it is one of other images."""
    warnings = list(images.left_out.sentences())
    if any(map(is_table, config.specs.values())):
        keys, label_map = images.keys.take(pa.array(rows, pa.int64())).to_pylist(), config.label_map
        explicit_map = label_map if isinstance(label_map, dict) else None
        warnings += compared_with(config.specs, keys, answered.labels.tolist(), config.labels, explicit_map)
    if config.images.labelled is not None and config.images.labelled.cluster is None:
        warnings += [
            f"{why}: this search counts every image as independent; write `cluster: {name}` under `images.labelled`"
            for name, why in may_be_clusters(images.labels).items()
        ]
    for warning in warnings:
        steps.warn(warning)
    run.update({"warnings": warnings, "left_out": images.left_out.as_dict()})


def without_copies(
    images: LabelledTable, rows: list[int], answered: LabelledAnswers, output: Output
) -> tuple[list[int], LabelledAnswers]:
    """Returns the rows without copies of earlier ones: a picture ten times in the table, as it is or saved again, is
    one picture's evidence, and may not both choose a caption and confirm it."""
    ids = pa.array([content_id("picture", images.revision, row) for row in rows], pa.string())
    output.run.begin_writing()
    out = output.run.location("pictures")
    read_pictures(
        output.runner, pa.table({"image_id": ids, "row": rows}), partial(_unchanged, images), out, output.on_progress
    )
    distinct = Distinct(output.run.read("pictures", DISTINCT_COLUMNS))
    counts, distinct_answers = answered.without_copies(distinct.pictures(ImageIds(ids.cast(pa.large_string()))))
    return [row for row, is_kept in zip(rows, counts.tolist(), strict=True) if is_kept], distinct_answers


def answers_to(
    images: LabelledTable,
    rows: list[int],
    answered: LabelledAnswers,
    classifiers: tuple[DiscoveryClassifier, ...],
    output: Output,
) -> ClaimAnswers:
    """Returns the classifiers' answers to these rows. SourceError where a classifier answers hardly any of them."""
    names = [f"{images.revision} {row}" for row in rows]
    labels = answered.labels.tolist()
    ids = [
        [classifier.decider.round_id(name, label) for classifier in classifiers]
        for name, label in zip(names, labels, strict=True)
    ]
    columns = {"answer_id": pa.array(ids, pa.list_(pa.string())), "row": rows, "name": names, "label": labels}
    output.run.begin_writing()
    out = output.run.location("answers")
    answer_all(output.runner, pa.table(columns), partial(_unchanged, images), classifiers, out, output.on_progress)
    answers, current = output.run.read("answers"), pa.array([answer_id for group in ids for answer_id in group])
    result = ClaimAnswers.of(answers.filter(pc.is_in(answers["answer_id"], current)), rows, classifiers)
    result.refuse_silence(output.run.path)
    return result


def _unchanged(images: LabelledTable) -> LabelledTable:
    return images
