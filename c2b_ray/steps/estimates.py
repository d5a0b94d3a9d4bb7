"""answers → estimates: how often a classifier is right on the images of each value, and as how many images that counts.

It counts right answers, caption by caption, and joins what a verifier says that the images show. What follows from the
estimates is `judge`'s; the formulas are `metrics`'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.metrics.intervals import wilson
from c2b_ray.metrics.levels import deviations
from c2b_ray.steps.answers import Answers
from c2b_ray.steps.cells import Group, Images, Origins
from c2b_ray.steps.confounding import Confounding
from c2b_ray.steps.judge import CAPTIONS, LABELS, Estimate, Floats, Levels
from c2b_ray.steps.verified import Verified, columns

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """What a classifier answered on the images of one group; arrays have shape (values,).

    `by_caption`: of each value, (right, answered) of each of its captions that has an answered image; labelled images
    are one caption's.
    """

    group: Group
    images: Images
    total: Ints
    correct: Ints
    by_caption: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def accuracy(self) -> Floats:
        rate: Floats = np.divide(self.correct, self.total, out=np.full(len(self.total), np.nan), where=self.total > 0)
        return rate


@dataclass(frozen=True)
class Looked:
    """What a verifier saw in the images, and what that says of their other attributes."""

    verified: Verified
    confounding: Confounding


def counted(group: Group, images: Images, answers: Answers, source: Origins) -> Counts:
    """The answers on the images of one group, counted by value and caption."""
    taken = answers.of(group[0])
    by_caption = []
    for value, of_value in images.items():
        answered = {image for image in of_value if taken.get(image) is not None}
        samples = [sample for _, sample in source.of(group, value, answered)] if source.known else [answered]
        by_caption.append(
            tuple((sum(taken[image] == group[0] for image in sample), len(sample)) for sample in samples if sample)
        )
    correct, total = ([sum(pair[i] for pair in of_value) for of_value in by_caption] for i in (0, 1))
    return Counts(group, images, np.array(total, np.int64), np.array(correct, np.int64), tuple(by_caption))


def estimated(
    classifier: str,
    counts: Sequence[Counts],
    shared: Mapping[Group, Floats],
    answers: Answers,
    looked: Looked | None,
    captioned: bool,
    levels: Levels,
) -> list[Estimate]:
    """One estimate for each group. `shared`: the share of each cell's images that other values hold. `captioned`:
    whether captions drew the images."""
    estimates = [
        Estimate(
            classifier=classifier,
            target_class=count.group[0],
            attribute=count.group[1],
            values=tuple(count.images),
            accuracy=count.accuracy,
            effective=count.total.astype(np.float64),
            basis=CAPTIONS if captioned else LABELS,
            doubts=[None] * len(count.images),
            shared=shared[count.group],
        )
        for count in counts
    ]
    if looked is not None:
        _correct(estimates, counts, answers, looked, levels)
    if captioned:
        _spread_over_captions(estimates, counts, 1 - levels.alpha)
    z = np.float64(deviations(1 - levels.alpha))
    for estimate in estimates:
        low, high = wilson(estimate.accuracy * estimate.effective, estimate.effective, z)
        estimate.columns |= {"accuracy": estimate.accuracy, "accuracy_low": low, "accuracy_high": high}
    return estimates


def _correct(
    estimates: Sequence[Estimate], counts: Sequence[Counts], answers: Answers, looked: Looked, levels: Levels
) -> None:
    """Puts what the images show in place of what they were drawn for; says which cells cannot be trusted."""
    verified, both = looked.verified, (levels.tau, levels.alpha)
    corrections, rows = {}, []
    for estimate, count in zip(estimates, counts, strict=True):
        group, taken = count.group, answers.of(count.group[0])
        correction = verified.correct(group, count.images, taken, both)
        if correction is not None:
            corrections[group] = correction
            estimate.basis = verified.basis(group, list(count.images))
            scores = correction.scores
            estimate.accuracy, estimate.effective = scores.accuracy, scores.effective
            estimate.covariance = scores.covariance
            estimate.columns |= columns(correction)
            estimate.adjust = partial(looked.confounding.adjust, group, taken, levels=both)
        else:
            shown = [verified.of_class(group[0], images) for images in count.images.values()]
            estimate.columns["class_shown"] = shown
        for i, value in enumerate(count.images):
            columns_of_value: dict[str, Any] = {name: values[i] for name, values in estimate.columns.items()}
            rows.append(columns_of_value | {"target_class": group[0], "attribute": group[1], "bias_class": value})
    reasons = iter(verified.doubts(rows, corrections, both))
    for estimate in estimates:
        estimate.doubts = ["; ".join(next(reasons)) or None for _ in estimate.values]


def _spread_over_captions(estimates: Sequence[Estimate], counts: Sequence[Counts], confidence: float) -> None:
    """Takes images of one caption for less than images of as many captions, by how much captions differ over all cells
    of the classifier."""
    cells = [of_value for count in counts for of_value in count.by_caption]
    width = max(map(len, cells), default=0)
    right, total = np.zeros((2, len(cells), width), np.int64)
    for row, of_value in enumerate(cells):
        for column, pair in enumerate(of_value):
            right[row, column], total[row, column] = pair
    worth = metrics.effective_images(right, total, confidence)
    images, start = total.sum(axis=1), 0
    for estimate, count in zip(estimates, counts, strict=True):
        here = slice(start, start + len(count.images))
        start = here.stop
        added = _noise(count.accuracy, images[here]) * (_inverse(worth.effective[here]) - _inverse(images[here]))
        if estimate.covariance is not None:
            # A corrected accuracy changes by more than the counted one, of which other images are a part.
            added = added * _inverse(_share_shown(estimate)) ** 2
            estimate.covariance = estimate.covariance + np.diag(added)
        more = added * _inverse(_noise(estimate.accuracy, estimate.effective))
        estimate.effective = _inverse(_inverse(estimate.effective) + more)
        estimate.columns["captions"] = [len(of_value) for of_value in count.by_caption]
        estimate.columns["caption_spread"] = worth.spread[here]


def _noise(accuracy: Floats, images: Floats | Ints) -> Floats:
    """s(1 - s), the variance of one answer, s the accuracy with half a right and half a wrong answer more."""
    smooth: Floats = (np.nan_to_num(accuracy) * images + 0.5) / (images + 1)
    return smooth * (1 - smooth)


def _share_shown(estimate: Estimate) -> Floats:
    """Of each cell's images, the share that shows its class and value."""
    of_class = np.asarray(estimate.columns["class_shown"], np.float64)
    share: Floats = np.nan_to_num(estimate.columns["shown"]) * np.where(np.isnan(of_class), 1.0, of_class)
    return share


def _inverse(values: Floats | Ints) -> Floats:
    """1/x, 0 for 0."""
    numbers = np.asarray(values, np.float64)
    inverse: Floats = np.divide(1.0, numbers, out=np.zeros(numbers.shape), where=numbers > 0)
    return inverse
