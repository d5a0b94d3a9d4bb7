"""Scores other metrics than accuracy: their values in each cell, φ of them, and tests that hold for them.

Where a classifier gives each label on its own, an image shows several labels, and each label is scored as a class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.judge import Estimate, Floats, Permuted, ScoreRow
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError
from c2b_ray.stats.classification import METRICS, ClassMetric, Mask, Outcomes
from c2b_ray.stats.intervals import wilson
from c2b_ray.stats.metric_frame import known_bias, percentiles, permuted_scores, resampled
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.scores import mean_of_others
from c2b_ray.steps.answers import NO_ANSWER, CellAnswers, ClassifierAnswers
from c2b_ray.steps.cells import CellGroup, CellImages, GroupName
from c2b_ray.steps.draw import ImageIds, Ints
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.labels import TARGET, ComparedColumn
from c2b_ray.tables import LABELLED_IMAGES, seed_of

# What every image of a labelled table shows, where a classifier gives each label on its own.


COMMON = 20
"""The least images of a set of labels among which values are permuted. Images of rarer sets are permuted with those
that agree about the label in question: of a set of one image nothing could be."""


def labelled_images(
    labels: pa.Table, classes: Sequence[str], compared: Mapping[str, Sequence[str]]
) -> tuple[pa.Table, Ints]:
    """Returns a table of `tables.LABELLED_IMAGES` without its ids, and the row of each of its images in `labels`.

    `compared`: attribute → its values in any class. Images whose labels are not known, or that have none of the values,
    are left out.
    """
    targets = ComparedColumn.of(labels, TARGET)
    shown = np.stack([targets.equal(name) for name in classes], axis=1)
    known = np.full(len(shown), False)
    of_attribute: dict[str, NDArray[np.object_]] = {}
    for attribute, values in compared.items():
        column, named = ComparedColumn.of(labels, attribute), np.full(len(shown), None, object)
        for value in values:
            named[column.equal(value)] = value
        of_attribute[attribute] = named
        known |= named != None  # noqa: E711 — element by element
    rows = np.flatnonzero(known & ~targets.missing)
    names = np.array(classes, object)
    have = [
        [(attribute, named[row]) for attribute, named in of_attribute.items() if named[row]] for row in rows.tolist()
    ]
    columns = {
        "classes": [names[classes_shown].tolist() for classes_shown in shown[rows]],
        "attributes": [[attribute for attribute, _ in pairs] for pairs in have],
        "bias_classes": [[value for _, value in pairs] for pairs in have],
    }
    return pa.table(columns, pa.schema([field for field in LABELLED_IMAGES if field.name in columns])), rows


def compared_values(proposals: pa.Table) -> dict[str, list[str]]:
    """Returns attribute → its values in any class, of `tables.PROPOSALS`."""
    values: dict[str, dict[str, None]] = {}
    for row in proposals.select(["attribute", "bias_classes"]).to_pylist():
        values.setdefault(row["attribute"], {}).update(dict.fromkeys(row["bias_classes"]))
    return {attribute: list(of_attribute) for attribute, of_attribute in values.items()}


@dataclass(frozen=True)
class LabelSets:
    """The images, sorted by id, and what each shows. `shown`: (images, classes). `sets`: the number of each image's set
    of labels. `values`: attribute → the value of each image, None where it has none. `pictures`: a number for each
    picture, the same for its copies."""

    ids: ImageIds
    classes: tuple[str, ...]
    shown: Mask
    sets: Ints
    values: Mapping[str, NDArray[np.object_]]
    pictures: Ints

    @staticmethod
    def of(table: pa.Table, classes: Sequence[str], distinct: Distinct | None) -> LabelSets:
        """`table`: of `tables.LABELLED_IMAGES`."""
        table = table.take(pc.sort_indices(table, [("image_id", "ascending")]))
        ids = ImageIds(table["image_id"].cast(pa.large_string()).combine_chunks())
        positions = {name: at for at, name in enumerate(classes)}
        shown = np.zeros((len(ids), len(classes)), bool)
        for row, names in enumerate(table["classes"].to_pylist()):
            shown[row, [positions[name] for name in names if name in positions]] = True
        values: dict[str, NDArray[np.object_]] = {}
        for row, (attributes, names) in enumerate(
            zip(table["attributes"].to_pylist(), table["bias_classes"].to_pylist(), strict=True)
        ):
            for attribute, value in zip(attributes, names, strict=True):
                values.setdefault(attribute, np.full(len(ids), None, object))[row] = value
        _, sets = np.unique(shown, axis=0, return_inverse=True) if len(ids) else (None, np.zeros(0, np.int64))
        pictures = np.arange(len(ids)) if distinct is None else distinct.pictures(ids)
        return LabelSets(ids, tuple(classes), shown, np.asarray(sets, np.int64).reshape(-1), values, pictures)

    def of_group(self, answers: ClassifierAnswers, group: CellGroup) -> tuple[Outcomes, Ints, Ints]:
        """Returns the outcomes of all answered images with a value of the group, the label against all else, the
        position of each image's value, and what the values are permuted among: images of one set of labels."""
        at = {value: number for number, value in enumerate(group.values)}
        named = self.values.get(group.attribute, np.full(len(self.ids), None, object))
        positions = np.array([at.get(value, -1) for value in named], np.int64)
        rows = self._once(np.flatnonzero(positions >= 0), positions)
        outcomes, answered = self._outcomes(answers, group.target_class, rows)
        rows = rows[answered]
        return outcomes, positions[rows], _strata_of_sets(self.sets[rows], outcomes.truth)

    def of_class(self, answers: ClassifierAnswers, target_class: str) -> Outcomes:
        """Returns the outcomes of all answered images, each picture of a set of labels once."""
        rows = self._once(np.arange(len(self.ids)), np.zeros(len(self.ids), np.int64))
        return self._outcomes(answers, target_class, rows)[0]

    def _once(self, rows: Ints, positions: Ints) -> Ints:
        """Returns the rows without copies of an image with the same value and labels: the first by id stays, as in a
        cell."""
        keys = np.stack([positions[rows], self.pictures[rows], self.sets[rows]], axis=1)
        _, first = np.unique(keys, axis=0, return_index=True) if len(rows) else (None, np.zeros(0, np.int64))
        return rows[np.sort(first)]

    def _outcomes(self, answers: ClassifierAnswers, target_class: str, rows: Ints) -> tuple[Outcomes, Mask]:
        target, position = answers.number(target_class), self.classes.index(target_class)
        answer_rows = answers.rows_of(self.ids)[rows]
        taken = answers.taken(answer_rows, np.full(len(answer_rows), target))
        answered: Mask = taken != NO_ANSWER
        outcomes = Outcomes(
            self.shown[rows, position][answered],
            (taken == target)[answered],
            answers.probability(answer_rows[answered], position),
        )
        return outcomes, answered


def _strata_of_sets(sets: Ints, truth: Mask) -> Ints:
    counts = np.bincount(sets, minlength=1)
    return np.where(counts[sets] >= COMMON, sets, int(sets.max(initial=0)) + 1 + truth)


@dataclass(frozen=True)
class LabelScores:
    """A classifier's answers about one label, over all images: `positive` show it, `negative` do not. The metrics are
    NaN where they are not defined."""

    classifier: str
    label: str
    positive: int
    negative: int
    recall: float
    precision: float
    f1: float
    auroc: float


def scores_of_labels(sets: LabelSets, answers: Mapping[str, ClassifierAnswers]) -> list[LabelScores]:
    """Returns a row for each classifier and label."""

    def value(metric: ClassMetric, outcomes: Outcomes) -> float:
        return metric.value(outcomes) if len(outcomes) else float("nan")

    rows = []
    for classifier, answers_of_classifier in answers.items():
        for label in sets.classes:
            outcomes = sets.of_class(answers_of_classifier, label)
            positive = int(outcomes.truth.sum())
            values = [value(METRICS[name], outcomes) for name in ("recall", "precision", "f1", "auroc")]
            rows.append(LabelScores(classifier, label, positive, len(outcomes) - positive, *values))
    return rows


ACCURACY, RECALL = "accuracy", "recall"
OWN = "python:"
"""The prefix of the name of a metric that is a Python function."""
COUNTED = (ACCURACY, RECALL)
"""The metrics that are the share of right answers to the cell's images: of images of one class, recall is accuracy."""
CERTAIN = 1e-9
"""A probability this near to 0 or 1 is one."""
LEAST_PERMUTATIONS, MOST_PERMUTATIONS = 999, 9_999

Function = Callable[[Mask, Mask, Floats], float]
_held: dict[str, ClassMetric] = {}


@contextmanager
def own_metric(function: Function | None) -> Iterator[str | None]:
    """Lets `metric_named` find a function of one's own while an audit runs in this process; yields its name."""
    if function is None:
        yield None
        return
    name = OWN + getattr(function, "__name__", type(function).__name__).strip("<>")
    _held[name] = ClassMetric.from_function(name.removeprefix(OWN), function)
    try:
        yield name
    finally:
        del _held[name]


def metric_named(name: str) -> ClassMetric | None:
    """Returns the metric of a config's `metric`; None for those that `judge` and `estimates` count themselves.

    Raises ConfigError for a function of one's own that this process does not hold.
    """
    if name in COUNTED:
        return None
    if name.startswith(OWN):
        if name not in _held:
            raise ConfigError("metric", f"{name} is a function: run the audit from Python, with metric=the function")
        return _held[name]
    return METRICS[name]


def check_metric(config: AuditConfig) -> None:
    """Raises ConfigError for a function of one's own that this process does not hold. It reads no file and loads no
    model, so that the endpoint can call it when a config is submitted."""
    metric_named(config.metric)


@dataclass(frozen=True)
class Measure:
    """The metric that an audit compares cells by. `metric`: None for the share of right answers; `classes`: the
    audit's, in the order of their probabilities; `seed`: of permutations and bootstraps; `label_sets`: what all images
    show, where each label is given on its own."""

    name: str
    metric: ClassMetric | None
    classes: tuple[str, ...]
    seed: int
    label_sets: LabelSets | None = None

    @staticmethod
    def of(name: str, classes: Sequence[str], seed: int, label_sets: LabelSets | None = None) -> Measure:
        return Measure(name, metric_named(name), tuple(classes), seed, label_sets)


RIGHT_ANSWERS = Measure(ACCURACY, None, (), 0)


def measured(
    estimates: Sequence[Estimate], answers: CellAnswers, measure: Measure, metric: ClassMetric, thresholds: Thresholds
) -> None:
    """Replaces the accuracies of estimates by the metric's values, and adds the permutation test of the values whose φ
    is beyond τ.

    A value without any image of the class, or for AUROC and functions of one's own of another class, has no value of
    the metric. Each attribute of a class has a seed of its own. A metric of probabilities is in doubt where the
    classifier gave none, such as a table of labels alone.
    """
    z = np.float64(deviations(thresholds.confidence))
    tests = sum(len(estimate.values) for estimate in estimates)
    most = min(MOST_PERMUTATIONS, max(LEAST_PERMUTATIONS, ceil(2 * tests / thresholds.alpha)))
    images = _Images.of(answers, measure.classes)
    lacks = metric.needs_probabilities and measure.name in METRICS and not images.have_probabilities()
    for estimate in estimates:
        group = answers.cells.group_named[GroupName(estimate.target_class, estimate.attribute)]
        if measure.label_sets is not None and metric.seen == "all":
            outcomes, value_positions, classes = measure.label_sets.of_group(answers.answers, group)
        else:
            outcomes, value_positions, classes = images.of_group(group, metric)
        number, own_seed = len(group.values), seed_of("metric", estimate.classifier, *group.name, measure.seed)
        of_metric = metric.estimate(outcomes, value_positions, number)
        estimate.accuracy, estimate.effective = of_metric.value, of_metric.effective
        phi = _phi(of_metric.value)
        if metric.has_limits:
            low, high = wilson(of_metric.value * of_metric.effective, of_metric.effective, z)
        else:
            draws = resampled(metric, outcomes, value_positions, number, own_seed)
            estimate.too_low = known_bias(metric, outcomes, value_positions, number)
            low, high = percentiles(draws, thresholds.confidence)
            high = high + estimate.too_low
            estimate.resampled = draws - np.stack([mean_of_others(row, np.isfinite(row)) for row in draws])
        estimate.columns |= {
            "accuracy": of_metric.value,
            "accuracy_low": low,
            "accuracy_high": high,
            "accuracy_observed": of_metric.value,
            "phi_observed": phi,
            "paper_verdict": np.where(np.abs(phi) > thresholds.tau, np.sign(phi), 0).astype(np.int64),
        }
        beyond_tau = np.abs(phi) > thresholds.tau
        test = permuted_scores(metric, outcomes, value_positions, number, classes, beyond_tau, own_seed, most)
        doubts = tuple(
            _NO_PROBABILITIES if lacks else _doubt(score, mix, estimate.attribute, metric, thresholds.tau)
            for score, mix in zip(phi.tolist(), test.mean.tolist(), strict=True)
        )
        estimate.permuted = Permuted(test.p_value, test.mean, doubts, test.smallest)
        estimate.columns["phi_of_mix"] = test.mean


_NO_PROBABILITIES = (
    "the classifier gave answers without probabilities (0 and 1 alone), so that this is a rate of right answers under "
    "another name"
)


def _doubt(phi: float, mix: float, attribute: str, metric: ClassMetric, tau: float) -> str | None:
    """Returns why a φ beyond τ says nothing about the attribute: the classes' frequencies, and of a metric that chance
    makes worse the number of images, alone give nearly as much."""
    if math.isnan(mix) or abs(mix) <= tau or abs(phi - mix) > tau:
        return None
    causes = (
        "has the classes in another mix, which alone gives"
        if metric.has_limits
        else "has another number of images, or the classes in another mix, which alone give"
    )
    return (
        f"its value of {attribute} {causes} φ of {mix:+.2f}: answers to images of one class need not depend on "
        f"{attribute} for that"
    )


@dataclass(frozen=True)
class _Images:
    """The images of all cells of one classifier; arrays have a value for each row of the cells.

    `rows`: of the answers; `taken`: the number of the answer's name whichever class is asked about; `target`: the
    number of the cell's class.
    """

    answers: CellAnswers
    rows: Ints
    target: Ints
    by_attribute: dict[str, list[CellGroup]]
    position: dict[str, int]

    @staticmethod
    def of(answers: CellAnswers, classes: Sequence[str]) -> _Images:
        cells: CellImages = answers.cells
        by_attribute: dict[str, list[CellGroup]] = {}
        for group in cells.groups:
            by_attribute.setdefault(group.attribute, []).append(group)
        number = {name: i for i, name in enumerate(classes)}
        target = np.array([number[name.target_class] for name in cells.names], np.int64)[cells.cell]
        return _Images(answers, answers.answers.rows_of(cells.ids)[cells.image], target, by_attribute, number)

    def have_probabilities(self) -> bool:
        """Tells whether any answer is more or less than certain: an answer without a probability is given 1."""
        by_class = (self.answers.answers.probability(self.rows, position) for position in self.position.values())
        return any(bool(((p > CERTAIN) & (p < 1 - CERTAIN)).any()) for p in by_class)

    def of_group(self, group: CellGroup, metric: ClassMetric) -> tuple[Outcomes, Ints, Ints]:
        """Returns the outcomes of the images that a metric looks at in the cells of an attribute, one class against the
        rest, the position of each image's value, and the number of its class."""
        cells, predictions = self.answers.cells, self.answers.answers
        groups = self.by_attribute[group.attribute] if metric.seen == "all" else [group]
        parts, position_arrays = [], []
        for other in groups:
            cell_rows = cells.rows(other.cells)
            parts.append(np.arange(cell_rows.start, cell_rows.stop))
            # Values are matched by name: another class may list them in another order, or lack some.
            number_of_value = {value: i for i, value in enumerate(group.values)}
            of_cell = np.array([number_of_value.get(value, -1) for value in other.values], np.int64)
            position_arrays.append(of_cell[cells.cell[cell_rows] - other.cells.start])
        rows, value_positions = np.concatenate(parts), np.concatenate(position_arrays)
        target = predictions.number(group.target_class)
        answers_taken = predictions.taken(self.rows[rows], np.full(len(rows), target))
        is_counted = (answers_taken != NO_ANSWER) & (value_positions >= 0)
        rows, value_positions, answers_taken = rows[is_counted], value_positions[is_counted], answers_taken[is_counted]
        truth = self.target[rows] == self.position[group.target_class]
        probabilities = predictions.probability(self.rows[rows], self.position[group.target_class])
        return Outcomes(truth, answers_taken == target, probabilities), value_positions, self.target[rows]


def _phi(values: Floats) -> Floats:
    is_known = np.isfinite(values)
    phi: Floats = np.where(is_known, values, np.nan) - mean_of_others(values, is_known)
    return phi


def judged_by_permutation(estimates: Sequence[Estimate], metric: ClassMetric, thresholds: Thresholds) -> list[ScoreRow]:
    """Returns what `judge.judged` returns, for a metric whose variance is not known.

    A finding is a φ that hardly any permutation of the values within the classes reaches, and that lies beyond τ by
    more than its bias and the bootstrap's standard error explain (a normal tail): permutations alone tell that answers
    depend on the value, not by how much. The false discovery rate is controlled over all cells. That φ is small has no
    test, so that no verdict is `none`. Limits of φ are percentiles of a bootstrap, of findings at the confidence that
    corrects for their selection.
    """
    tau, alpha = thresholds
    phi = np.concatenate([*(_phi(class_estimate.accuracy) for class_estimate in estimates), np.zeros(0)])
    tests = [class_estimate.permuted for class_estimate in estimates if class_estimate.permuted is not None]
    p = np.concatenate([*(permutation_test.p_value for permutation_test in tests), np.zeros(0)])
    doubts = [doubt for permutation_test in tests for doubt in permutation_test.doubts]
    p = np.where(np.isfinite(phi) & np.isnan(p), 1.0, p)  # within τ
    spread = np.concatenate(
        [
            *(
                class_estimate.resampled.std(axis=0)
                for class_estimate in estimates
                if class_estimate.resampled is not None
            ),
            np.zeros(0),
        ]
    )
    below, above = _bias_of_phi(estimates)
    nearest = np.where(phi > 0, np.maximum(phi - below, 0.0), np.minimum(phi + above, 0.0))
    is_beyond = [
        stats.p_value_of_limit(score, float(deviations(thresholds.confidence)) * error, thresholds.confidence, tau)
        for score, error in zip(nearest.tolist(), spread.tolist(), strict=True)
    ]
    p = np.where(np.isnan(p), p, np.fmax(p, is_beyond))
    p[[i for i, doubt in enumerate(doubts) if doubt is not None]] = np.nan
    q, nothing = stats.benjamini_hochberg(p), np.full(len(p), np.nan)
    verdicts = stats.verdicts(phi, q, nothing, tau, alpha)
    findings = np.array([verdict in ("for", "against") for verdict in verdicts], bool)
    low, high = _limits(estimates, 1 - alpha)
    if findings.any():
        confidence = stats.selected_confidence(int(findings.sum()), int(np.isfinite(q).sum()), alpha)
        ends = zip(_limits(estimates, confidence), (low, high), strict=True)
        low, high = (np.where(findings, wide, usual) for wide, usual in ends)
    error = (high - low) / (2 * deviations(thresholds.confidence))
    shrunken = stats.shrunken(phi, error)
    smallest = min((permutation_test.smallest for permutation_test in tests), default=1.0)
    basis = [estimate.basis for estimate in estimates for _ in estimate.values]
    numbers = {
        "phi": phi, "phi_low": low, "phi_high": high, "p_value": p, "q_value": q, "none_p_value": nothing,
        "none_q_value": nothing, "phi_shrunken": shrunken,
    }  # fmt: skip
    rows = []
    for i, verdict in enumerate(verdicts):
        because = _because(float(phi[i]), float(q[i]), doubts[i], metric, thresholds, smallest)
        numbers_of_row = {name: float(values[i]) for name, values in numbers.items()}
        judgement = {
            "verdict": verdict,
            "doubt": doubts[i],
            "basis": basis[i],
            "phi_standardised": None,
            "same_as": None,
        }
        judgement["undetermined_because"] = because if verdict == "undetermined" else None
        rows.append(cast(ScoreRow, numbers_of_row | judgement))
    return rows


def _limits(estimates: Sequence[Estimate], confidence: float) -> tuple[Floats, Floats]:
    ends = [percentiles(estimate.resampled, confidence) for estimate in estimates if estimate.resampled is not None]
    low, high = (np.concatenate([*(end[side] for end in ends), np.zeros(0)]) for side in (0, 1))
    below, above = _bias_of_phi(estimates)
    return low - below, high + above


def _bias_of_phi(estimates: Sequence[Estimate]) -> tuple[Floats, Floats]:
    """Returns by how much each φ may lie below and above its estimate since values of the metric are too low on
    average: the other values' mean may be higher, or the value itself."""
    of_estimates = [e.too_low for e in estimates if e.resampled is not None and e.too_low is not None]
    below = [mean_of_others(np.nan_to_num(bias), np.isfinite(bias)) for bias in of_estimates]
    return np.nan_to_num(np.concatenate([*below, np.zeros(0)])), np.nan_to_num(
        np.concatenate([*of_estimates, np.zeros(0)])
    )


def _because(
    phi: float, q: float, doubt: str | None, metric: ClassMetric, thresholds: Thresholds, smallest: float
) -> str:
    if doubt is not None:
        return doubt
    if math.isnan(phi):
        return "there are no images with an answer, or no other value to compare with"
    if abs(phi) <= thresholds.tau:
        return f"not tested: no test shows that {metric.in_words} differs by no more than {thresholds.tau:g}"
    return (
        f"the adjusted p-value is {q:.2g}, above {thresholds.alpha:g} (the smallest p-value that its permutations can "
        f"give is {smallest:.2g})"
    )
