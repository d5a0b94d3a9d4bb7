"""What is known about the images of every cell from verifications, and how far the verifier is trusted.

It joins the verifier's answers (`said`) with how often it is right (`verifier`); `correction` applies that to a
classifier's scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verifier import VerifierSkill
from c2b_ray.stats.noisy_labels import Corrected
from c2b_ray.steps.cells import CellGroup, CellImages, CellName, GroupName
from c2b_ray.steps.draw import ImageIds, Ints, Mask, codes, distinct_count, vocabulary
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.observe import OTHER

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
        self.said = VerifierAnswers(verifications)
        self.distinct = distinct
        self._verifier = VerifierSkill(verifications, calibration)
        self._something_else = _shares_of_something_else(self.said)
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
        verified.said, verified.distinct, verified._pools = VerifierAnswers(verifications), None, None
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
        named = self.said.class_shown(np.flatnonzero(self.said.target == self.said.number(target)))
        shown, nothing = (int((named == self.said.number(name)).sum()) for name in (target, OTHER))
        return shown, int((named != NOTHING).sum()) - shown - nothing, nothing

    def knows_something_else(self) -> bool:
        """Returns whether the calibration has images that show none of the audit's classes."""
        return self._verifier.something_else() > 0

    def class_is_assumed(self, target: str) -> bool:
        """Returns whether it named classes of images while only an assumption says how often it is right on that."""
        return self.asks_class(target) and not self._verifier.classes_known(target)

    def share_of_class(self, target: str, classes: Ints) -> float:
        """Returns the estimated share of images that show the target class (Rogan & Gladen), from the `classes` that
        the verifier saw in images; NaN where it named none."""
        named = classes[classes != NOTHING]
        if not len(named):
            return float("nan")
        share = int((named == self.said.number(target)).sum()) / len(named)
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
        self._said = verified.said
        self.row = verified.said.rows_of(cells)
        self._pools = pools
        self._pool_row = self._pool_image = np.zeros(0, np.int64)
        if pools is not None:
            self._pool_row, self._pool_image = verified.said.rows_of(pools), cells.ids.numbers(pools.ids.ids)
        self._answers: dict[GroupName, Ints] = {}
        self._left: dict[GroupName, tuple[Floats, int]] = {}

    def share_of_class(self, cell: int) -> float:
        """Returns the estimated share of a cell's images that show its target class."""
        classes_shown = self._said.class_shown(self.row[self.cells.rows(slice(cell, cell + 1))])
        return self.verified.share_of_class(self.cells.names[cell].target_class, classes_shown)

    def shows_class(self, rows: Ints, target: str) -> Mask:
        """Returns whether the verifier named the target class on these rows, or no class at all."""
        classes_shown = self._said.class_shown(rows)
        is_shown: Mask = (rows != NOTHING) & ((classes_shown == self._said.number(target)) | (classes_shown == NOTHING))
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
        position = np.full(len(self._said.words) + 1, NOTHING)
        for i, value in enumerate(values):
            if (word := self._said.number(value)) != NOTHING:
                position[word] = i
        return position[self._said.values(attribute, rows)]

    def _answered(self, rows: Ints, group: CellGroup) -> Ints:
        answers = self.values(group.attribute, group.values, rows)
        if self.verified.asks_class(group.target_class):
            classes_shown = self._said.class_shown(rows)
            shows_other = classes_shown != self._said.number(group.target_class)
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
