"""Judges estimates: φ against the values that can be trusted, over one family of tests of all classifiers.

It knows accuracies, how many images they rest on and which values are in doubt. `score` provides these; `stats` has
the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.clusters import ClusterSums
from c2b_ray.audits.c2b.scoring.confounding import StandardisedScores
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import explained_by_false_accepts, not_excluded
from c2b_ray.stats.clusters import with_other_variance
from c2b_ray.stats.contrasts import Design
from c2b_ray.stats.roots import deviations
from c2b_ray.tables import c2b as tables


class ScoreRow(tables.ScoreRow, total=False):
    """A row of `tables.SCORES` while it is made, with what is no column. `effective`: the number of independently drawn
    images of known content with the same information."""

    effective: float


def deviations_between(rows: Sequence[ScoreRow]) -> stats.Floats:
    """Returns the standard deviation of each φ over samples of captions, for the rows of one classifier and attribute;
    0 where labels, not captions, chose the images.

    Where images were verified, an accuracy moves by more than the counted one, of which images of other content are a
    part.
    """
    spread, captions, shown, of_class = (
        np.array([row[name] for row in rows], np.float64)
        for name in ("caption_spread", "captions", "shown", "class_shown")
    )
    share = np.where(np.isnan(shown), 1.0, shown) * np.where(np.isnan(of_class), 1.0, of_class)
    by_value = np.divide(spread, share, out=np.zeros(len(rows)), where=share > 0)
    return stats.bias_score_deviations(by_value, np.nan_to_num(captions))


# Explains in words why a cell is undetermined, and which evidence a cell needs before its images can settle it.


MOST_SHARED = 0.2
"""The share of a cell's images that other values of the attribute may hold where φ is said to be small."""

LABELS, CAPTIONS, VERIFIER, CALIBRATED = "labels", "captions", "verifier", "calibrated"
"""The basis of an accuracy: labels, captions only, an uncalibrated verifier, a calibrated verifier."""

BASES = (CAPTIONS, VERIFIER, CALIBRATED, LABELS)
"""The bases, the weakest first."""

EVIDENCE_OF_VALUES = (LABELS, CALIBRATED)
"""The bases that show that the images of two values differ. On any other, φ may be 0 because they do not."""

TOO_FEW = "too few images"

UNLIKELY = "a decision is unlikely"
"""How the reason of a cell begins that a budget gives up."""


def reason(row: ScoreRow, shared: float, thresholds: Thresholds, tests: int) -> str:
    """Returns why a cell is undetermined: the first reason that more images of the same kind would not remove, else
    `TOO_FEW`."""
    tau, alpha = thresholds.tau, thresholds.alpha
    by_chance = f"among {tests} tests that is expected of some by chance: the adjusted p-value is"
    if row["doubt"] is not None:
        return str(row["doubt"])
    if math.isnan(row["phi"]):
        return "there are no images with an answer, or no other value to compare with"
    if row["phi_low"] > tau or row["phi_high"] < -tau:
        return f"its interval alone lies beyond ±{tau:g}, but {by_chance} {row['q_value']:.2g}, above {alpha:g}"
    if -tau <= row["phi_low"] and row["phi_high"] <= tau:
        if row["basis"] not in EVIDENCE_OF_VALUES:
            return f"φ lies within ±{tau:g}, but whether the images of the values differ was not measured"
        if shared > MOST_SHARED:
            return f"φ lies within ±{tau:g}, but other values hold {shared:.0%} of its images"
        return f"its interval alone lies within ±{tau:g}, but {by_chance} {row['none_q_value']:.2g}, above {alpha:g}"
    if tau == 0 and row["phi"] == 0:
        return (
            "there is no difference to find, and without a margin (τ = 0) no number of images tells that there is none"
        )
    if abs(row["phi"]) <= tau and (row["basis"] not in EVIDENCE_OF_VALUES or shared > MOST_SHARED):
        return (
            "too few images for a finding, and no number of them tells that there is none: whether the images of the "
            "values differ was not measured, or other values hold many of them"
        )
    return TOO_FEW


def can_be_clear(row: ScoreRow) -> bool:
    """Returns whether enough images would establish `none`: the images of the values are known to differ."""
    return row["basis"] in EVIDENCE_OF_VALUES and (row["shared"] or 0) <= MOST_SHARED * row["n"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Permuted:
    """The permutation test of another metric than accuracy, by value of an attribute; NaN and None where φ is not
    beyond τ.

    `p_value`; `of_mix`: the mean of φ over permutations; `doubts`: why φ says nothing about the value; `smallest`: the
    smallest p-value that the permutations can give.
    """

    p_value: Floats
    of_mix: Floats
    doubts: tuple[str | None, ...]
    smallest: float


@dataclass
class Estimate:
    """One classifier's accuracies on the values of one attribute of one class; arrays have shape (values,).

    `effective`: the number of independently drawn images of known content with the same information on the accuracy.
    `covariance`: (values, values) of the accuracies, where they are not independent; `from_verifier`: the part of it
    that comes from the verifier's error rates, which all classes share. `without_false_accepts`: the accuracies without
    the images that show something else, as predicted; None where nothing is predicted. `bounds`: the same at the limits
    of the prediction, by their confidence and by how many times the calibration's similar images there were;
    `negatives`: how many there are, by value. `adjust`: adjusts φ and its limits for other attributes, where they are
    known; `adjusted`: its result. `permuted`: the test that a finding of another metric than accuracy must pass besides
    (`metric.measured`), which gives `accuracy` then; `resampled`: φ of bootstrapped images, (draws, values), where the
    metric's variance is not known; `too_low`: by how much each `accuracy` may then be too low on average. `clusters`:
    right answers by cluster, where images come in clusters. `columns`: further columns of each value.
    """

    classifier: str
    target_class: str
    attribute: str
    values: tuple[str, ...]
    accuracy: Floats
    effective: Floats
    basis: str
    doubts: list[str | None]
    shared: Floats
    covariance: Floats | None = None
    from_verifier: Floats | None = None
    without_false_accepts: Floats | None = None
    bounds: Callable[[float, float], tuple[Floats, Floats]] | None = None
    negatives: NDArray[np.int64] | None = None
    adjust: Callable[[Floats, Floats, Floats], StandardisedScores | None] | None = None
    adjusted: StandardisedScores | None = None
    permuted: Permuted | None = None
    resampled: Floats | None = None
    too_low: Floats | None = None
    clusters: ClusterSums | None = None
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def tested(self) -> Estimate:
        """The estimate without the images that show something else, as predicted; itself where nothing is predicted."""
        corrected = self.without_false_accepts
        return self if corrected is None else replace(self, accuracy=corrected)

    def reach(self, confidence: float, times: float = 1.0) -> tuple[Floats, Floats]:
        """Returns how far each accuracy without false accepts may lie below and above the predicted one, as far as the
        calibration tells; 0 where nothing is predicted. `times`: with as many times its similar images."""
        if self.without_false_accepts is None or self.bounds is None:
            return np.zeros(len(self.values)), np.zeros(len(self.values))
        least, most = self.bounds(confidence, times)
        predicted = self.without_false_accepts
        # An unknown bound, or one that the prediction is beyond, counts as 0.
        return np.fmax(predicted - least, 0.0), np.fmax(most - predicted, 0.0)

    @property
    def has_images(self) -> NDArray[np.bool_]:
        has_images: NDArray[np.bool_] = (self.effective > 0) & ~np.isnan(self.accuracy)
        return has_images

    @property
    def independent(self) -> Floats:
        """For each value, a number of independently drawn images that carry no more information on any φ than its
        images do."""
        _, total, _ = stats.contrast_counts(self.accuracy, self.effective, _weights(self), self.covariance)
        fewest: Floats = total.min(axis=0, initial=np.inf)
        return fewest

    @property
    def error_of_verifier(self) -> Floats:
        """For each value, the part of the standard error of φ that comes from the verifier's error rates."""
        if self.from_verifier is None:
            return np.zeros(len(self.values))
        weights, part = np.nan_to_num(_weights(self)), np.nan_to_num(self.from_verifier)
        return np.asarray(np.sqrt(np.maximum(np.einsum("jk,kl,jl->j", weights, part, weights), 0.0)))


def judged(estimates: Sequence[Estimate], thresholds: Thresholds, rough: bool = False) -> list[ScoreRow]:
    """Returns the columns of `tables.SCORES` that follow from the estimates, a row per value, in their order.

    A value in doubt is left out of the reference of the others. Where at least as many values are in doubt as are left
    in a reference, and leaving them out changes the conclusion, the values compared with it are in doubt too. Findings
    and `none` must also hold after standardising over the other attributes where these are known, and without the
    images that the verifier falsely accepted where these are predicted. The false discovery
    rates of findings and of `none` are controlled over all rows that are not in doubt. Limits of findings are
    false-coverage-rate limits, at confidence 1 − α·R/m for R findings of m tests; all others are at 1 − α. `rough`:
    scores that are no verdict anyway are not standardised, which would widen their limits.
    """
    contrasts = PhiReadings.of(estimates)
    low, high = contrasts.first.limits(thresholds.confidence)
    may_be_verdicts = contrasts.first.may_be_verdicts(thresholds) if rough else np.ones(len(low), dtype=bool)
    adjusted = _adjusted(estimates, contrasts.phi, low, high, may_be_verdicts)
    doubts = _doubt_reasons(estimates, contrasts.phi, thresholds.tau)
    for of_estimate, of_group in adjusted:
        doubts[of_estimate] = [doubt or other for doubt, other in zip(doubts[of_estimate], of_group.doubt, strict=True)]
    doubts = [doubt or other for doubt, other in zip(doubts, contrasts.doubts(thresholds), strict=True)]
    of_mix = [doubt for e in estimates for doubt in (e.permuted.doubts if e.permuted else (None,) * len(e.values))]
    doubts = [doubt or other for doubt, other in zip(doubts, of_mix, strict=True)]
    columns = _tests(estimates, contrasts, adjusted, doubts, thresholds)
    verdicts = stats.verdicts(
        contrasts.phi, columns["q_value"], columns["none_q_value"], thresholds.tau, thresholds.alpha
    )
    findings = np.array([verdict in ("for", "against") for verdict in verdicts], dtype=bool)
    tests = int(np.isfinite(columns["q_value"]).sum())
    columns |= {
        **_limits(contrasts, adjusted, findings, tests, thresholds.alpha),
        "phi": contrasts.phi,
        "phi_shrunken": stats.shrunken(contrasts.phi, (high - low) / (2 * deviations(thresholds.confidence))),
    }
    rows = [
        cast(
            ScoreRow,
            {
                **{name: float(values[i]) for name, values in columns.items()},
                "verdict": verdicts[i],
                "doubt": doubts[i],
            },
        )
        for i in range(len(doubts))
    ]
    _explain(rows, estimates, adjusted, thresholds, tests)
    return rows


def _explain(
    rows: Sequence[ScoreRow],
    estimates: Sequence[Estimate],
    adjusted: Sequence[tuple[slice, StandardisedScores]],
    thresholds: Thresholds,
    tests: int,
) -> None:
    """Adds to each row its basis, the adjustment for other attributes, and why it is undetermined."""
    basis = [estimate.basis for estimate in estimates for _ in estimate.values]
    shared = np.concatenate([*(estimate.shared for estimate in estimates), np.zeros(0)]).tolist()
    for row, of_row in zip(rows, basis, strict=True):
        row |= {"basis": of_row, "phi_standardised": None, "same_as": None}
    for of_estimate, of_group in adjusted:
        for row, phi, same in zip(rows[of_estimate], of_group.phi.tolist(), of_group.same, strict=True):
            row["phi_standardised"] = None if math.isnan(phi) else phi
            row["same_as"] = None if same is None else ": ".join(same)
    for row, share in zip(rows, shared, strict=True):
        undetermined = row["verdict"] == "undetermined"
        row["undetermined_because"] = reason(row, share, thresholds, tests) if undetermined else None


def _tests(
    estimates: Sequence[Estimate],
    contrasts: PhiReadings,
    adjusted: Sequence[tuple[slice, StandardisedScores]],
    doubts: Sequence[str | None],
    thresholds: Thresholds,
) -> dict[str, Floats]:
    """Returns p- and q-values of findings and of `none`; NaN for rows that are not tested."""
    p, none_p = contrasts.p_values(thresholds.tau), contrasts.none_p_values(*thresholds)
    for of_estimate, of_group in adjusted:
        p[of_estimate], none_p[of_estimate] = (
            np.fmax(p[of_estimate], of_group.p_value),
            np.fmax(none_p[of_estimate], of_group.none_p_value),
        )
    permuted = [e.permuted.p_value if e.permuted else np.full(len(e.values), np.nan) for e in estimates]
    p = np.where(np.isnan(p), p, np.fmax(p, np.concatenate([*permuted, np.zeros(0)])))
    is_certain = np.array([doubt is None for doubt in doubts], dtype=bool)
    p, none_p = np.where(is_certain, p, np.nan), np.where(is_certain, none_p, np.nan)
    # Shared images can hide a difference but not create one: only `none` needs different images.
    differ = [e.basis in EVIDENCE_OF_VALUES and share <= MOST_SHARED for e in estimates for share in e.shared]
    none_q = stats.benjamini_hochberg(np.where(np.array(differ, dtype=bool), none_p, np.nan))
    q = stats.benjamini_hochberg(p)
    return {"p_value": p, "q_value": q, "none_p_value": none_p, "none_q_value": none_q}


def _limits(
    contrasts: PhiReadings,
    adjusted: Sequence[tuple[slice, StandardisedScores]],
    findings: NDArray[np.bool_],
    tests: int,
    alpha: float,
) -> dict[str, Floats]:
    """Returns limits at 1 − α, and for findings at the confidence that corrects for their selection.

    What is predicted of false accepts comes from the calibration, whose images selected no finding: its part stays at
    1 − α (`PhiReadings.limits`).
    """

    def at(confidence: float) -> tuple[Floats, Floats]:
        low, high = contrasts.limits(confidence, 1 - alpha)
        for of_estimate, of_group in adjusted:
            low[of_estimate], high[of_estimate] = of_group.limits(low[of_estimate], high[of_estimate], confidence)
        return low, high

    low, high = at(1 - alpha)
    if findings.any():
        of_findings = at(stats.selected_confidence(int(findings.sum()), tests, alpha))
        low, high = (np.where(findings, wide, usual) for wide, usual in zip(of_findings, (low, high), strict=True))
    return {"phi_low": low, "phi_high": high}


def _adjusted(
    estimates: Sequence[Estimate], phi: Floats, low: Floats, high: Floats, rows: NDArray[np.bool_]
) -> list[tuple[slice, StandardisedScores]]:
    """Returns the rows of each estimate whose other attributes are known, with its scores adjusted for them; of those
    estimates only that have one of the `rows`."""
    adjusted, start = [], 0
    for estimate in estimates:
        of_estimate = slice(start, start + len(estimate.values))
        start = of_estimate.stop
        if estimate.adjust is not None and rows[of_estimate].any():
            estimate.adjusted = estimate.adjust(phi[of_estimate], low[of_estimate], high[of_estimate])
        if estimate.adjusted is not None:
            adjusted.append((of_estimate, estimate.adjusted))
    return adjusted


@dataclass(frozen=True)
class Contrasts:
    """φ of every value of every estimate: its accuracy against those of the trusted others, or against all others where
    no trusted one has images.

    Arrays have shape (rows, most values of any estimate); `phi` has (rows,). `design`: of the rows, where images come
    in clusters.
    """

    correct: Floats
    total: Floats
    weights: Floats
    design: Design | None = None
    _known: dict[tuple[str, float], Any] = field(default_factory=dict, compare=False, repr=False)
    """Results by function and argument: each is asked for several times, and takes a search."""

    @classmethod
    def of(cls, estimates: Sequence[Estimate]) -> Contrasts:
        width = max((len(estimate.values) for estimate in estimates), default=0)
        rows = sum(len(estimate.values) for estimate in estimates)
        correct, total, weights = (np.zeros((rows, width)) for _ in range(3))
        start = 0
        for estimate in estimates:
            n = len(estimate.values)
            block = slice(start, start + n), slice(0, n)
            weights[block] = _weights(estimate)
            counts = stats.contrast_counts(estimate.accuracy, estimate.effective, weights[block], estimate.covariance)
            correct[block], total[block], _ = counts
            start += n
        weights[np.isnan(weights).any(axis=1)] = np.nan
        return cls(correct, total, weights, _design(estimates))

    @property
    def phi(self) -> Floats:
        accuracy = np.divide(self.correct, self.total, out=np.zeros(self.total.shape), where=self.total > 0)
        phi: Floats = (self.weights * accuracy).sum(axis=1)
        return phi

    def limits(self, confidence: float) -> tuple[Floats, Floats]:
        low, high = self._of(stats.contrast_interval, confidence)
        return low.copy(), high.copy()

    def p_values(self, tau: float) -> Floats:
        return np.array(self._of(stats.contrast_p_values, tau))

    def none_p_values(self, tau: float) -> Floats:
        return np.array(self._of(stats.contrast_none_p_values, tau))

    def may_be_verdicts(self, thresholds: Thresholds) -> NDArray[np.bool_]:
        """Returns whether a p-value is at most 2 α: any other row remains undetermined, whatever else is known."""
        tau, alpha = thresholds
        return np.fmin(self.p_values(tau), self.none_p_values(tau)) <= 2 * alpha

    def _of(self, function: Callable[..., Any], argument: float) -> Any:
        key = function.__name__, argument
        if key not in self._known:
            self._known[key] = function(self.correct, self.total, self.weights, argument, self.design)
        return self._known[key]


@dataclass(frozen=True)
class PhiReadings:
    """φ as estimated (`first`) and, where images that show something else are predicted, without them (`second`).

    Limits contain those of both, and `none` must pass both tests. A finding is tested as estimated, its false discovery
    rate controlled, and is in doubt where the second reading, by itself, would not establish it (`doubts`). The second
    reading is as uncertain as the prediction: what a small calibration does not exclude may be so.
    """

    estimates: Sequence[Estimate]
    first: Contrasts
    second: Contrasts | None

    @classmethod
    def of(cls, estimates: Sequence[Estimate]) -> PhiReadings:
        predicted = any(estimate.without_false_accepts is not None for estimate in estimates)
        second = Contrasts.of([estimate.tested for estimate in estimates]) if predicted else None
        return cls(estimates, Contrasts.of(estimates), second)

    @property
    def phi(self) -> Floats:
        return self.first.phi

    def limits(self, confidence: float, of_prediction: float) -> tuple[Floats, Floats]:
        """Returns limits of φ. `of_prediction`: the confidence of the predicted false accepts, for themselves."""
        low, high = self.first.limits(confidence)
        if self.second is None:
            return low, high
        second_limits = farther(self.second.phi, self.second.limits(confidence), self._reach(of_prediction))
        return np.fmin(low, second_limits[0]), np.fmax(high, second_limits[1])

    def _second_limits(self, second: Contrasts, confidence: float) -> tuple[Floats, Floats]:
        return farther(second.phi, second.limits(confidence), self._reach(confidence))

    def _reach(self, confidence: float) -> tuple[Floats, Floats]:
        """Returns how far each φ of the second reading may lie below and above, by the limits of the prediction."""
        parts = [_reach(estimate, confidence) for estimate in self.estimates]
        below, above = (np.concatenate([*sides, np.zeros(0)]) for sides in zip(*parts, strict=True))
        return below, above

    def p_values(self, tau: float) -> Floats:
        return self.first.p_values(tau)

    def none_p_values(self, tau: float, alpha: float) -> Floats:
        p_value = self.first.none_p_values(tau)
        if self.second is None:
            return p_value
        low, high = self._second_limits(self.second, one_sided(alpha))
        within = (-tau <= low) & (high <= tau)
        return np.where(within, np.fmax(p_value, self.second.none_p_values(tau)), np.fmax(p_value, 1.0))

    def doubts(self, thresholds: Thresholds) -> list[str | None]:
        """Why φ is no finding that would be one as estimated."""
        if self.second is None:
            return [None] * len(self.phi)
        tau, alpha = thresholds
        is_finding = (np.abs(self.phi) > tau) & (self.first.p_values(tau) <= alpha)
        explained = is_finding & (self._second_p_values(self.second, tau) > alpha)
        low, high = self._second_limits(self.second, one_sided(alpha))
        excluded = np.where(self.phi > 0, low > tau, high < -tau)
        doubts: list[str | None] = [
            explained_by_false_accepts(phi, without) if doubted else None
            for phi, without, doubted in zip(
                self.phi.tolist(), self.second.phi.tolist(), explained.tolist(), strict=True
            )
        ]
        places = [(estimate, i) for estimate in self.estimates for i in range(len(estimate.values))]
        for row in np.flatnonzero(is_finding & ~explained & ~excluded).tolist():
            estimate, i = places[row]
            low, high = (side[row : row + 1] for side in self.second.limits(one_sided(alpha)))
            more_negatives = _more_negatives(estimate, i, float(self.second.phi[row]), (low, high), thresholds)
            doubts[row] = not_excluded(
                float(self.phi[row]), _most_false(estimate), estimate.target_class, more_negatives
            )
        return doubts

    def _second_p_values(self, second: Contrasts, tau: float) -> Floats:
        """Returns p-values of the second reading; 1 where its sign is not that of φ."""
        return np.where(np.sign(second.phi) == np.sign(self.phi), second.p_values(tau), 1.0)


MORE_NEGATIVES: list[float] = np.geomspace(1.25, 1000, 31).tolist()
"""By how many times the similar images of a calibration are tried to grow until they would establish a finding."""


def one_sided(alpha: float) -> float:
    """Returns the confidence of an interval each of whose limits is passed with probability alpha, or half."""
    return max(1 - 2 * alpha, 1e-6)


def farther(phi: Floats, limits: tuple[Floats, Floats], reach: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Returns limits of φ that allow for two independent errors: that of the `limits`, and one by which φ may lie
    `reach` below and above; their squares add."""
    low, high = limits
    return np.maximum(phi - np.hypot(phi - low, reach[0]), -1.0), np.minimum(phi + np.hypot(high - phi, reach[1]), 1.0)


def _most_false(estimate: Estimate) -> float:
    """Returns the largest share of a value's images that may show something else: all, where nothing tells."""
    shares = np.asarray(estimate.columns["false_accepts_high"], np.float64)[estimate.has_images]
    return float(np.where(np.isnan(shares), 1.0, shares).max(initial=0.0))


def _more_negatives(
    estimate: Estimate, i: int, phi: float, sampling: tuple[Floats, Floats], thresholds: Thresholds
) -> int | None:
    """Returns how many more similar images of the calibration, of which the verifier accepts as large a share, would
    establish the φ of value `i` without false accepts, whose limits are `sampling`; None where it is not known."""
    tau, alpha = thresholds
    negatives = 0 if estimate.negatives is None else int(estimate.negatives.max(initial=0))
    for times in MORE_NEGATIVES if negatives else []:
        below, above = _reach(estimate, one_sided(alpha), times)
        (low,), (high,) = farther(np.array([phi]), sampling, (below[i : i + 1], above[i : i + 1]))
        if low > tau or high < -tau:
            return math.ceil((times - 1) * negatives)
    return None


def _reach(estimate: Estimate, confidence: float, times: float = 1.0) -> tuple[Floats, Floats]:
    """Returns how far each φ without false accepts may lie below and above."""
    return stats.contrast_reach(_weights(estimate), *estimate.reach(confidence, times))


def _design(estimates: Sequence[Estimate]) -> Design | None:
    """Returns the design of every row; None where images are independent."""
    parts = [_in_clusters(estimate, estimate.clusters) for estimate in estimates if estimate.clusters is not None]
    if not parts:
        return None
    return Design(np.concatenate([part.factor for part in parts]), np.concatenate([part.degrees for part in parts]))


def _in_clusters(estimate: Estimate, clusters: ClusterSums) -> Design:
    """Returns the design of every φ, beside what the effective numbers of images hold already, such as captions."""
    weights, variance = _weights(estimate), clusters.variance()
    _, total, _ = stats.contrast_counts(estimate.accuracy, estimate.effective, weights, estimate.covariance)
    independent, clustered = (
        (weights**2 * np.divide(variance, n, out=np.zeros(weights.shape), where=n > 0)).sum(axis=1)
        for n in (np.broadcast_to(clusters.images.sum(axis=1), total.shape), total)
    )
    return with_other_variance(clusters.design(weights), independent, clustered)


def _weights(estimate: Estimate) -> Floats:
    """Returns (values, values): the weight of each accuracy in each φ; NaN in the row of a value with nothing to
    compare."""
    itself, has_images, trusted = np.eye(len(estimate.values), dtype=bool), estimate.has_images, _trusted(estimate)
    compared: NDArray[np.bool_] = ~itself & trusted[None, :]
    compared = np.where(np.any(compared, axis=1)[:, None], compared, ~itself & has_images[None, :])
    weights = np.where(itself, 1.0, -1.0 * compared / np.maximum(compared.sum(axis=1, keepdims=True), 1))
    weights[~has_images | ~np.any(compared, axis=1)] = np.nan
    return weights


def _trusted(estimate: Estimate) -> NDArray[np.bool_]:
    is_certain: NDArray[np.bool_] = np.array([doubt is None for doubt in estimate.doubts], dtype=bool)
    return estimate.has_images & is_certain


def _doubt_reasons(estimates: Sequence[Estimate], phi: Floats, tau: float) -> list[str | None]:
    """Returns the doubts of every value, including those that spread from others of its attribute."""
    doubts: list[str | None] = []
    for estimate in estimates:
        n = len(estimate.values)
        doubts += _spread(estimate, phi[len(doubts) : len(doubts) + n], tau)
    return doubts


def _spread(estimate: Estimate, phi: Floats, tau: float) -> list[str | None]:
    doubts, with_images, trusted = list(estimate.doubts), estimate.has_images, _trusted(estimate)
    value_doubts = zip(estimate.values, with_images, doubts, strict=True)
    suspects = [repr(name) for name, has_images, doubt in value_doubts if has_images and doubt is not None]
    if not suspects:
        return doubts
    # Where more trusted values are left than are in doubt, the values in doubt cannot overturn the comparison.
    is_minority = trusted.sum() - 1 <= len(suspects)
    for i in np.flatnonzero(trusted):
        phi_of_all = estimate.accuracy[i] - np.mean(
            [estimate.accuracy[k] for k in np.flatnonzero(with_images) if k != i]
        )
        if trusted.sum() < 2:
            doubts[i] = f"all that it can be compared with is in doubt ({', '.join(suspects)})"
        elif (
            is_minority and abs(phi[i]) > tau and not (abs(phi_of_all) > tau and np.sign(phi_of_all) == np.sign(phi[i]))
        ):
            doubts[i] = f"with the images of {', '.join(suspects)}, which are in doubt, φ is {phi_of_all:+.2f}"
    return doubts
