"""Metrics of one class's answers: how well a classifier tells the images of the class from all others.

Every function sees one class against the rest:

    truth           bool (images,)      the image shows the class
    answers         bool (images,)      the classifier answered with the class
    probabilities   float64 (images,)   the probability that it gave the class, in [0, 1]

With many labels at once, each label is such a class of its own. A value that is not defined (no image of the class, no
answer with it) is NaN, never 0. `metric_frame` compares groups of images by any of these, with limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.intervals import wilson
from c2b_ray.stats.roots import deviations

Mask = NDArray[np.bool_]
BINS = 15
"""Bins of probabilities of equal width, as in Guo et al. 2017."""

Seen = Literal["class", "all"]
"""The images that a metric looks at: those of the class, or those of all classes."""


@dataclass(frozen=True)
class Outcomes:
    """What a classifier said about images, one class against the rest (see the module); the arrays have one length."""

    truth: Mask
    answers: Mask
    probabilities: Floats

    @classmethod
    def of(cls, truth: ArrayLike, answers: ArrayLike, probabilities: ArrayLike | None = None) -> Outcomes:
        """Checks the arrays. Without `probabilities` they are NaN.

        Raises: ValueError for arrays of other lengths or dimensions, for truth or answers other than 0 and 1, and for a
        probability outside [0, 1], with the row.
        """
        y, a = np.asarray(truth), np.asarray(answers)
        p = np.full(y.shape, np.nan) if probabilities is None else np.asarray(probabilities, np.float64)
        if y.ndim != 1 or not y.shape == a.shape == p.shape:
            raise ValueError(f"need arrays of one shape (images,); got {y.shape}, {a.shape} and {p.shape}")
        for name, values in (("truth", y), ("answers", a)):
            for row in np.flatnonzero((values != 0) & (values != 1)):
                raise ValueError(f"{name}[{row}] = {values[row]}: give True (the class) or False (another one)")
        for row in np.flatnonzero((p < 0) | (p > 1)):
            raise ValueError(f"probabilities[{row}] = {p[row]} lies outside [0, 1]")
        return cls(y.astype(bool), a.astype(bool), p)

    def __len__(self) -> int:
        return len(self.truth)

    def where(self, rows: Mask | Ints) -> Outcomes:
        """Returns the same outcomes of some rows."""
        return Outcomes(self.truth[rows], self.answers[rows], self.probabilities[rows])

    def counts(self, groups: Ints, number: int) -> tuple[Floats, Floats, Floats]:
        """Returns true positives, false positives and false negatives of each of `number` groups, float64 (groups,)."""
        rows = (self.truth & self.answers, ~self.truth & self.answers, self.truth & ~self.answers)
        tp, fp, fn = (np.bincount(groups[mask], minlength=number).astype(np.float64) for mask in rows)
        return tp, fp, fn


@dataclass(frozen=True)
class Estimated:
    """A metric's value of each group of images, float64 (groups,), NaN where it is not defined.

    `effective`: the number of independent right-or-wrong answers that would tell as much about a share of this size,
    value * (1 - value) / variance; 0 where the value is not defined. Limits are then Wilson's, and differences of
    groups are tested as those of shares are (`contrasts`).
    """

    value: Floats
    effective: Floats


@dataclass(frozen=True)
class ClassMetric:
    """A metric of one class against the rest.

    `estimate`: its values of groups: (outcomes, groups, number of groups) → `Estimated`. `seen`: the images that it
    looks at. `needs_probabilities`: whether answers alone do not suffice. `limits`: how its limits come about, in
    words. `has_limits`: False where its value has no known variance: limits are then bootstrapped, differences tested
    by permutation alone, and none is said to be small. `in_words`: what it is, after "a", for people. `bias`: of each
    group, by how much its expected value lies below the true one at most, as of numbers that chance makes worse; None
    where that is not known.
    """

    name: str
    in_words: str
    estimate: Callable[[Outcomes, Ints, int], Estimated]
    seen: Seen
    limits: str
    needs_probabilities: bool = False
    has_limits: bool = True
    bias: Callable[[Outcomes, Ints, int], Floats] | None = None

    def value(self, outcomes: Outcomes) -> float:
        """Returns the metric of all images as one group."""
        return float(self.estimate(outcomes, np.zeros(len(outcomes), np.int64), 1).value[0])

    @staticmethod
    def from_function(name: str, function: Callable[[Mask, Mask, Floats], float]) -> ClassMetric:
        """Returns a metric of one's own: `function(truth, answers, probabilities) -> float`, as scikit-learn's metrics
        of two classes have it, asked about images of all classes.

        A group without an image of the class, or without another one, is NaN: most such functions are not defined
        there. Raises, when it is asked: ValueError where the function returns no finite number.
        """

        def estimate(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
            values = np.full(number, np.nan)
            for group in range(number):
                subset = outcomes.where(groups == group)
                if subset.truth.any() and not subset.truth.all():
                    values[group] = float(function(subset.truth, subset.answers, subset.probabilities))
                    if not np.isfinite(values[group]):
                        raise ValueError(f"the metric {name!r} gives {values[group]} on {len(subset)} images")
            return Estimated(values, _held(values, np.bincount(groups, minlength=number).astype(np.float64)))

        return ClassMetric(
            name, name, estimate, "all", "percentile bootstrap within each class", True, has_limits=False
        )


def recall(truth: ArrayLike, answers: ArrayLike) -> float:
    """Computes the share of the class's images that are answered with it: TP / (TP + FN), in [0, 1].

    Within a cell of an audit, whose images are all of one class, it is the accuracy. 0: none is recognised. NaN without
    an image of the class. Raises: ValueError as `Outcomes.of` does.
    """
    return METRICS["recall"].value(Outcomes.of(truth, answers))


def precision(truth: ArrayLike, answers: ArrayLike) -> float:
    """Computes the share of the answers with the class that are right: TP / (TP + FP), in [0, 1].

    It depends on how frequent the class is among the images. 0: no such answer is right. NaN without such an answer.
    Raises: ValueError as `Outcomes.of` does.
    """
    return METRICS["precision"].value(Outcomes.of(truth, answers))


def f1_score(truth: ArrayLike, answers: ArrayLike) -> float:
    """Computes the harmonic mean of precision and recall: 2 TP / (2 TP + FP + FN), in [0, 1].

    van Rijsbergen 1979, chapter 7. It depends on how frequent the class is. 0: no image of the class is answered with
    it. NaN without an image of the class and without an answer with it. Raises: ValueError as `Outcomes.of` does.
    """
    return METRICS["f1"].value(Outcomes.of(truth, answers))


def balanced_accuracy(truth: ArrayLike, answers: ArrayLike) -> float:
    """Computes the mean of two shares: of the class's images that are answered with it, and of the others that are not.

    (TP / (TP + FN) + TN / (TN + FP)) / 2, in [0, 1]. Brodersen et al. 2010. It does not depend on how frequent the
    class is. 0.5: no better than one answer to all; NaN without an image of the class or of another one. Raises:
    ValueError as `Outcomes.of` does.
    """
    return METRICS["balanced_accuracy"].value(Outcomes.of(truth, answers))


def top_k_accuracy(truth: ArrayLike, probabilities: ArrayLike, k: int) -> float:
    """Computes the share of images whose class is among the k that were given the largest probabilities.

    Args: truth: int (images,), the position of each image's class; probabilities, or logits: (images, classes); k: 1 or
    more. A tie at the last rank counts as right: no order of equal numbers is the classifier's own.
    Returns: float in [0, 1]; NaN without images, or where a probability is.
    Raises: ValueError for shapes, for a class that has no column, or for k.
    """
    y, p = np.asarray(truth, np.int64), np.asarray(probabilities, np.float64)
    if y.ndim != 1 or p.ndim != 2 or len(y) != len(p):
        raise ValueError(f"need (images,) and (images, classes); got {y.shape} and {p.shape}")
    if k < 1:
        raise ValueError(f"k = {k}; need 1 or more")
    for row in np.flatnonzero((y < 0) | (y >= p.shape[1])):
        raise ValueError(f"truth[{row}] = {y[row]}: there are {p.shape[1]} classes")
    if not len(y) or np.isnan(p).any():
        return float("nan")
    n_above = (p > p[np.arange(len(y)), y][:, None]).sum(axis=1)
    return float((n_above < k).mean())


def calibration_error(truth: ArrayLike, probabilities: ArrayLike, bins: int = BINS) -> float:
    """Computes the expected calibration error: how far probabilities lie from shares, on average over the images.

    ECE = sum over b of |B_b| / n * |mean of truth in B_b - mean of probabilities in B_b|

    over bins B_b = ((b-1)/bins, b/bins] of equal width; a probability of 0 lies in the first. Naeini et al. 2015,
    section "Calibration measures"; Guo et al. 2017, Eq. 3. With a class's truth and probability it is that class's
    (Nixon et al. 2019, "static"); with right answers and the answers' confidence it is the usual one.

    It is biased upwards, the more the fewer images: values of groups of different sizes are not comparable as they
    stand. The limits of the metric `calibration` allow for that.

    Args: truth: bool (images,); probabilities: (images,), in [0, 1]; bins: 1 or more.
    Returns: float in [0, 1]. 0: in each bin the share is the mean probability. NaN without images, or where a
    probability is.
    Raises: ValueError as `Outcomes.of` does, and for bins.
    """
    if bins < 1:
        raise ValueError(f"bins = {bins}; need 1 or more")
    return _calibration_error(Outcomes.of(truth, truth, probabilities), bins)


def _calibration_error(outcomes: Outcomes, bins: int = BINS) -> float:
    p = outcomes.probabilities
    if not len(p) or np.isnan(p).any():
        return float("nan")
    gap = np.bincount(_bins(p, bins), outcomes.truth - p, minlength=bins)
    return float(np.abs(gap).sum() / len(p))


def area_under_roc(truth: ArrayLike, probabilities: ArrayLike) -> float:
    """Computes the area under the receiver operating characteristic: the probability that an image of the class is
    given a larger probability than one of another class, ties counting half.

    A = (R - m (m + 1) / 2) / (m n),   R the sum of the ranks of the m images of the class among all m + n

    Hanley & McNeil 1982; Mann & Whitney 1947. It does not depend on how frequent the class is.

    Args: truth: bool (images,); probabilities: (images,), in [0, 1].
    Returns: float in [0, 1]. 0.5: no better than chance; 0: always the wrong way round. NaN without an image of the
    class or of another one.
    Raises: ValueError as `Outcomes.of` does.
    """
    outcomes = Outcomes.of(truth, truth, probabilities)
    return _area(outcomes)[0]


def area_under_roc_variance(truth: ArrayLike, probabilities: ArrayLike) -> float:
    """Computes the variance of `area_under_roc`.

    S10 / m + S01 / n, the sample variances of the placements of the class's images among the others, and of the others
    among these. DeLong et al. 1988, Eq. 5; by ranks as in Sun & Xu 2014, Algorithm 2.

    Args: as for `area_under_roc`.
    Returns: float, 0 or more. 0 where the classes are apart, whatever the number of images: not that nothing is
    unknown. NaN with fewer than two images of the class, or of others.
    Raises: ValueError as `Outcomes.of` does.
    """
    outcomes = Outcomes.of(truth, truth, probabilities)
    return _area(outcomes)[1]


def _area(outcomes: Outcomes) -> tuple[float, float]:
    p, y = outcomes.probabilities, outcomes.truth
    m, n = int(y.sum()), int((~y).sum())
    if not m or not n or np.isnan(p).any():
        return float("nan"), float("nan")
    ranks = scipy.stats.rankdata(p)
    placements = (ranks[y] - scipy.stats.rankdata(p[y])) / n
    placements_of_others = 1 - (ranks[~y] - scipy.stats.rankdata(p[~y])) / m
    area = float(placements.mean())
    if min(m, n) < 2:
        return area, float("nan")
    return area, float(placements.var(ddof=1) / m + placements_of_others.var(ddof=1) / n)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    ratio: Floats = np.divide(numerator, denominator, out=np.full(denominator.shape, np.nan), where=denominator > 0)
    return ratio


def _held(values: Floats, effective: Floats) -> Floats:
    result: Floats = np.where(np.isnan(values), 0.0, effective)
    return result


def _recalls(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
    tp, _, fn = outcomes.counts(groups, number)
    return Estimated(_ratio(tp, tp + fn), tp + fn)


def _precisions(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
    tp, fp, _ = outcomes.counts(groups, number)
    return Estimated(_ratio(tp, tp + fp), tp + fp)


def _f1_scores(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
    """F1 = 2 J / (1 + J) with J = TP / U, U = TP + FP + FN: of images that are of the class or answered with it, the
    share that is both. J is a share of U, so that by the delta method F1 (1 - F1) / variance = U (1 + J)² / 2."""
    tp, fp, fn = outcomes.counts(groups, number)
    union = tp + fp + fn
    return Estimated(_ratio(2 * tp, tp + union), union * (1 + np.nan_to_num(_ratio(tp, union))) ** 2 / 2)


def _balanced(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
    """The limits of the mean of two shares are MOVER's (Zou & Donner 2008, Eq. 8), with Wilson's of each share; the
    number is the largest whose Wilson limits at 95 % contain these. A variance would be 0 where both shares are 0 or
    1."""
    tp, fp, fn = outcomes.counts(groups, number)
    positive = tp + fn
    negative = np.bincount(groups, minlength=number) - positive
    right = negative - fp
    value = (_ratio(tp, positive) + _ratio(right, negative)) / 2
    z = np.float64(deviations(0.95))
    shares = [(_ratio(k, n), *wilson(k, n, z)) for k, n in ((tp, positive), (right, negative))]
    below, above = (np.sqrt(sum((one[0] - one[side]) ** 2 for one in shares)) / 2 for side in (1, 2))
    effective = _number_of_limits(value, below, above)
    return Estimated(value, _held(value, np.where(np.isfinite(effective), effective, 0.0)))


def _number_of_limits(value: Floats, below: Floats, above: Floats) -> Floats:
    """Returns the largest number of right-or-wrong answers whose Wilson limits at 95 % reach as far below and above a
    share; inf where neither side reaches anywhere."""
    z = np.float64(deviations(0.95))
    numbers = []
    for reach, limit in ((below, np.clip(value - below, 0, 1)), (above, np.clip(value + above, 0, 1))):
        # Wilson's limit L of a share p of n solves (p − L)² = z² L (1 − L) / n.
        numbers.append(
            np.divide(z * z * limit * (1 - limit), reach**2, out=np.full(value.shape, np.inf), where=reach > 0)
        )
    smaller: Floats = np.minimum(*numbers)
    return smaller


UNSEEN = 0.05
"""The chance of not having seen any of the images that a mean is held to allow for."""


def _as_far_as_seen(mean: Floats, effective: Floats, images: Floats) -> Floats:
    """Returns the effective number of a mean over `images` of numbers in [0, 1], less where its variance may be that of
    a few images only.

    A confident classifier gives nearly all images of a class .99, and the few that it mistakes .01. A sample without
    one of these has next to no variance, which tells nothing of them. Images of a share u of all may be unseen with a
    chance of `UNSEEN` = (1 - u)^images (Clopper & Pearson 1934), and may all be 0, or 1: the limits at 95 % reach to
    mean * (1 - u) and mean + (1 - mean) * u. The number is never below that of the images, since no mean of numbers in
    [0, 1] varies more than a share. Without this, intervals at 95 % held the truth in .62 of samples of 20 to 50
    images, of mean probabilities and of AUROC.
    """
    unseen = 1 - UNSEEN ** np.divide(1.0, images, out=np.full(images.shape, np.inf), where=images > 0)
    most = _number_of_limits(mean, mean * unseen, (1 - mean) * unseen)
    result: Floats = np.minimum(effective, np.fmax(most, images))
    return result


def _confidences(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
    """Of a mean of numbers in [0, 1]. Their variance is estimated with one number more that is 0 or 1, as a share's:
    few equal numbers do not show that all are."""
    is_class = outcomes.truth
    p, group_of_image = outcomes.probabilities[is_class], groups[is_class]
    n = np.bincount(group_of_image, minlength=number).astype(np.float64)
    mean = _ratio(np.bincount(group_of_image, p, number).astype(np.float64), n)
    squares = np.bincount(group_of_image, (p - mean[group_of_image]) ** 2, number)
    variance_of_share = np.nan_to_num(mean * (1 - mean))
    variance = np.divide(squares + variance_of_share, n, out=np.zeros(n.shape), where=n > 0)
    effective = np.divide(n * variance_of_share, variance, out=n.copy(), where=variance > 0)
    return Estimated(mean, _held(mean, _as_far_as_seen(mean, effective, n)))


def _areas(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
    """DeLong's variance is 0 where the classes are apart. Then, and never below, the number is that of the rarer side,
    of which no variance exceeds A (1 - A) / min(m, n) (Birnbaum & Klose 1957). A is a mean over the rarer side of
    shares of the other, so that of few images `_as_far_as_seen` holds."""
    values, effective, rarer = np.full(number, np.nan), np.zeros(number), np.zeros(number)
    for group in range(number):
        subset = outcomes.where(groups == group)
        area, variance = _area(subset)
        if np.isnan(area):
            continue
        values[group], rarer[group] = area, min(subset.truth.sum(), (~subset.truth).sum())
        effective[group] = max(area * (1 - area) / variance, rarer[group]) if variance > 0 else rarer[group]
    return Estimated(values, _held(values, _as_far_as_seen(values, effective, rarer)))


def _calibrations(outcomes: Outcomes, groups: Ints, number: int) -> Estimated:
    sizes = np.bincount(groups, minlength=number).astype(np.float64)
    subsets = [outcomes.where(groups == group) for group in range(number)]
    values = np.array([1 - _calibration_error(subset) for subset in subsets])
    return Estimated(values, _held(values, sizes))


def _calibration_bias(outcomes: Outcomes, groups: Ints, number: int) -> Floats:
    """Returns by how much chance alone may raise the calibration error of each group.

    |gap + chance| is |gap| + |chance| at most, and on average no less than |gap|. So the expected error exceeds the
    true one by at most the mean of |chance|, of a normal distribution with the variance V_b of the sum of a bin,

        sum over b of sqrt(2 * V_b / pi) / n,   V_b = sum over the images of B_b of (truth - probability)^2

    where V_b is too large rather than too small: it holds the gap's square too. Falls with the root of n: some .15 with
    20 images, .03 with 500.
    """
    sizes = np.bincount(groups, minlength=number).astype(np.float64)
    bin_of_image = groups * BINS + _bins(outcomes.probabilities, BINS)
    variances = np.bincount(bin_of_image, (outcomes.truth - outcomes.probabilities) ** 2, number * BINS)
    return _ratio(np.sqrt(2 / np.pi * variances).reshape(number, BINS).sum(axis=1), sizes)


def _bins(probabilities: Floats, bins: int) -> Ints:
    numbers: Ints = np.maximum(np.ceil(np.nan_to_num(probabilities) * bins).astype(np.int64) - 1, 0)
    return numbers


_WILSON = "Wilson"
METRICS: dict[str, ClassMetric] = {
    metric.name: metric
    for metric in (
        ClassMetric("recall", "recall", _recalls, "class", _WILSON),
        ClassMetric("precision", "precision", _precisions, "all", f"{_WILSON}, given the answers with the class"),
        ClassMetric("f1", "F1", _f1_scores, "all", f"{_WILSON}, with the delta method’s variance"),
        ClassMetric("balanced_accuracy", "balanced accuracy", _balanced, "all", f"{_WILSON}, with MOVER’s limits"),
        ClassMetric(
            "confidence",
            "mean probability of the class",
            _confidences,
            "class",
            f"{_WILSON}, with the sample variance",
            needs_probabilities=True,
        ),
        ClassMetric("auroc", "AUROC", _areas, "all", f"{_WILSON}, with DeLong’s variance", needs_probabilities=True),
        ClassMetric(
            "calibration",
            "1 − expected calibration error",
            _calibrations,
            "all",
            "bootstrap within each class, and what chance adds to the error",
            needs_probabilities=True,
            has_limits=False,
            bias=_calibration_bias,
        ),
    )
}
"""The metrics by name; of each, larger is better."""


# What a table of true classes and answers says: precision, recall and F1, calibration, curves of two classes, and
# whether the wrong answers are the classes that another column of the images names.


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PerClass(NamedTuple):
    """Arrays of shape (classes,), in [0, 1]; NaN where there is nothing to divide by."""

    precision: Floats
    recall: Floats
    f1: Floats


def precision_recall_f1(counts: ArrayLike) -> PerClass:
    """Returns precision, recall and F1 of each class.

    `counts`: integers, shape (classes, answers) with answers ≥ classes: how many images of class i were answered j;
    answers beyond the classes are no class, and count as misses alone. precision_i = c_ii / Σ_k c_ki, recall_i =
    c_ii / Σ_j c_ij, F1 their harmonic mean, 2 c_ii / (Σ_k c_ki + Σ_j c_ij) (van Rijsbergen 1979). Precision is of the
    images at hand: it changes with how many of each class there are. A class that is never answered has no precision,
    one without images no recall. An empty table gives empty arrays. ValueError for negative counts or too few columns.
    """
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < table.shape[0] or (table < 0).any():
        raise ValueError(f"counts: {table.shape}, expected (classes, answers) with answers ≥ classes, none negative")
    right = np.diagonal(table)
    answers_of_class, images_of_class = table[:, : len(table)].sum(axis=0), table.sum(axis=1)
    return PerClass(
        _ratio_or_nan(right, answers_of_class),
        _ratio_or_nan(right, images_of_class),
        _ratio_or_nan(2 * right, answers_of_class + images_of_class),
    )


def _ratio_or_nan(part: Floats, total: Floats) -> Floats:
    ratio: Floats = np.divide(part, total, out=np.full(part.shape, np.nan), where=total > 0)
    return ratio


class Reliability(NamedTuple):
    """Of each bin with answers: its mean confidence, the share of right answers, and how many it holds. `error`: the
    expected calibration error, in [0, 1]; NaN without answers."""

    confidence: Floats
    accuracy: Floats
    answers: Ints
    error: float


def reliability(confidence: ArrayLike, right: ArrayLike, bins: int = 10) -> Reliability:
    """Returns the reliability diagram of answers in `bins` equally wide bins over [0, 1], the first including 0.

    `confidence`: shape (n,), in [0, 1]; `right`: shape (n,), booleans. The error is Σ_b n_b / n |accuracy_b −
    confidence_b| (Guo et al. 2017, eq. 3); 0: each bin is as often right as it is sure. It is biased upwards where bins
    hold few answers. ValueError for other shapes, or a confidence outside [0, 1].
    """
    confidences, truth = np.asarray(confidence, np.float64), np.asarray(right, bool)
    if confidences.shape != truth.shape or confidences.ndim != 1:
        raise ValueError(f"confidence {confidences.shape}, right {truth.shape}: expected two arrays of one length")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("confidence: expected numbers from 0 to 1")
    number = np.clip(np.ceil(confidences * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(number, minlength=bins)
    nonempty = count > 0
    mean = np.bincount(number, confidences, bins)[nonempty] / count[nonempty]
    share = np.bincount(number, truth, bins)[nonempty] / count[nonempty]
    error = float(np.average(np.abs(share - mean), weights=count[nonempty])) if len(confidences) else float("nan")
    return Reliability(mean, share, count[nonempty], error)


class Curves(NamedTuple):
    """Points of the two curves, from the highest threshold down, one for each distinct score. `auroc`: in [0, 1], 0.5
    where scores say nothing; `average_precision`: in [0, 1], as high as the share of positives where they say
    nothing."""

    false_positive_rate: Floats
    recall: Floats
    precision: Floats
    auroc: float
    average_precision: float


def two_class_curves(score: ArrayLike, positive: ArrayLike) -> Curves:
    """Returns the ROC and precision-recall curves of one class against the other.

    `score`: shape (n,), higher for the positive class, any finite numbers; `positive`: shape (n,), booleans. Equal
    scores are one threshold. AUROC by the trapezoid rule, equal to the Mann–Whitney statistic; average precision
    Σ (R_k − R_k−1) P_k. ValueError without images of both classes, or where shapes differ.
    """
    scores, truth = np.asarray(score, np.float64), np.asarray(positive, bool)
    if scores.shape != truth.shape or scores.ndim != 1 or truth.all() or not truth.any():
        raise ValueError("score, positive: expected two arrays of one length, with images of both classes")
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(scores[order]) != 0, True])
    hits = np.cumsum(truth[order])[ends]
    alarms = ends + 1 - hits
    recall, precision = hits / hits[-1], hits / (ends + 1)
    rate = alarms / alarms[-1]
    area = float(np.trapezoid(np.r_[0, recall], np.r_[0, rate]))
    return Curves(rate, recall, precision, area, float(np.sum(np.diff(np.r_[0, recall]) * precision)))


class NamedAnswers(NamedTuple):
    """`named` of `wrong` answers are the class that the column names; `expected` by chance. `p_value`: of as many or
    more by chance."""

    named: int
    wrong: int
    expected: float
    p_value: float


MOST_RESAMPLES = 9_999
_WORK = 20_000_000


def wrong_answers_named(truth: ArrayLike, value: ArrayLike, answer: ArrayLike, seed: int = 0) -> NamedAnswers:
    """Tests whether wrong answers are, more often than by chance, the class that a column of the image names.

    `truth`, `value`, `answer`: integers, shape (n,): the number of the image's class, of the class that its column
    names, and of the class it was taken for; negative where value or answer is no class. Only wrong answers to images
    whose column names another class count: an answer cannot be wrong and be the image's own class. T = #{i: answer_i =
    value_i}; chance permutes the column within each class, E[T] = Σ_c Σ_v n_cv a_cv / n_c with n_cv wrong answers on
    value v, a_cv of answer v, n_c in all. p = (1 + #{T* ≥ T}) / (1 + B) (Phipson & Smyth 2010), B up to 9,999 and
    fewer where there are many answers. The images have to be independent: copies of one scene make p too small.
    No wrong answer gives 0 of 0 and p = 1. ValueError where lengths differ.
    """
    true_class, named_class, answered_class = (np.asarray(column, np.int64) for column in (truth, value, answer))
    if not true_class.shape == named_class.shape == answered_class.shape or true_class.ndim != 1:
        raise ValueError("truth, value, answer: expected three arrays of one length")
    is_counted = (named_class >= 0) & (named_class != true_class) & (answered_class != true_class)
    true_class, named_class, answered_class = (
        true_class[is_counted],
        named_class[is_counted],
        answered_class[is_counted],
    )
    observed, expected = int(np.sum(named_class == answered_class)), 0.0
    if not len(true_class):
        return NamedAnswers(0, 0, 0.0, 1.0)
    order = np.argsort(true_class, kind="stable")
    true_class, named_class, answered_class = true_class[order], named_class[order], answered_class[order]
    for start, stop in _runs(true_class):
        values, counts = np.unique(named_class[start:stop], return_counts=True)
        answers, times = np.unique(answered_class[start:stop], return_counts=True)
        _, value_rows, answer_rows = np.intersect1d(values, answers, return_indices=True)
        expected += float(counts[value_rows] @ times[answer_rows]) / (stop - start)
    resamples = int(min(MOST_RESAMPLES, max(199, _WORK // len(true_class))))
    random, at_least_observed = np.random.default_rng(seed), 0
    for _ in range(resamples):
        shuffled = named_class[np.lexsort((random.random(len(true_class)), true_class))]
        at_least_observed += int(np.sum(shuffled == answered_class)) >= observed
    return NamedAnswers(observed, len(true_class), expected, (1 + at_least_observed) / (1 + resamples))


def _runs(numbers: Ints) -> list[tuple[int, int]]:
    """Returns start and stop of each run of equal numbers."""
    edges = np.r_[0, np.flatnonzero(np.diff(numbers)) + 1, len(numbers)]
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
