"""The data of a page of `c2b failures`: a run's rows, findings and tallies, before they become text.

Knows the tables of `tables.failures` and a manifest, any part of which may be absent; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.failures.config import ANY_LABEL
from c2b_ray.audits.failures.report.rows import (
    Baseline,
    Finding,
    Hypothesis,
    Tallies,
    Tally,
    TallyKey,
    baselines_of,
    findings_of,
    hypotheses_of,
    tallies_of,
)
from c2b_ray.audits.failures.report.sentences import GENERATED, LABELLED, Wording
from c2b_ray.report.method import mapping, number
from c2b_ray.report.redact import names_of
from c2b_ray.stats.rates import RateEstimate, failure_rates

MOST_DETAILED = 24


@dataclass(frozen=True)
class Tables:
    """The tables of a run; `rounds` of `tallies.COLUMNS`, without its pictures."""

    candidates: pa.Table
    rounds: pa.Table
    hypotheses: pa.Table
    reliability: pa.Table
    transfers: pa.Table


@dataclass(frozen=True)
class Facts:
    """`names`, `generators`: what the page calls classifiers and generators; `confidence`: of intervals."""

    manifest: Mapping[str, Any]
    tables: Tables
    hypotheses: Sequence[Hypothesis]
    findings: Sequence[Finding]
    baselines: Mapping[str, Baseline]
    tallies: Tallies
    names: Mapping[str, str]
    generators: Mapping[str, str]
    confidence: float
    wording: Wording

    @property
    def labelled(self) -> bool:
        """Tells whether labelled images replace a generator's."""
        return self.wording is LABELLED

    @property
    def cluster(self) -> str:
        """What images come in clusters of, such as `camera`; empty where they are independent."""
        images = mapping(mapping(self.manifest.get("config")).get("images"))
        return str(mapping(images.get("labelled")).get("cluster") or "")

    def rate(self, failures: int, draws: int) -> RateEstimate:
        """Returns a failure rate with limits, NaN where images come in clusters: counts alone do not tell them."""
        estimate = failure_rates(failures, draws, self.confidence)
        unknown = np.full_like(estimate.value, np.nan)
        return RateEstimate(estimate.value, unknown, unknown) if self.cluster else estimate

    @property
    def primary(self) -> list[str]:
        """Returns the generators of the hypotheses, or without hypotheses those of discovery; those of generalising are
        excluded."""
        several = dict.fromkeys(one.generator for one in self.hypotheses)
        return list(several) or list(dict.fromkeys(generator for *_, generator in self.tallies.discovered))

    @property
    def detailed(self) -> Sequence[Finding]:
        """Returns the findings that are shown with a plot and pictures."""
        return self.findings[:MOST_DETAILED]

    def at_baseline(self, one: Hypothesis, classifier: str | None = None) -> Tally:
        """Returns the tally of confirmation's images of the hypothesis's baseline, from the same generator."""
        return self.tallies.of(*self.baseline_key(one, classifier))

    def baseline_key(self, one: Hypothesis, classifier: str | None = None) -> TallyKey:
        baseline = self.baselines.get(one.label)
        return baseline.caption_id if baseline else "", classifier or one.classifier, one.generator

    def shown(self) -> dict[TallyKey, set[str]]:
        """Returns the captions with pictures, and the labels of their findings."""
        wanted: dict[TallyKey, set[str]] = {}
        for one in (finding.lead for finding in self.detailed):
            for caption_id in (one.caption_id, self.baseline_key(one)[0]):
                for generator in self.generators:
                    targets = wanted.setdefault((caption_id, one.classifier, generator), set())
                    targets |= {one.target} if one.target is not None else set()
        return wanted


def facts_of(manifest: Mapping[str, Any], tables: Tables) -> Facts:
    config = mapping(manifest.get("config"))
    labelled = bool(mapping(mapping(config.get("images")).get("labelled")))
    hypotheses = hypotheses_of(tables.hypotheses, tables.candidates)
    classifiers = dict.fromkeys(
        [*_specs(config), *(one.classifier for one in hypotheses), *tables.rounds["classifier"].unique().to_pylist()]
    )
    generators = dict.fromkeys(
        [*(one.generator for one in hypotheses), *tables.rounds["generator"].unique().to_pylist()]
    )
    return Facts(
        manifest=manifest,
        tables=tables,
        hypotheses=hypotheses,
        findings=findings_of(hypotheses),
        baselines=baselines_of(tables.candidates),
        tallies=tallies_of(tables.rounds, counted_once(tables.candidates) if labelled else None),
        names=names_of(list(classifiers)),
        generators=names_of(list(generators)),
        confidence=1 - number(config.get("alpha"), 0.05),
        wording=LABELLED if labelled else GENERATED,
    )


def counted_once(candidates: pa.Table) -> set[str]:
    """Returns the captions whose rounds contain each labelled image once: captions of a label share its images, and the
    baselines include one over all labels where a caption holds for any label."""
    baselines = baselines_of(candidates)
    return {baselines[label].caption_id for label in ([ANY_LABEL] if ANY_LABEL in baselines else baselines)}


def _specs(config: Mapping[str, Any]) -> list[str]:
    """Returns the names of a config's classifiers in hypotheses: their specs, or their names in the config."""
    named = config.get("classifier")
    return [named] if isinstance(named, str) else [str(name) for name in named or ()]
