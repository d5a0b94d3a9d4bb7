"""Claims that the answers to one part of labelled images suggest, their test on another, and their rates on a third.

The images are taken as a random sample of the images that the table stands for. Then e-values and intervals are exact:
each part is taken whole, and a caption's images and the label's other images do not overlap. For statements about the
table's own images, drawn without replacement, both are conservative. This module knows answers and conditions, not
images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.config import ANY_LABEL, FailuresConfig
from c2b_ray.audits.failures.discovery.race import Race, RaceTerms
from c2b_ray.audits.failures.discovery.rounds_stage import DiscoveryClassifier
from c2b_ray.audits.failures.discovery.value_sets import (
    Condition,
    ConditionCounts,
    LabelledAnswers,
    Mask,
    Suggested,
    clustered_condition_counts,
    condition_counts,
    conditions,
    targets,
)
from c2b_ray.audits.failures.drawing import CONFIRMATION, DISCOVERY, MEASURE, SEARCH, TEST
from c2b_ray.errors import SourceError
from c2b_ray.stats.clusters import (
    OWN,
    UNKNOWN,
    ClusteredSides,
    Correlation,
    cluster_correlation,
    clustered_more_p_values,
    clustered_rate_ratios,
    clustered_rates,
)
from c2b_ray.stats.intervals import benjamini_hochberg
from c2b_ray.stats.rates import RateEstimate, Trials, failure_rates, rate_ratios
from c2b_ray.tables import HYPOTHESES
from c2b_ray.tables.failures import AnswerRow, HypothesisRow

FEW = 0.5
"""The share of the images that a classifier must have answered."""


@dataclass(frozen=True)
class Claim:
    """That a classifier fails more often, towards a target or at all, on images with a condition."""

    classifier: str
    condition: Condition
    target: str | None


@dataclass(frozen=True)
class ClaimAnswers:
    """For each classifier, in the order of the rows: whether it answered, whether it failed, and the answer."""

    tables: dict[str, list[AnswerRow]]
    known: dict[str, Mask]
    failed: dict[str, Mask]
    predicted: dict[str, list[str | None]]

    @staticmethod
    def of(answers: pa.Table, rows: list[int], classifiers: tuple[DiscoveryClassifier, ...]) -> ClaimAnswers:
        tables = {}
        for classifier in classifiers:
            own_answers = answers.filter(pc.equal(answers["classifier"], classifier.decider.classifier)).to_pylist()
            by_row = {row["row"]: row for row in own_answers}
            tables[classifier.decider.classifier] = [by_row[row] for row in rows]
        return ClaimAnswers(
            tables,
            {name: np.array([row["failed"] is not None for row in group], bool) for name, group in tables.items()},
            {name: np.array([bool(row["failed"]) for row in group], bool) for name, group in tables.items()},
            {name: [row["predicted"] for row in group] for name, group in tables.items()},
        )

    def refuse_silence(self, where: str) -> None:
        for name, is_answered in self.known.items():
            if is_answered.mean() < FEW:
                reason = next(str(row["error"]) for row in self.tables[name] if row["error"] is not None)
                answered = f"answered {is_answered.sum():,} of {len(is_answered):,} images"
                raise SourceError(f"{where}: {name} {answered}, such as: {reason}")

    def towards(self, classifier: str, target: str | None) -> Mask:
        if target is None:
            return self.failed[classifier]
        towards = np.zeros(len(self.failed[classifier]), bool)
        towards[self._failed_as.get((classifier, target), [])] = True
        return towards

    @cached_property
    def _failed_as(self) -> Mapping[tuple[str, str | None], list[int]]:
        """The failures of each classifier by its answer."""
        rows: dict[tuple[str, str | None], list[int]] = defaultdict(list)
        for name, failed in self.failed.items():
            for row in np.flatnonzero(failed).tolist():
                rows[name, self.predicted[name][row]].append(row)
        return rows


@dataclass(frozen=True)
class Claims:
    """The claims that the search suggests, and how each search went, by classifier, label and target."""

    claims: list[Claim]
    searches: Mapping[tuple[str, str, str | None], Suggested]


def claims_of(answered: LabelledAnswers, answers: ClaimAnswers, config: FailuresConfig) -> Claims:
    """Returns the claims that the part of discovery suggests."""
    claims, searches = [], {}
    for name, is_answered in answers.known.items():
        searched = is_answered & answered.of_part(SEARCH)
        for label in [*config.labels, *([ANY_LABEL] if len(config.labels) > 1 else [])]:
            of_label = answered.of_label(label) & searched
            configured: list[str | None] = [*(config.targets or {}).get(label, [])]
            for target in configured or [*targets(answers.predicted[name], answers.failed[name], of_label), None]:
                failed = answers.towards(name, target)
                suggested = conditions(answered, label, failed, searched, config.smallest_ratio)
                searches[name, label, target] = suggested
                claims += [Claim(name, condition, target) for condition in suggested.conditions]
    return Claims(claims, searches)


@dataclass(frozen=True)
class Parts:
    """The images' values and the answers to them, by part."""

    answered: LabelledAnswers
    answers: ClaimAnswers

    def sides(self, claim: Claim, part: str, any_failure: bool = False) -> ConditionCounts:
        of_part = self.answered.of_part(part)
        failed = self.answers.towards(claim.classifier, None if any_failure else claim.target)
        return condition_counts(self.answered, claim.condition, failed, self.answers.known[claim.classifier] & of_part)

    def by_cluster(self, claim: Claim, part: str) -> ClusteredSides:
        """Returns the counts of `condition_counts` by cluster."""
        in_part = self.answers.known[claim.classifier] & self.answered.of_part(part)
        failed = self.answers.towards(claim.classifier, claim.target)
        return clustered_condition_counts(self.answered, claim.condition, failed, in_part)

    def correlation(self, claim: Claim) -> Correlation:
        """Returns the intraclass correlation of failures on the label's images of all parts, those with the claim's
        condition and those without it each for themselves."""
        failed = self.answers.towards(claim.classifier, claim.target)
        counts = clustered_condition_counts(
            self.answered, claim.condition, failed, self.answers.known[claim.classifier]
        )
        side, cluster = np.nonzero(counts.images)
        rho, _ = cluster_correlation(side, counts.failures[side, cluster], counts.images[side, cluster])
        return UNKNOWN if np.isnan(rho) else Correlation(rho, max(counts.images.shape[1] - 2.0, 1.0))


class Judgement(TypedDict):
    """What the images of the test say of a claim: columns of `tables.HYPOTHESES`."""

    e_value: float | None
    p_value: float | None
    q_value: float | None
    verdict: str
    doubts: list[str]


def hypotheses(config: FailuresConfig, source: str, parts: Parts, claims: list[Claim]) -> pa.Table:
    """Returns the rows of `tables.HYPOTHESES` of both stages. The images of the test are one batch of evidence."""
    if not claims:
        return HYPOTHESES.empty_table()
    judge = _judged_by_clusters if parts.answered.clusters is not None else _judged
    rows: list[HypothesisRow] = []
    for claim, judgement in zip(claims, judge(config, parts, claims), strict=True):
        row = _row(config, source, claim, parts, MEASURE)
        row["spent"] += parts.sides(claim, TEST).images
        rows.append({**row, **judgement})
    rows += [_row(config, source, claim, parts, SEARCH) for claim in claims]
    return pa.Table.from_pylist(rows, HYPOTHESES)


def _judged(config: FailuresConfig, parts: Parts, claims: list[Claim]) -> list[Judgement]:
    """Judges claims by the images of the test, which are one batch of evidence."""
    in_search, tested = ([parts.sides(claim, part) for claim in claims] for part in (SEARCH, TEST))
    expected = [
        sides.failures / sides.images * (sides.others + 1) / (sides.other_failures + 0.5) for sides in in_search
    ]
    number = np.arange(len(claims))
    race = Race.start(number, number, RaceTerms(alpha=config.alpha, worth=config.smallest_ratio), expected)
    race = race.after(*np.array([[s.failures, s.images, s.other_failures, s.others] for s in tested]).T)
    evidence = zip(race.evidence.e_values.tolist(), race.q_values.tolist(), race.verdicts.tolist(), strict=True)
    return [
        {
            "e_value": e,
            "p_value": min(1.0, 1 / max(e, 1e-300)),
            "q_value": q,
            "verdict": {"failure": "failure", "hopeless": "not_shown"}.get(verdict, "undetermined"),
            "doubts": [],
        }
        for e, q, verdict in evidence
    ]


def _judged_by_clusters(config: FailuresConfig, parts: Parts, claims: list[Claim]) -> list[Judgement]:
    """Judges claims by the clusters of the test: by p-values, for how much clusters differ is estimated, and an e-value
    would need to know it."""
    tested = [parts.by_cluster(claim, TEST) for claim in claims]
    p = np.array([float(clustered_more_p_values(sides)) for sides in tested])
    q = benjamini_hochberg(p)
    confidence = 1 - 2 * RaceTerms().risk
    most = [
        float(clustered_rate_ratios(counts, confidence, parts.correlation(claim)).high)
        for claim, counts in zip(claims, tested, strict=True)
    ]
    judgements: list[Judgement] = []
    for claim, counts, p_value, q_value, high in zip(claims, tested, p.tolist(), q.tolist(), most, strict=True):
        doubts = _of_one_cluster(config, counts, parts.by_cluster(claim, MEASURE))
        verdict = "failure" if q_value <= config.alpha and not doubts else "undetermined"
        if verdict == "undetermined" and high < config.smallest_ratio and not doubts:
            verdict = "not_shown"
        judgements.append(
            {"e_value": None, "p_value": p_value, "q_value": q_value, "verdict": verdict, "doubts": doubts}
        )
    return judgements


def _of_one_cluster(config: FailuresConfig, tested: ClusteredSides, measured: ClusteredSides) -> list[str]:
    """Returns why a claim cannot be told from its cluster."""
    labelled = config.images.labelled
    assert labelled is not None
    for verb, counts in (("test", tested), ("measure", measured)):
        for subject, count in zip(("its images", "the images without it"), counts.clusters.tolist(), strict=True):
            if count == 1:
                return [
                    f"{subject} that {verb} it are of one {labelled.cluster}, whose other properties cannot be told "
                    "from it: give it images of others"
                ]
    return []


def _row(config: FailuresConfig, source: str, claim: Claim, parts: Parts, part: str) -> HypothesisRow:
    """Returns what one part shows of a claim, without evidence. The baseline: the label's other images of it."""
    sides, caption = parts.sides(claim, part), claim.condition.caption
    confidence = 1 - config.alpha
    own_trials, other_trials = (
        Trials.of([f], [n]) for f, n in ((sides.failures, sides.images), (sides.other_failures, sides.others))
    )
    clusters: int | None = None
    if parts.answered.clusters is None:
        rates, ratios = (
            failure_rates(own_trials.failures, own_trials.draws, confidence),
            rate_ratios(own_trials, other_trials, confidence),
        )
    else:
        by_cluster = parts.by_cluster(claim, part)
        clusters = int(by_cluster.clusters[OWN])
        correlation = parts.correlation(claim)
        rates = clustered_rates(by_cluster, confidence, correlation)
        ratios = clustered_rate_ratios(by_cluster, confidence, correlation)
        ratios = RateEstimate(*map(np.atleast_1d, ratios))
    rate, rate_low, rate_high = (float(side[0]) for side in rates)
    ratio, ratio_low, ratio_high = (float(side[0]) for side in ratios)
    return {
        "classifier": claim.classifier,
        "generator": source,
        "rule": config.rule,
        "label": claim.condition.label,
        "target": claim.target,
        "caption": caption.text,
        "parent_caption": Condition(claim.condition.label).caption.text,
        "stage": DISCOVERY if part == SEARCH else CONFIRMATION,
        "draws": sides.images,
        "failures": sides.failures,
        "any_failures": parts.sides(claim, part, any_failure=True).failures,
        "rate": rate,
        "rate_low": rate_low,
        "rate_high": rate_high,
        "baseline_rate": float(other_trials.rates[0]),
        "ratio": ratio,
        "ratio_low": ratio_low,
        "ratio_high": ratio_high,
        "verdict": "undetermined",
        "caption_id": caption.caption_id,
        "origin": caption.origin,
        "baseline_draws": sides.others,
        "baseline_failures": sides.other_failures,
        "spent": sides.images,
        "doubts": [],
        "clusters": clusters,
    }
