"""One frame for any metric over groups of images, in fairlearn's vocabulary, with limits; and tests by permutation.

`classification` has the metrics. It knows arrays; nothing of audits, images or tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.stats.classification import METRICS, ClassMetric, Mask, Outcomes
from c2b_ray.stats.intervals import wilson
from c2b_ray.stats.roots import checked_levels, deviations
from c2b_ray.stats.scores import Floats, Ints, mean_of_others

Against = Literal["between_groups", "to_overall"]
RESAMPLES = 1000
MOST_PERMUTATIONS = 1999
ENOUGH = 10
"""Permutations at least as extreme as the data, after which no more are drawn: the p-value is then large."""


@dataclass(frozen=True)
class MetricFrame:
    """A metric of all images and of each group, as `fairlearn.metrics.MetricFrame` of one metric.

    `groups`: names, sorted; `by_group`, `low`, `high`: float64 (groups,), NaN where the metric is not defined. `count`:
    images. `limits`: how low and high came about, in words. `overall`: (value, low, high).
    """

    metric: str
    limits: str
    groups: tuple[Hashable, ...]
    count: Ints
    by_group: Floats
    low: Floats
    high: Floats
    overall: tuple[float, float, float]

    def group_min(self) -> float:
        """Returns the smallest value of a group; NaN where no group has one."""
        return float(np.nanmin(self.by_group)) if np.isfinite(self.by_group).any() else float("nan")

    def group_max(self) -> float:
        """Returns the largest value of a group; NaN where no group has one."""
        return float(np.nanmax(self.by_group)) if np.isfinite(self.by_group).any() else float("nan")

    def difference(self, method: Against = "between_groups") -> float:
        """Returns the largest difference between two groups, or, `to_overall`, between a group and all images; 0 or
        more."""
        if method == "between_groups":
            return self.group_max() - self.group_min()
        distances = np.abs(self.by_group - self.overall[0])
        return float(np.nanmax(distances)) if np.isfinite(distances).any() else float("nan")

    def ratio(self, method: Against = "between_groups") -> float:
        """Returns the smallest ratio of two groups, or of a group and all images, the smaller one above; in [0, 1] for
        a metric of 0 or more."""
        if method == "between_groups":
            largest = self.group_max()
            return self.group_min() / largest if largest else float("nan")
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = self.by_group / self.overall[0]
            smaller = np.where(ratios > 1, 1 / ratios, ratios)
        return float(np.nanmin(smaller)) if np.isfinite(smaller).any() else float("nan")

    def scores(self) -> Floats:
        """Returns φ of every group: its value minus the mean of the other groups' (Classifier-to-Bias, Eq. 1, for any
        metric); NaN as in `bias_scores`."""
        return _scores(self.by_group)


def metric_frame(
    metric: str | ClassMetric,
    truth: ArrayLike,
    answers: ArrayLike,
    groups: Sequence[Hashable],
    probabilities: ArrayLike | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> MetricFrame:
    """Computes a metric of one class against the rest, of all images and of each group.

    Limits of shares are Wilson's (1927); of other metrics Wilson's for the number of answers that would tell as much
    (`classification.Estimated`); of those without a known variance percentiles of a bootstrap within class and group
    (Efron & Tibshirani 1993, chapter 13), of calibration with its bias (`known_bias`) besides.

    Args: metric: a name of `METRICS`, or a `ClassMetric`; truth, answers, probabilities: as in `classification`;
    groups: (images,) names that can be sorted, with no None; confidence: in (0, 1); seed: of the bootstrap.
    Raises: ValueError for another name, for shapes or values, for a confidence, and for a metric that needs
    probabilities without them.
    """
    checked_levels(confidence=confidence)
    if isinstance(metric, str):
        if metric not in METRICS:
            raise ValueError(
                f"there is no metric {metric!r}; it is one of {', '.join(METRICS)}, or ClassMetric.from_function"
            )
        metric = METRICS[metric]
    outcomes = Outcomes.of(truth, answers, probabilities)
    if len(groups) != len(outcomes):
        raise ValueError(f"groups has {len(groups)} rows, truth {len(outcomes)}")
    if metric.needs_probabilities and probabilities is None:
        raise ValueError(f"the metric {metric.name} needs probabilities")
    names = tuple(sorted(set(groups)))  # type: ignore[type-var]  # as the docstring asks
    position_of_name = {name: number for number, name in enumerate(names)}
    codes = np.array([position_of_name[name] for name in groups], np.int64)
    by_group, low, high = _with_limits(metric, outcomes, codes, len(names), confidence, seed)
    overall = _with_limits(metric, outcomes, np.zeros(len(codes), np.int64), 1, confidence, seed)
    value, low_overall, high_overall = (float(values[0]) for values in overall)
    count = np.bincount(codes, minlength=len(names))
    return MetricFrame(
        metric.name, metric.limits, names, count, by_group, low, high, (value, low_overall, high_overall)
    )


def label_frames(
    metric: str | ClassMetric,
    truth: ArrayLike,
    probabilities: ArrayLike,
    groups: Sequence[Hashable],
    labels: Sequence[str],
    thresholds: float | Sequence[float] = 0.5,
    confidence: float = 0.95,
) -> dict[str, MetricFrame]:
    """Computes a `metric_frame` of each label, where an image may have several: every label is a task of its own.

    An image is answered with a label whose probability is its threshold or more; AUROC and calibration use no
    threshold.

    Args: truth: bool (images, labels); probabilities: (images, labels), in [0, 1], as sigmoids give them; groups,
    metric, confidence: as for `metric_frame`; labels: names of the columns; thresholds: one, or one a label.
    Raises: ValueError as `metric_frame` does, and for columns or thresholds that do not fit the labels.
    """
    y, p = np.asarray(truth), np.asarray(probabilities, np.float64)
    if y.ndim != 2 or y.shape != p.shape or y.shape[1] != len(labels):
        raise ValueError(f"need (images, {len(labels)}) of truth and probabilities; got {y.shape} and {p.shape}")
    cuts = np.asarray(thresholds, np.float64)
    if cuts.shape not in ((), (len(labels),)):
        raise ValueError(f"thresholds has shape {cuts.shape}; give one, or one for each of {len(labels)} labels")
    answers = p >= cuts
    return {
        name: metric_frame(metric, y[:, column], answers[:, column], groups, p[:, column], confidence)
        for column, name in enumerate(labels)
    }


def _with_limits(
    metric: ClassMetric, outcomes: Outcomes, groups: Ints, number: int, confidence: float, seed: int
) -> tuple[Floats, Floats, Floats]:
    estimate = metric.estimate(outcomes, groups, number)
    if metric.has_limits:
        z = np.float64(deviations(confidence))
        return estimate.value, *wilson(estimate.value * estimate.effective, estimate.effective, z)
    draws = resampled(metric, outcomes, groups, number, seed)
    low, high = percentiles(draws, confidence)
    return estimate.value, low, high + known_bias(metric, outcomes, groups, number)


def percentiles(draws: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Returns the ends of the middle of the draws, over the first axis; NaN where a draw is."""
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low, high


def resampled(
    metric: ClassMetric, outcomes: Outcomes, groups: Ints, number: int, seed: int, draws: int = RESAMPLES
) -> Floats:
    """Returns the metric of each group on images drawn again with replacement, as many of each group and class as there
    are; float64 (draws, groups).

    To the images of each class in a group one more is added that is drawn, for each draw, from those of the class in
    all groups: five images that are all right are the same in every draw, and percentiles of these a point, which held
    the truth in .30 of samples. Chance adds to a calibration error in the images, and once more in images drawn of
    these. Where a metric is known to be biased, draws are moved to have the observed value in the middle.
    """
    random = np.random.default_rng(seed)
    strata = groups * 2 + outcomes.truth
    order = np.argsort(strata, kind="stable")
    sizes = np.bincount(strata, minlength=2 * number)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    widths = np.repeat(sizes, sizes)
    stratum, group_of_row = strata[order], groups[order]
    of_class = [np.flatnonzero(outcomes.truth == is_class) for is_class in (False, True)]
    values = np.empty((draws, number))
    for draw in range(draws):
        position = (random.random(len(order)) * (widths + 1)).astype(np.int64)
        more = np.zeros(2 * number, np.int64)
        for is_class, images in enumerate(of_class):
            if len(images):
                more[is_class::2] = images[random.integers(0, len(images), number)]
        within_stratum = order[starts + np.minimum(position, widths - 1)]
        rows = np.where(position < widths, within_stratum, more[stratum])
        values[draw] = metric.estimate(outcomes.where(rows), group_of_row, number).value
    if metric.bias is not None:
        values += metric.estimate(outcomes, groups, number).value - values.mean(axis=0)
    return values


def known_bias(metric: ClassMetric, outcomes: Outcomes, groups: Ints, number: int) -> Floats:
    """Returns by how much the value of each group may be too low on average: as far as 1 at most, 0 where that is not
    known."""
    if metric.bias is None:
        return np.zeros(number)
    value = metric.estimate(outcomes, groups, number).value
    return np.minimum(metric.bias(outcomes, groups, number), 1 - value)


@dataclass(frozen=True)
class Permuted:
    """What φ would be if the answers to each class did not depend on the group.

    `p_value`: float64 (groups,), NaN where it was not asked for; the smallest possible one is `smallest`. `mean`: of
    the permuted φ, which is not 0 where classes are mixed differently in the groups.
    """

    p_value: Floats
    mean: Floats
    smallest: float


def permuted_scores(
    metric: ClassMetric,
    outcomes: Outcomes,
    groups: ArrayLike,
    number: int,
    strata: ArrayLike,
    wanted: ArrayLike,
    seed: int,
    most: int = MOST_PERMUTATIONS,
) -> Permuted:
    """Tests φ of groups by permuting the groups among the images of each class.

    p = 2 * (1 + permutations whose φ is at least as far the same way) / (1 + permutations), at most 1

    Given what an image shows, whether its answer depends on the group: valid for any metric, and exact (Phipson & Smyth
    2010, Eq. 2; doubled, since φ tells the way). Classes that are more frequent in one group than in another move a
    precision without any such dependence; the permutations hold these frequencies. Once `ENOUGH` permutations are as
    far out, none is drawn for that group any more, and p = 2 * ENOUGH / permutations (Besag & Clifford 1991).

    Args: groups: int (images,), in [0, number); strata: int (images,), the class of each image; wanted: bool (groups,),
    the groups to test; most: the most permutations.
    """
    group_of_image, stratum = np.asarray(groups, np.int64), np.asarray(strata, np.int64)
    tested: Mask = np.asarray(wanted, bool)
    observed = _scores(metric.estimate(outcomes, group_of_image, number).value)
    tested = tested & np.isfinite(observed)
    p, mean, smallest = np.full(number, np.nan), np.full(number, np.nan), min(1.0, 2 / (most + 1))
    if not tested.any():
        return Permuted(p, mean, smallest)
    random, open_ = np.random.default_rng(seed), tested.copy()
    order = np.argsort(stratum, kind="stable")
    sizes = np.bincount(stratum)
    sums, extreme, n_drawn = np.zeros(number), np.zeros(number), 0
    shuffled = group_of_image[order]
    by_stratum = outcomes.where(order)
    for n_drawn in range(1, most + 1):
        # One sort puts the images of each class into random order, and leaves the classes where they are.
        permutation = np.lexsort((random.random(len(order)), np.repeat(np.arange(len(sizes)), sizes)))
        score = _scores(metric.estimate(by_stratum, shuffled[permutation], number).value)
        sums += np.nan_to_num(score)
        # A φ that is not defined in a permutation counts as far out: it must not help a finding.
        is_extreme = np.isnan(score) | (np.sign(observed) * (score - observed) >= -_SAME)
        extreme += is_extreme & open_
        done = open_ & (extreme >= ENOUGH)
        p[done] = np.minimum(1.0, 2 * extreme[done] / n_drawn)
        open_ &= ~done
        if not open_.any() and n_drawn >= _FOR_MEAN:
            break
    p[open_] = np.minimum(1.0, 2 * (1 + extreme[open_]) / (1 + n_drawn))
    mean[tested] = sums[tested] / n_drawn
    return Permuted(p, mean, smallest)


_SAME = 1e-12
"""Two φ that differ by less are one, computed in another order."""
_FOR_MEAN = 50
"""The least permutations for the mean of φ."""


def _scores(values: Floats) -> Floats:
    is_defined = np.isfinite(values)
    scores: Floats = np.where(is_defined, values, np.nan) - mean_of_others(values, is_defined)
    return scores


Function = Callable[[Mask, Mask, Floats], float]
"""A metric of one's own, of truth, answers and probabilities."""
