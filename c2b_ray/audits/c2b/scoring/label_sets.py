"""What every image of a labelled table shows, where a classifier gives each label on its own.

A label is then a task of its own: an image counts for it as positive or negative, whatever else it shows. The cells of
an audit hold positives alone. The negatives of a label are all other images with the value, those without any label
included, and none of these is in a cell. So the run has a table of them (`tables.LABELLED_IMAGES`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.stats.classification import METRICS, ClassMetric, Mask, Outcomes
from c2b_ray.steps.answers import NO_ANSWER, ClassifierAnswers
from c2b_ray.steps.cells import CellGroup
from c2b_ray.steps.draw import ImageIds, Ints
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.labels import TARGET, ComparedColumn
from c2b_ray.tables import LABELLED_IMAGES

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
        "classes": [names[of].tolist() for of in shown[rows]],
        "attributes": [[attribute for attribute, _ in of] for of in have],
        "bias_classes": [[value for _, value in of] for of in have],
    }
    return pa.table(columns, pa.schema([field for field in LABELLED_IMAGES if field.name in columns])), rows


def compared_values(proposals: pa.Table) -> dict[str, list[str]]:
    """Returns attribute → its values in any class, of `tables.PROPOSALS`."""
    values: dict[str, dict[str, None]] = {}
    for row in proposals.select(["attribute", "bias_classes"]).to_pylist():
        values.setdefault(row["attribute"], {}).update(dict.fromkeys(row["bias_classes"]))
    return {attribute: list(of) for attribute, of in values.items()}


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
        place = {name: at for at, name in enumerate(classes)}
        shown = np.zeros((len(ids), len(classes)), bool)
        for row, names in enumerate(table["classes"].to_pylist()):
            shown[row, [place[name] for name in names if name in place]] = True
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
        place = np.array([at.get(value, -1) for value in named], np.int64)
        rows = self._once(np.flatnonzero(place >= 0), place)
        outcomes, answered = self._outcomes(answers, group.target_class, rows)
        rows = rows[answered]
        return outcomes, place[rows], _strata(self.sets[rows], outcomes.truth)

    def of_class(self, answers: ClassifierAnswers, target_class: str) -> Outcomes:
        """Returns the outcomes of all answered images, each picture of a set of labels once."""
        rows = self._once(np.arange(len(self.ids)), np.zeros(len(self.ids), np.int64))
        return self._outcomes(answers, target_class, rows)[0]

    def _once(self, rows: Ints, place: Ints) -> Ints:
        """Returns the rows without copies of an image with the same value and labels: the first by id stays, as in a
        cell."""
        keys = np.stack([place[rows], self.pictures[rows], self.sets[rows]], axis=1)
        _, first = np.unique(keys, axis=0, return_index=True) if len(rows) else (None, np.zeros(0, np.int64))
        return rows[np.sort(first)]

    def _outcomes(self, answers: ClassifierAnswers, target_class: str, rows: Ints) -> tuple[Outcomes, Mask]:
        asked, position = answers.number(target_class), self.classes.index(target_class)
        found = answers.rows_of(self.ids)[rows]
        taken = answers.taken(found, np.full(len(found), asked))
        answered: Mask = taken != NO_ANSWER
        outcomes = Outcomes(
            self.shown[rows, position][answered],
            (taken == asked)[answered],
            answers.probability(found[answered], position),
        )
        return outcomes, answered


def _strata(sets: Ints, truth: Mask) -> Ints:
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
    for classifier, given in answers.items():
        for label in sets.classes:
            outcomes = sets.of_class(given, label)
            positive = int(outcomes.truth.sum())
            values = [value(METRICS[name], outcomes) for name in ("recall", "precision", "f1", "auroc")]
            rows.append(LabelScores(classifier, label, positive, len(outcomes) - positive, *values))
    return rows
