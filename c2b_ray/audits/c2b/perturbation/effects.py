"""Perturbs some images of each class, asks the classifiers, and tests what each perturbation changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray import stats
from c2b_ray.audits.c2b.budget import call_with_run
from c2b_ray.audits.c2b.classification import classify
from c2b_ray.audits.c2b.first_look import refuse_hopeless
from c2b_ray.audits.c2b.perturbation.images import (
    UNPERTURBED,
    Perturbing,
    picture_rows,
    predict_pictures,
    side_for,
    with_pictures,
)
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.clusters import ClusterSums
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.here import preparing
from c2b_ray.engine.images import (
    AuditedClassifier,
    OnProgress,
    OutputDirectories,
    Selection,
    loaded,
    look_and_classify,
    selected,
)
from c2b_ray.engine.stage import Prepare, Rows, Runner, StageConfig, StageResult
from c2b_ray.stats.intervals import wilson
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.scores import Floats
from c2b_ray.steps.answers import NO_ANSWER, ClassifierAnswers
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.draw import ImageIds, Ints, Mask, RowNumbers, counted, image_ids, numbered
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.fetch import COLUMNS, Load, completed
from c2b_ray.steps.labels import TARGET, ComparedColumn
from c2b_ray.storage.labelled import LabelledTable, table_opener
from c2b_ray.storage.parts import Digests, absent, digests, opened
from c2b_ray.tables import PERTURBATIONS, PERTURBED_IMAGES, PERTURBED_PREDICTIONS, seed_of

EFFECT_COLUMNS = (
    "classifier", "image_id", "perturbation", "level", "label", "predicted_class", "answered", "undecided", "error",
)  # fmt: skip
"""The columns of `tables.PERTURBED_PREDICTIONS` that `effects` needs."""


def effects(
    images: pa.Table,
    predictions: pa.Table,
    classifiers: Sequence[str],
    kinds: Sequence[tuple[str, int]],
    thresholds: Thresholds,
    clustered: bool = False,
) -> pa.Table:
    """Returns a table of `tables.PERTURBATIONS`: a row per classifier, class, perturbation and level.

    `images`: of `tables.PERTURBED_IMAGES`; `predictions`: COLUMNS of the answers to them; `kinds`: perturbations and
    levels; `clustered`: whether images of one cluster are not independent. The difference is perturbed minus
    unperturbed accuracy, with Tango's interval. `p_value` is the larger of his score test of |difference| <= tau and
    McNemar's exact test, as in a comparison of two classifiers (`audits.c2b.scoring.comparison`); both false discovery
    rates are
    controlled over all rows. With clusters, tests and intervals are of as many pairs as would tell as much if each had
    a cluster of its own.

    A class that is right on no more than tau of its images unperturbed cannot lose more, and is never `none`.
    Accuracies have Wilson's intervals, without the pairing. A row without an image that was answered both ways is
    undetermined.
    """
    sample = _Sample.of(images, clustered)
    rows: list[dict[str, Any]] = []
    gains: list[ClusterSums | None] = []
    for classifier in classifiers:
        of_classifier = predictions.filter(pc.equal(predictions["classifier"], classifier))
        unperturbed = _answers_of_pair(of_classifier, classifier, (UNPERTURBED, 0), sample)
        for perturbation, level in kinds:
            perturbed = _answers_of_pair(of_classifier, classifier, (perturbation, level), sample)
            fields = {"classifier": classifier, "perturbation": perturbation, "level": level}
            for number, row in enumerate(_counts(unperturbed, perturbed, sample)):
                rows.append(fields | row)
                gains.append(sample.gains(number, unperturbed, perturbed))
    return pa.Table.from_pylist(_judged(rows, gains, thresholds), PERTURBATIONS)


@dataclass(frozen=True)
class _Answered:
    """One classifier's answers to the sample's images, one way. `taken`: numbers of names, of `answers`."""

    answers: ClassifierAnswers
    taken: Ints
    right: Mask

    @property
    def there(self) -> Mask:
        is_known: Mask = self.taken != NO_ANSWER
        return is_known

    def commonest(self, images: Mask) -> tuple[str | None, int]:
        """Returns the commonest answer to these images, the first by its name where several are, and its number."""
        numbers, times = counted(self.taken[images])
        if not len(times):
            return None, 0
        most = int(times.max())
        return min(self.answers.name(number) for number in numbers[times == most].tolist()), most


@dataclass(frozen=True)
class _Sample:
    """The images of each class. `of_class`, `clusters`: numbers, one per image; `repeat`: whether it is a copy."""

    ids: ImageIds
    classes: tuple[str, ...]
    of_class: Ints
    repeat: Mask
    clusters: Ints | None

    @staticmethod
    def of(images: pa.Table, clustered: bool) -> _Sample:
        names, of_class = numbered(images["target_class"])
        repeat = pc.fill_null(images["repeat"], False).to_numpy()
        clusters = None
        if clustered:  # an image without a cluster is one of its own
            own_cluster = pc.binary_join_element_wise(images["image_id"], pa.scalar("\0"), "")
            clusters = numbered(pc.coalesce(images["cluster"], own_cluster))[1]
        ids = ImageIds(images["image_id"].combine_chunks())
        return _Sample(ids, tuple(names.to_pylist()), of_class, repeat, clusters)

    def count(self, images: Mask) -> list[int]:
        """Returns how many of these images each class has."""
        counts: list[int] = np.bincount(self.of_class[images], minlength=len(self.classes)).tolist()
        return counts

    def gains(self, number: int, unperturbed: _Answered, perturbed: _Answered) -> ClusterSums | None:
        """Returns, by cluster, what the perturbation gains in a class; None where images are independent."""
        if self.clusters is None:
            return None
        is_compared = (self.of_class == number) & ~self.repeat & unperturbed.there & perturbed.there
        gain = perturbed.right[is_compared].astype(np.float64) - unperturbed.right[is_compared]
        names, column = np.unique(self.clusters[is_compared], return_inverse=True)
        gained, images = (
            np.bincount(column, weights, len(names)).astype(np.float64)[None] for weights in (gain, np.ones(len(gain)))
        )
        return ClusterSums(names, gained, images)


def _answers_of_pair(predictions: pa.Table, classifier: str, pair: tuple[str, int], sample: _Sample) -> _Answered:
    is_of_pair = pc.and_(pc.equal(predictions["perturbation"], pair[0]), pc.equal(predictions["level"], pair[1]))
    answers = ClassifierAnswers(predictions.filter(is_of_pair), classifier)
    target = np.array([answers.number(name) for name in sample.classes], np.int64)[sample.of_class]
    answers_taken = answers.taken(answers.rows_of(sample.ids), target)
    return _Answered(answers, answers_taken, answers_taken == target)


def _counts(unperturbed: _Answered, perturbed: _Answered, sample: _Sample) -> list[dict[str, Any]]:
    """Returns the counts of each class."""
    is_compared = ~sample.repeat & unperturbed.there & perturbed.there
    a, b = unperturbed.right, perturbed.right
    wrong = is_compared & ~b
    numbers = {
        "n": is_compared,
        "errors": ~sample.repeat & ~is_compared,
        "repeats": sample.repeat,
        "correct_unperturbed": is_compared & a,
        "correct": is_compared & b,
        "only_unperturbed": is_compared & a & ~b,
        "only_perturbed": is_compared & b & ~a,
    }
    columns = {name: sample.count(images) for name, images in numbers.items()}
    rows = []
    for number, target_class in enumerate(sample.classes):
        mistaken_for, mistaken = perturbed.commonest(wrong & (sample.of_class == number))
        of_class = {name: column[number] for name, column in columns.items()}
        rows.append({"target_class": target_class, **of_class, "mistaken_for": mistaken_for, "mistaken": mistaken})
    return rows


def _judged(
    rows: list[dict[str, Any]], gains: Sequence[ClusterSums | None], thresholds: Thresholds
) -> list[dict[str, Any]]:
    """Adds intervals, tests and verdicts of one family to rows of counts."""
    tau, alpha = thresholds
    n, right_a, right_b, only_a, only_b = (
        np.array([row[name] for row in rows], np.float64)
        for name in ("n", "correct_unperturbed", "correct", "only_unperturbed", "only_perturbed")
    )
    effective = _effective(n, only_a, only_b, gains, thresholds.confidence)
    share = np.divide(effective, n, out=np.ones(n.shape), where=n > 0)
    pairs = only_a * share, only_b * share, effective
    low, high = stats.paired_difference_interval(*pairs, thresholds.confidence)
    p = np.maximum(stats.paired_difference_p_values(*pairs, tau), stats.mcnemar_p_values(*pairs[:2]))
    none_p = stats.paired_equivalence_p_values(*pairs, tau)
    q, none_q = stats.benjamini_hochberg(p), stats.benjamini_hochberg(none_p)
    difference = stats.paired_difference(*pairs)
    # The accuracy of a class that is hardly ever right cannot fall, so that it does not fall is no evidence.
    can_lose = np.divide(right_a, n, out=np.zeros(n.shape), where=n > 0) > tau
    verdicts = stats.verdicts(difference, q, np.where(can_lose, none_q, np.nan), tau, alpha)
    columns: dict[str, Sequence[Any]] = {
        **_accuracy("accuracy_unperturbed", right_a, n, share, thresholds.confidence),
        **_accuracy("accuracy", right_b, n, share, thresholds.confidence),
        "difference": difference.tolist(),
        "difference_low": low.tolist(),
        "difference_high": high.tolist(),
        "p_value": p.tolist(),
        "q_value": q.tolist(),
        "none_p_value": none_p.tolist(),
        "none_q_value": none_q.tolist(),
        "verdict": verdicts,
        "images_to_settle": _to_settle(pairs, verdicts, can_lose, gains, thresholds),
        "clusters": [None if of_clusters is None else int(of_clusters.count[0]) for of_clusters in gains],
        "effective": effective.tolist(),
    }
    return [row | {name: values[i] for name, values in columns.items()} for i, row in enumerate(rows)]


def _effective(
    n: Floats, only_a: Floats, only_b: Floats, gains: Sequence[ClusterSums | None], confidence: float
) -> Floats:
    """Returns the number of independent pairs that tell as much as those of each row."""
    variance = (only_a + only_b + 1 - (only_b - only_a) ** 2 / np.maximum(n, 1)) / np.maximum(n, 1)
    result = n.copy()
    for row, of_row in enumerate(gains):
        if of_row is not None and n[row]:
            result[row] = of_row.effective(confidence, variance[row : row + 1])[0]
    return result


def _accuracy(name: str, right: Floats, n: Floats, share: Floats, confidence: float) -> dict[str, list[float]]:
    """Returns an accuracy and its limits, of so much of the images as are independent."""
    low, high = wilson(right * share, n * share, np.float64(deviations(confidence)))
    accuracy = np.divide(right, n, out=np.full(n.shape, np.nan), where=n > 0)
    return {name: accuracy.tolist(), f"{name}_low": low.tolist(), f"{name}_high": high.tolist()}


def _to_settle(
    pairs: tuple[Floats, Floats, Floats],
    verdicts: Sequence[str],
    can_lose: Mask,
    gains: Sequence[ClusterSums | None],
    thresholds: Thresholds,
) -> list[int | None]:
    """Returns the images that would settle each undetermined row. None would where a class is hardly ever right
    unperturbed. Of clusters the number is unknown: more images of the same ones tell little."""
    tau, alpha = thresholds
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    findings = sum(verdict in ("for", "against") for verdict in verdicts)
    step = alpha * min(1.0, (1 + findings) / max(1, len(verdicts)))
    images_needed = stats.paired_images_to_settle(*pairs, tau, step).tolist()
    return [
        images if verdict == "undetermined" and images > 0 and of_row is None and loses else None
        for images, verdict, loses, of_row in zip(images_needed, verdicts, can_lose.tolist(), gains, strict=True)
    ]


# The stage in which classifiers answer perturbed pictures of images that the run has.


CLASSIFY_PICTURES = StageConfig(PERTURBED_PREDICTIONS, stage="classify", rows_per_file=1024)


def classify_pictures(
    runner: Runner,
    images: Selection,
    perturbing: Perturbing,
    classifiers: Sequence[AuditedClassifier],
    out: str,
    on_progress: OnProgress,
    source: Load | None,
) -> StageResult:
    """Writes all classifiers' answers to all pictures of the selected images into Parquet parts under `out`.

    `source`: of images whose bytes are not in their parts.
    """
    questions = [classifier.question for classifier in classifiers]
    total = images.total * len(list(perturbing.each())) * len(classifiers)
    rows = partial(_rows, images=images, perturbing=perturbing, questions=questions)
    shaped = preparing(classifier.shape for classifier in classifiers)
    return runner.run(
        Rows(images.blocks, rows, total, partial(picture_ids, images, perturbing, questions)),
        predict_pictures,
        partial(loaded, classifiers),
        out,
        id_column="prediction_id",
        config=replace(CLASSIFY_PICTURES, total=total),
        on_progress=on_progress,
        prepare=partial(_prepared, load=source, perturbing=perturbing, shaped=shaped),
    )


def _rows(
    names: pa.Table, images: Selection, perturbing: Perturbing, questions: Sequence[Classification]
) -> Iterator[pa.Table]:
    for name in names["name"].to_pylist():
        yield from picture_rows(images.of(completed(images.parts.read(name, COLUMNS))), perturbing, questions)


def picture_ids(images: Selection, perturbing: Perturbing, questions: Sequence[Classification]) -> Iterator[pa.Array]:
    """Yields the ids of all answers to pictures of the selected images, some at a time."""
    for table in images.parts.each(("image_id",)):
        for rows in picture_rows(images.of(table), perturbing, questions):
            yield rows["prediction_id"].combine_chunks().flatten()


def _prepared(rows: pa.Table, load: Load | None, perturbing: Perturbing, shaped: Prepare | None) -> pa.Table:
    pictures = with_pictures(rows, load, perturbing)
    return pictures if shaped is None else shaped(pictures)


# Perturbations of an audit's labelled images: some images of each class are answered unperturbed and perturbed.


IMAGES, ANSWERS, EFFECTS = "perturbed_images", "perturbed_predictions", "perturbations"


def perturb(
    config: AuditConfig, run: C2BRun, models: Backend, classifiers: Sequence[AuditedClassifier], steps: Steps
) -> None:
    """Writes the tables of perturbations into the run. Raises ConfigError, as the audit does, where the answers to
    images of which no attribute is known show that every classifier is set up wrongly."""
    assert config.perturb is not None
    load = table_opener(config.images.model_dump())
    _answer_unperturbed(config, run, models, classifiers, steps, load())
    if config.check and not run.count("captions"):
        refuse_hopeless(config, run, [classifier.question for classifier in classifiers], models.runner, steps)
    perturbing = Perturbing(
        tuple(config.perturb.levels.items()), side_for(classifier.shape for classifier in classifiers), config.seed
    )
    images = selected(run.location("images"), partial(_sampled, run))
    ids = partial(picture_ids, images, perturbing, [classifier.question for classifier in classifiers])
    if run.lacks(ANSWERS, "prediction_id", ids):
        run.begin_writing()
    with steps.step("perturb") as on_progress:
        out = run.location(ANSWERS)
        classify_pictures(models.runner, images, perturbing, classifiers, out, on_progress, load)
    run.update({"perturbed": {"side": perturbing.side}})
    scored = partial(_effects, config=config, perturbing=perturbing)
    run.write(EFFECTS, call_with_run(scored, run, config, models.runner))


def perturbed_rows(config: AuditConfig, table: LabelledTable) -> dict[str, RowNumbers]:
    """Returns the rows of each class that are perturbed, in ascending order: chosen at random, whatever attributes they
    have."""
    assert config.perturb is not None
    targets = ComparedColumn.of(table.labels, TARGET)
    rows_of_class = {}
    for name in config.classes:
        rows = np.flatnonzero(targets.equal(name))
        order = np.random.default_rng(seed_of("perturb", name, config.seed)).permutation(rows)
        rows_of_class[name] = np.sort(order[: config.perturb.images]).astype(np.int32)
    return rows_of_class


def _answer_unperturbed(
    config: AuditConfig,
    run: C2BRun,
    models: Backend,
    classifiers: Sequence[AuditedClassifier],
    steps: Steps,
    table: LabelledTable,
) -> None:
    """Brings the chosen images into the run, and the answers to them as they are; notes which of them are copies."""
    rows_of_class, revision = perturbed_rows(config, table), table.revision
    rows = np.concatenate(list(rows_of_class.values()))
    ids = image_ids(rows, revision)
    if not run.has(IMAGES):
        run.write(IMAGES, _images(config, table, rows_of_class, ids))
    missing = rows[absent(ids, opened(run.location("images")).census("image_id").ids)]
    with steps.step(f"classify: {', '.join(config.specs)}") as on_progress:
        load = table_opener(config.images.model_dump())
        if len(missing):
            run.begin_writing()
            to = OutputDirectories(run.location("images"), run.location("predictions"), config.keep_images)
            look_and_classify(models.runner, (np.sort(missing), revision), load, classifiers, to, on_progress)
        classify(classifiers, run, models, on_progress, load)
    run.write(IMAGES, call_with_run(_with_repeats, run, config, models.runner))


def _images(config: AuditConfig, table: LabelledTable, rows_of_class: dict[str, RowNumbers], ids: pa.Array) -> pa.Table:
    rows = np.concatenate(list(rows_of_class.values()))
    clusters = None if config.images.cluster is None else table.clusters(config.images.cluster).take(pa.array(rows))
    columns = {
        "image_id": ids,
        "target_class": np.repeat(list(rows_of_class), [len(of_class) for of_class in rows_of_class.values()]),
        "repeat": pa.nulls(len(rows), pa.bool_()),
        "cluster": pa.nulls(len(rows), pa.string()) if clusters is None else clusters,
    }
    return pa.table({name: columns[name] for name in PERTURBED_IMAGES.names})


def _with_repeats(run: C2BRun) -> pa.Table:
    """Returns the chosen images with which of them repeat an earlier one of their class."""
    images = run.read(IMAGES)
    ids, image = ImageIds.numbered(images["image_id"])
    _, of_class = numbered(images["target_class"])
    picture_parts = [
        part.filter(pc.is_in(part["image_id"], ids.ids.cast(pa.string())))
        for part in run.each("images", DISTINCT_COLUMNS)
    ]
    pictures = Distinct(pa.concat_tables(picture_parts), (ids, of_class)).pictures(ids)[image]
    keys = np.stack([pictures, of_class])
    _, first = np.unique(keys, axis=1, return_index=True)
    repeat = np.ones(images.num_rows, bool)
    repeat[first] = False
    index = images.schema.get_field_index("repeat")
    return images.set_column(index, images.schema.field("repeat"), pa.array(repeat))


def _sampled(run: C2BRun) -> Iterator[Digests]:
    yield digests(run.read(IMAGES, ["image_id"])["image_id"])


def _effects(run: C2BRun, config: AuditConfig, perturbing: Perturbing) -> pa.Table:
    kinds = [kind for kind in perturbing.each() if kind[1]]
    answers = run.predictions_of([name for name in EFFECT_COLUMNS if name != "classifier"], ANSWERS)
    thresholds = Thresholds(config.tau, config.alpha)
    return effects(run.read(IMAGES), answers, config.classifiers, kinds, thresholds, config.images.cluster is not None)
