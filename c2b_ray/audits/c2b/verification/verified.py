"""What verifications tell: how often the verifier is right, and what the images of every cell show."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.stats.noisy_labels import Corrected
from c2b_ray.steps.cells import CellGroup, CellImages, CellName, GroupName
from c2b_ray.steps.draw import ImageIds, Ints, Mask, codes, counted, distinct_count, numbered, vocabulary
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.observe import CLASS, OTHER
from c2b_ray.tables import CALIBRATION

# How often a verifier is right: counted on images of known content, or estimated from its own certainty, or
# unknown.


# Estimates how often a verifier is right from its own certainty, where there is no image of known content.


SELF_TRUST = 20.0
"""Without a calibration table, a verifier's certainty counts as this many labelled images of each value."""


def self_assessed_calibration(verifications: pa.Table) -> pa.Table:
    """Returns what the verifier's certainty implies for its answers: a table of `tables.CALIBRATION`, counted in
    images.

    An image answered w with certainty p counts p for w and divides 1 - p among the other values that were answered for
    its class. Each value's row is scaled to at most SELF_TRUST images: a model's assessment of itself is weak evidence.
    """
    names, values, certainties = (
        pc.list_flatten(verifications[column]) for column in ("attributes", "values", "certainties")
    )
    rows_with_certainty = np.flatnonzero(pc.and_(values.is_valid(), certainties.is_valid()).to_numpy())
    names, values, certainties = (column.take(pa.array(rows_with_certainty)) for column in (names, values, certainties))
    words = vocabulary(names, values)
    text = words.to_pylist()
    name, value, certainty = codes(names, words), codes(values, words), certainties.to_numpy().astype(np.float64)
    promised: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for rows in _by_class(name, _targets(verifications)[rows_with_certainty]):
        _add(promised[text[name[rows[0]]]], value[rows], certainty[rows], text)
    table = [row for attribute, images in sorted(promised.items()) for row in _rows(attribute, images)]
    return pa.Table.from_pylist(table, CALIBRATION)


def _targets(verifications: pa.Table) -> Ints:
    """Returns the class, as a number, of each value of all rows."""
    _, target = numbered(verifications["target_class"])
    return np.repeat(target, pc.list_value_length(verifications["attributes"]).to_numpy())


def _by_class(name: Ints, target: Ints) -> list[Ints]:
    """Returns the positions of the answers about each attribute of each class, in the order of their first answers."""
    keys = name * (np.int64(target.max(initial=0)) + 1) + target
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.r_[True, keys[order][1:] != keys[order][:-1]][: len(keys)])
    return sorted(np.split(order, starts[1:]), key=lambda rows: int(rows[0])) if len(keys) else []


def _add(promised: dict[tuple[str, str], float], answers: Ints, certainty: Floats, text: list[str]) -> None:
    """Adds the images, by value and answer, of one attribute of one class."""
    numbers, _ = counted(answers)
    values = sorted(text[number] for number in numbers)
    for number in sorted(numbers.tolist(), key=lambda number: int(np.argmax(answers == number))):
        answer, certainties = text[number], certainty[answers == number]
        for value in values:
            images = certainties if value == answer else (1 - certainties) / max(1, len(values) - 1)
            # Added one by one, so that the sums over parts of a table equal those over the whole.
            before = promised.get((value, answer), 0.0)
            promised[value, answer] = float(np.cumsum(np.append(before, images))[-1])


def _rows(attribute: str, promised: dict[tuple[str, str], float]) -> list[dict[str, object]]:
    images_of_value: dict[str, float] = defaultdict(float)
    for (value, _), images in promised.items():
        images_of_value[value] += images
    return [
        {"attribute": attribute, "value": value, "answer": answer, "source": "self"}
        | {"images": images * min(1.0, SELF_TRUST / images_of_value[value]) if images_of_value[value] else 0.0}
        for (value, answer), images in sorted(promised.items())
    ]


ASSUMED = 0.95
"""The assumed rate of right answers on a class, where neither a calibration nor the verifier's certainty gives one."""


class VerifierSkill:
    """How well a verifier recognises values and classes, from tables of `tables.VERIFICATIONS` and `CALIBRATION`.

    For values and classes without calibration, the verifier's certainty is used instead.
    """

    def __init__(self, verifications: pa.Table, calibration: pa.Table) -> None:
        self._counts: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
        self._checked = set(zip(calibration["attribute"].to_pylist(), calibration["value"].to_pylist(), strict=True))
        self_rows = [row for row in self_assessed_calibration(verifications).to_pylist() if not self._is_checked(row)]
        for row in [*calibration.to_pylist(), *self_rows]:
            self._counts[row["attribute"]][row["value"], row["answer"]] = row["images"]
        self._certainty = _class_certainty(verifications)

    def _is_checked(self, row: dict[str, str]) -> bool:
        return (row["attribute"], row["value"]) in self._checked

    def values(self, attribute: str, values: Sequence[str]) -> Floats:
        """Returns images that show each value (row) for which it named each value (column)."""
        counts = self._counts.get(attribute, {})
        return np.array([[counts.get((value, answer), 0.0) for answer in values] for value in values])

    def values_checked(self, attribute: str, values: Sequence[str]) -> bool:
        """Returns whether all of these were counted on images of known content."""
        return all((attribute, value) in self._checked for value in values)

    def classes(self, target: str, something_else: float | None = None) -> Floats:
        """Returns images that show the class and images that do not (rows), by whether it said that they do.

        `something_else`: the share, among the run's images that do not show the class, of those that show none of the
        audit's classes. A verifier takes these for the class more often than it takes another class for it, and the
        proportion of the two in a calibration is arbitrary: with the share, both are weighted as they occur in the run.
        """
        counts = self._table(target)
        if something_else is not None:
            counts[1] = self._mixed(target, something_else)
        right = self._certainty.get(target, ASSUMED)
        guess = SELF_TRUST * np.array([[right, 1 - right], [1 - right, right]])
        return np.where(counts.sum(axis=1, keepdims=True) > 0, counts, guess)

    def _mixed(self, target: str, something_else: float) -> Floats:
        """Returns images without the class, by whether the verifier saw it: the two kinds weighted by their shares."""
        kinds = (
            self._table(target, lambda value: value == OTHER)[1],
            self._table(target, lambda value: value != OTHER)[1],
        )
        shares = np.array([something_else, 1 - something_else])
        images = np.array([kind.sum() for kind in kinds])
        if not images.all():
            summed: Floats = kinds[0] + kinds[1]
            return summed
        rate = float(shares @ [(kind[0] + 0.5) / (kind.sum() + 1) for kind in kinds])
        worth = 1 / float((shares**2 / images).sum())
        return worth * np.array([rate, 1 - rate])

    def classes_checked(self, target: str) -> bool:
        """Returns whether both were counted on images of known content: some that show the class, and some that
        do not."""
        return bool((self._table(target).sum(axis=1) > 0).all())

    def something_else(self) -> float:
        """Returns the number of calibration images that show none of the audit's classes."""
        return sum(images for (value, _), images in self._counts.get(CLASS, {}).items() if value == OTHER)

    def classes_known(self, target: str) -> bool:
        """Returns whether more than an assumption says how often it is right on the class."""
        return self.classes_checked(target) or target in self._certainty

    def class_rates(self, target: str) -> tuple[float, float]:
        """Returns sensitivity and specificity on the class, each 1 where it was not counted on images of known
        content."""
        counts = self._table(target)
        totals = counts.sum(axis=1)
        right = np.divide(np.diag(counts), totals, out=np.ones(2), where=totals > 0)
        return float(right[0]), float(right[1])

    def images_of_class(self, target: str) -> float:
        """Returns the number of calibration images that show the class."""
        return float(self._table(target)[0].sum())

    def answers_of_class(self, target: str) -> tuple[float, float]:
        """Returns the numbers of calibration images of the class that it took for the class, and for none of the
        audit's."""
        counts = self._counts.get(CLASS, {})
        return counts.get((target, target), 0.0), counts.get((target, OTHER), 0.0)

    def _table(self, target: str, counts_for: Callable[[str], bool] = lambda value: True) -> Floats:
        """Returns images that show the class and that do not (rows; of other classes only those that `counts_for`
        accepts), by whether it said that they do."""
        counts = np.zeros((2, 2))
        for (value, answer), images in self._counts.get(CLASS, {}).items():
            if value == target or counts_for(value):
                counts[int(value != target), int(answer != target)] += images
        return counts


def _class_certainty(verifications: pa.Table) -> dict[str, float]:
    """Returns the verifier's mean certainty about the class, over the images drawn for each class, where it
    gave one."""
    certainty = verifications["class_certainty"]
    rows_with_certainty = np.flatnonzero(certainty.is_valid().to_numpy())
    names, target = numbered(verifications["target_class"].take(pa.array(rows_with_certainty)))
    certainties = certainty.take(pa.array(rows_with_certainty)).to_numpy().astype(np.float64)
    return {name: float(np.mean(certainties[target == i])) for i, name in enumerate(names.to_pylist())}


# A verifier's answers about images, as numbers: one row for each image and class that it was checked for.


NOTHING = -1
"""The number of no row, no class or no value."""


class VerifierAnswers:
    """The rows of `verifications`, a table of that schema, by image number and target class."""

    def __init__(self, verifications: pa.Table) -> None:
        self.ids, image = ImageIds.numbered(verifications["image_id"])
        names, values = (pc.list_flatten(verifications[name]) for name in ("attributes", "values"))
        targets, classes = verifications["target_class"], verifications["class_shown"]
        self.words = vocabulary(targets, classes, names, values)
        self._number = {word: i for i, word in enumerate(self.words.to_pylist())}
        self.target, self._class = codes(targets, self.words), np.append(codes(classes, self.words), NOTHING)
        self._names, self._values = codes(names, self.words), np.append(codes(values, self.words), NOTHING)
        self._failed: Mask = np.append(verifications["error"].is_valid().to_numpy(), True)
        self._lengths: Ints = np.append(pc.list_value_length(verifications["attributes"]).to_numpy(), 0)
        lengths = self._lengths.astype(np.int64)
        self._starts = np.cumsum(lengths) - lengths
        keys = self.target * np.int64(len(self.ids)) + image
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def number(self, word: str) -> int:
        """Returns the number of a name of a class, an attribute or a value; NOTHING where the verifier never
        gave it."""
        return self._number.get(word, NOTHING)

    def word(self, number: int) -> str:
        return str(self.words[number].as_py())

    def rows(self, target: Ints, images: Ints) -> Ints:
        """Returns the row of each image, checked for the class with the number `target`; NOTHING where it was not
        checked.

        `images`: numbers in `ids`.
        """
        if not len(self._keys):
            return np.full(len(images), NOTHING)
        keys = target * np.int64(len(self.ids)) + images
        i = np.maximum(np.searchsorted(self._keys, keys, side="right") - 1, 0)
        is_checked = (self._keys[i] == keys) & (images >= 0) & (target >= 0)
        return np.where(is_checked, self._order[i], NOTHING)

    def rows_of(self, cells: CellImages) -> Ints:
        """Returns the row of each image of the cells, checked for the class of its cell."""
        image = self.ids.numbers(cells.ids.ids)[cells.image]
        target = np.array([self.number(name.target_class) for name in cells.names], np.int64)[cells.cell]
        return self.rows(target, image)

    def accepts(self, rows: Ints, cell: CellName) -> Mask:
        """Returns for these rows whether the verifier saw a cell's class and value, or was not asked about them.

        An image without a verification is refused, and so is one where it gave no answer to a question.
        """
        value = self.values(cell.attribute, rows)
        has_question = self.asks(cell.attribute, rows)
        class_numbers = self.class_shown(rows)
        of_class = (class_numbers == NOTHING) | (class_numbers == self.number(cell.target_class))
        of_value = ~has_question | ((value == self.number(cell.bias_class)) & (value != NOTHING))
        accepted: Mask = (rows != NOTHING) & ~self._failed[rows] & of_class & of_value
        return accepted

    def class_shown(self, rows: Ints) -> Ints:
        """Returns the number of the class that the verifier saw; NOTHING where it named none."""
        classes: Ints = self._class[rows]
        return classes

    def has_attributes(self, rows: Ints) -> Mask:
        """Returns whether the verifier was asked about any attribute."""
        return np.asarray(self._lengths[rows] > 0)

    def attributes(self, rows: Ints) -> list[str]:
        """Returns the attributes that the verifier was asked about on these rows, sorted."""
        numbers: set[int] = set()
        for position in range(int(self._lengths[rows].max(initial=0))):
            longer = rows[self._lengths[rows] > position]
            numbers |= set(np.flatnonzero(np.bincount(self._names[self._starts[longer] + position])).tolist())
        return sorted(self.word(number) for number in numbers)

    def values(self, attribute: str, rows: Ints) -> Ints:
        """Returns the number of the value that the verifier saw of an attribute; NOTHING where it named none."""
        return self._values[self._positions(attribute, rows)]

    def asks(self, attribute: str, rows: Ints) -> Mask:
        """Returns whether the verifier was asked about the attribute."""
        has_question: Mask = self._positions(attribute, rows) != NOTHING
        return has_question

    def _positions(self, attribute: str, rows: Ints) -> Ints:
        """Returns the position of each row's value of an attribute in the list of all values; NOTHING where it has
        none."""
        name, positions = self.number(attribute), np.full(len(rows), NOTHING)
        remaining, position = np.arange(len(rows)), 0
        while True:
            remaining = remaining[self._lengths[rows[remaining]] > position]
            if not len(remaining):
                return positions
            answer_positions = self._starts[rows[remaining]] + position
            is_named = self._names[answer_positions] == name
            positions[remaining[is_named]] = answer_positions[is_named]
            remaining, position = remaining[~is_named], position + 1


# Why the counts of a cell cannot be trusted: what its images show, and what the verifier can distinguish.


LEAST_SHOWN = 0.5
"""The estimated share of a cell's images that must show its bias class for a verdict."""

LEAST_OF_CLASS = 0.5
"""The estimated share that must show the target class, where it is known how often the verifier is right on it."""

LEAST_SAID = 0.8
"""The same, where that is not known."""

LEAST_SKILL = 0.3
"""Youden's index (sensitivity + specificity − 1) that a verifier must have on a bias class and on the target class."""

Counts = NDArray[np.int64]


def doubt_of_class(target: str, skill: float, share_shown: float, least: float) -> list[str]:
    """Why it is in doubt that a cell's images show the target class.

    skill: the verifier's on the class, Youden's index. share_shown: estimated, of images that show it; least: the
    share that must.
    """
    reasons = []
    if skill < LEAST_SKILL:
        reasons.append(f"the verifier cannot tell a {target} from the other classes (Youden's index {skill:.2f})")
    if share_shown < least:
        reasons.append(f"only {share_shown:.0%} of the images show a {target}")
    return reasons


def doubt(row: Mapping[str, Any], class_skill: float, least_of_class: float = LEAST_OF_CLASS) -> list[str]:
    """Why the images of a cell cannot be trusted, whatever was counted on them; empty where they can."""
    reasons = doubt_of_class(row["target_class"], class_skill, row["class_shown"], least_of_class)
    if row["sensitivity"] + row["specificity"] - 1 < LEAST_SKILL:
        reasons.append(
            f"the verifier cannot tell {row['bias_class']!r} from the other values "
            f"(sensitivity {row['sensitivity']:.2f}, specificity {row['specificity']:.2f})"
        )
    if row["shown"] < LEAST_SHOWN:
        limits = f"{row['shown_low']:.0%} to {row['shown_high']:.0%}"
        reasons.append(f"only {row['shown']:.0%} ({limits}) of the images show {row['bias_class']!r}")
    return reasons


def explained_by_false_accepts(phi: float, without: float) -> str:
    """Why a finding is in doubt that is none without the images that show something else, as predicted.

    phi: as estimated; without: without these images.
    """
    return (
        f"{phi:+.2f} as estimated, {without:+.2f} without the images that the verifier falsely accepts, as predicted "
        "from similar images of the calibration"
    )


def not_excluded(phi: float, most: float, target: str, more_images: int | None) -> str:
    """Why a finding is in doubt which false accepts would explain that the calibration does not exclude.

    phi: as estimated; most: the largest share of a cell's images that may show something else; more_images: how many
    images would exclude it, None where their number is not known.
    """
    number = "More images" if more_images is None else f"About {more_images:,} more images"
    return (
        f"{phi:+.2f} as estimated, but up to {most:.0%} of a value's images may show no {target}, which would explain "
        f"it: the calibration holds too few images that show none and look like one. {number} that show no {target} "
        "and are as near to its captions would tell"
    )


def not_excluded_over_classes(phi: float) -> str:
    """As `not_excluded`, for φ over all classes."""
    return (
        f"{phi:+.2f} as estimated, but images that the verifier falsely accepts would explain it: the calibration "
        "holds too few images that show another class and look like these to exclude that"
    )


def explained_by_class(
    scores: Corrected, of_class: tuple[Counts, Counts], cell: int, target: str, thresholds: Thresholds
) -> list[str]:
    """Whether cells that differ in how many images show the class could explain what would be a finding.

    of_class: of every cell's images, how many were said to show the class, and how many were seen. cell: its position.
    """
    tau, alpha = thresholds
    low, high = stats.bias_score_interval(*of_class, 1 - alpha)
    most = max(abs(low[cell]), abs(high[cell]))
    test = stats.contrast_test(scores.accuracy, scores.effective, tau, 1 - alpha, scores.covariance)
    if not (test.p_value[cell] <= alpha and abs(test.phi[cell]) <= tau + most):
        return []
    return [
        f"it is not known how often the verifier is right on the class, and a difference of {most:.2f} in how many "
        f"images show a {target}, which is possible, would explain it"
    ]


Floats = NDArray[np.float64]


class VerifiedImages:
    """The verified images of a run. `verifications` and `calibration` are tables of those schemas.

    `distinct`: which images are the same picture; without it, none repeats another. Values of attributes without
    calibration rely on the verifier's own certainty.
    """

    def __init__(self, verifications: pa.Table, calibration: pa.Table, distinct: Distinct | None = None) -> None:
        self.verifier_answers = VerifierAnswers(verifications)
        self.distinct = distinct
        self._verifier = VerifierSkill(verifications, calibration)
        self._something_else = _shares_of_something_else(self.verifier_answers)
        self._pools: CellImages | None = None

    def drawn_from(self, pools: CellImages) -> VerifiedImages:
        """Returns the same, for cells whose images were drawn from those that the verifier accepted in `pools`.

        `pools` holds for each cell all images that were looked at. They tell what the verifier had to choose from, and
        so how often an accepted image shows something else; the classifier's answers on them do not count.
        """
        verified = copy(self)
        verified._pools = pools
        return verified

    def on(self, verifications: pa.Table) -> VerifiedImages:
        """Returns what the same verifier saw in other images, a table of the same schema."""
        verified = copy(self)
        verified.verifier_answers, verified.distinct, verified._pools = VerifierAnswers(verifications), None, None
        return verified

    def of(self, cells: CellImages) -> CellObservations:
        """Returns what the verifier saw in the images of these cells."""
        return CellObservations(self, cells, self._pools)

    def asks_class(self, target: str) -> bool:
        """Returns whether it named the class of any image that was drawn for the class."""
        return target in self._something_else

    def calibration_of(self, attribute: str, values: Sequence[str]) -> Floats:
        """Returns images known to show each of these values (rows), by the value that the verifier named."""
        return self._verifier.values(attribute, values)

    def calibration_of_class(self, target: str) -> Floats | None:
        """Returns images known to show the class and not to (rows), by whether the verifier said that they do."""
        return self._verifier.classes(target, self._something_else[target]) if self.asks_class(target) else None

    def basis(self, target: str, attribute: str, values: Sequence[str]) -> str:
        """Returns whether a group's scores rest on a calibration of everything asked, or on the verifier's word."""
        by_class = not self.asks_class(target) or self._verifier.classes_checked(target)
        return "calibrated" if by_class and self._verifier.values_checked(attribute, values) else "verifier"

    def counts_of_class(self, target: str) -> tuple[int, int, int]:
        """Returns how many of the images looked at for a class were said to show it, another class of the audit, and
        none of them."""
        named = self.verifier_answers.class_shown(
            np.flatnonzero(self.verifier_answers.target == self.verifier_answers.number(target))
        )
        shown, nothing = (int((named == self.verifier_answers.number(name)).sum()) for name in (target, OTHER))
        return shown, int((named != NOTHING).sum()) - shown - nothing, nothing

    def knows_something_else(self) -> bool:
        """Returns whether the calibration has images that show none of the audit's classes."""
        return self._verifier.something_else() > 0

    def answers_of_class(self, target: str) -> tuple[float, float]:
        """Returns how many of the calibration's images of a class were said to show it, and none of the audit's
        classes."""
        return self._verifier.answers_of_class(target)

    def class_is_assumed(self, target: str) -> bool:
        """Returns whether it named classes of images while only an assumption says how often it is right on that."""
        return self.asks_class(target) and not self._verifier.classes_known(target)

    def share_of_class(self, target: str, classes: Ints) -> float:
        """Returns the estimated share of images that show the target class (Rogan & Gladen), from the `classes` that
        the verifier saw in images; NaN where it named none."""
        named = classes[classes != NOTHING]
        if not len(named):
            return float("nan")
        share = int((named == self.verifier_answers.number(target)).sum()) / len(named)
        return float(stats.rogan_gladen(share, *self._verifier.class_rates(target)))

    def class_skill(self, target: str) -> float:
        """Returns Youden's index of the verifier on the target class; 1 where it was not calibrated on classes."""
        return sum(self._verifier.class_rates(target)) - 1

    def class_sensitivity(self, target: str) -> float:
        """Returns the share of images of the class that the verifier says to show it; 1 where that is not known."""
        return self._verifier.class_rates(target)[0]

    def error_of_sensitivity(self, target: str) -> float:
        """Returns the standard error of `class_sensitivity`; 0 where that is not known."""
        images = self._verifier.images_of_class(target)
        # Half an image of either answer: at exactly 1 the error would be 0.
        share = (self.class_sensitivity(target) * images + 0.5) / (images + 1)
        return math.sqrt(share * (1 - share) / images) if images else 0.0

    def least_of_class(self, target: str) -> float:
        """Returns the share of a cell's images that must show the target class for a verdict."""
        return LEAST_OF_CLASS if self._verifier.classes_checked(target) else LEAST_SAID


class CellObservations:
    """What the verifier saw in the images of `cells`; arrays have a value for each of its rows."""

    def __init__(self, verified: VerifiedImages, cells: CellImages, pools: CellImages | None = None) -> None:
        self.verified, self.cells = verified, cells
        self._verifier_answers = verified.verifier_answers
        self.row = verified.verifier_answers.rows_of(cells)
        self._pools = pools
        self._pool_row = self._pool_image = np.zeros(0, np.int64)
        if pools is not None:
            self._pool_row, self._pool_image = (
                verified.verifier_answers.rows_of(pools),
                cells.ids.numbers(pools.ids.ids),
            )
        self._answers: dict[GroupName, Ints] = {}
        self._left: dict[GroupName, tuple[Floats, int]] = {}

    def share_of_class(self, cell: int) -> float:
        """Returns the estimated share of a cell's images that show its target class."""
        classes_shown = self._verifier_answers.class_shown(self.row[self.cells.rows(slice(cell, cell + 1))])
        return self.verified.share_of_class(self.cells.names[cell].target_class, classes_shown)

    def shows_class(self, rows: Ints, target: str) -> Mask:
        """Returns whether the verifier named the target class on these rows, or no class at all."""
        classes_shown = self._verifier_answers.class_shown(rows)
        is_shown: Mask = (rows != NOTHING) & (
            (classes_shown == self._verifier_answers.number(target)) | (classes_shown == NOTHING)
        )
        return is_shown

    def answers(self, group: CellGroup) -> Ints:
        """Returns for every image of a group which of its values the verifier named, or, as the number after the last,
        that the image does not show the class.

        It is the same for every classifier, so it is kept.
        """
        if group.name not in self._answers:
            self._answers[group.name] = self._answered(self.row[self.cells.rows(group.cells)], group)
        return self._answers[group.name]

    def values(self, attribute: str, values: Sequence[str], rows: Ints) -> Ints:
        """Returns the position, among these values of an attribute, of the one that each row names; NOTHING for
        another."""
        position = np.full(len(self._verifier_answers.words) + 1, NOTHING)
        for i, value in enumerate(values):
            if (word := self._verifier_answers.number(value)) != NOTHING:
                position[word] = i
        return position[self._verifier_answers.values(attribute, rows)]

    def _answered(self, rows: Ints, group: CellGroup) -> Ints:
        answers = self.values(group.attribute, group.values, rows)
        if self.verified.asks_class(group.target_class):
            classes_shown = self._verifier_answers.class_shown(rows)
            shows_other = classes_shown != self._verifier_answers.number(group.target_class)
            answers[shows_other] = np.where(classes_shown[shows_other] == NOTHING, NOTHING, len(group.values))
        return answers

    def pool(self, name: CellName) -> tuple[Ints, Ints]:
        """Returns the images, as numbers of the pools, that were looked at for a cell and not drawn for it; and the
        rows of their verifications."""
        if self._pools is None or name not in self._pools.number:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        cell = self._pools.number[name]
        rows = np.arange(*self._pools.starts[cell : cell + 2])
        images = self._pools.image[rows]
        is_left = ~np.isin(self._pool_image[images], self.cells.of_cell(self.cells.number[name]))
        return images[is_left], self._pool_row[rows[is_left]]

    def drawn_number(self, looked_at: Ints) -> Ints:
        """Returns the numbers, in `cells`, of images of the pools; -1 for one that was drawn for no cell."""
        return self._pool_image[looked_at]

    def left_in_pools(self, group: CellGroup) -> tuple[Floats, int]:
        """Counts the images that were only looked at, by cell and by the verifier's answer, as in `answers`; and
        returns their number."""
        if group.name not in self._left:
            self._left[group.name] = self._counted_in_pools(group)
        return self._left[group.name]

    def _counted_in_pools(self, group: CellGroup) -> tuple[Floats, int]:
        width = len(group.values) + self.verified.asks_class(group.target_class)
        counts, images = np.zeros((len(group.values), width)), [np.zeros(0, np.int64)]
        for position, value in enumerate(group.values):
            looked_at, rows = self.pool(CellName(*group.name, value))
            answers = self._answered(rows, group)
            counts[position] = np.bincount(answers[answers != NOTHING], minlength=width)
            images.append(looked_at[answers != NOTHING])
        return counts, distinct_count(np.concatenate(images))


def _shares_of_something_else(verifier_answers: VerifierAnswers) -> dict[str, float | None]:
    """Returns, by target class that the verifier was asked about, the share of images showing none of the audit's
    classes among those said not to show the class; None where all were said to show it."""
    classes_shown = verifier_answers.class_shown(np.arange(len(verifier_answers.target)))
    wrong = (classes_shown != NOTHING) & (classes_shown != verifier_answers.target)
    size = len(verifier_answers.words)
    answered, showing_other, all_wrong = (
        np.bincount(verifier_answers.target[rows], minlength=size)
        for rows in (classes_shown != NOTHING, wrong & (classes_shown == verifier_answers.number(OTHER)), wrong)
    )
    return {
        verifier_answers.word(target): int(showing_other[target]) / int(all_wrong[target])
        if all_wrong[target]
        else None
        for target in np.flatnonzero(answered).tolist()
    }
