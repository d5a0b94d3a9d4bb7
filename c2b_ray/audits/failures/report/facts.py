"""What a page of `c2b failures` and exports are made from: a run's rows, findings and tallies, and their wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.failures.config import ANY_LABEL, FailuresConfig
from c2b_ray.audits.failures.report.rows import (
    COLUMNS,
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
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.report.redact import names_of
from c2b_ray.stats.rates import RateEstimate, failure_rates

MOST_DETAILED = 24


@dataclass(frozen=True)
class Wording:
    """The wording for a run's captions: generators receive a prompt, labelled images have columns. `others`: what a
    caption is compared with; `titles`: of its panels; `stages`: with the numbers of images of both stages."""

    where: str
    others: str
    titles: tuple[str, str]
    stages: str


GENERATED = Wording(
    where="where the prompt says",
    others="of the baseline",
    titles=("Baseline", "With the caption"),
    stages="Captions were chosen on {discovery} (discovery). Every rate and verdict here is from "
    "{confirmation} other images (confirmation), from other seeds, that had no part in choosing them.",
)
LABELLED = Wording(
    where="where the table says",
    others="without it",
    titles=("All images of the label", "With the caption"),
    stages="Captions were chosen on a third of the table, {discovery} (discovery). Every verdict here is from one "
    "half of the other {confirmation} (confirmation), and every rate from the other half, which decided nothing.",
)


@dataclass(frozen=True)
class Tables:
    """The tables of a run; `rounds` of `rows.COLUMNS`, without its pictures."""

    candidates: pa.Table
    rounds: pa.Table
    hypotheses: pa.Table
    reliability: pa.Table
    transfers: pa.Table


@dataclass(frozen=True)
class Facts:
    """`names`, `generators`: what the page calls classifiers and generators; `confidence`: of intervals."""

    manifest: Mapping[str, Any]
    config: FailuresConfig
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
        return cluster_of(self.config)

    def rate(self, failures: int, draws: int) -> RateEstimate:
        """Returns a failure rate with limits, NaN where images come in clusters: counts alone do not tell them."""
        estimate = failure_rates(failures, draws, self.confidence)
        unknown = np.full_like(estimate.value, np.nan)
        return RateEstimate(estimate.value, unknown, unknown) if self.cluster else estimate

    @property
    def primary(self) -> list[str]:
        """Returns the generators of the hypotheses, or without hypotheses those of discovery; those of generalising are
        excluded."""
        own_generators = dict.fromkeys(hypothesis.generator for hypothesis in self.hypotheses)
        return list(own_generators) or list(dict.fromkeys(generator for *_, generator in self.tallies.discovered))

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
        targets_shown: dict[TallyKey, set[str]] = {}
        for hypothesis in (finding.lead for finding in self.detailed):
            for caption_id in (hypothesis.caption_id, self.baseline_key(hypothesis)[0]):
                for generator in self.generators:
                    targets = targets_shown.setdefault((caption_id, hypothesis.classifier, generator), set())
                    targets |= {hypothesis.target} if hypothesis.target is not None else set()
        return targets_shown


def facts_of(manifest: Mapping[str, Any], config: FailuresConfig, tables: Tables) -> Facts:
    labelled = config.images.labelled is not None
    hypotheses = hypotheses_of(tables.hypotheses, tables.candidates)
    generators = dict.fromkeys(
        [*(hypothesis.generator for hypothesis in hypotheses), *tables.rounds["generator"].unique().to_pylist()]
    )
    return Facts(
        manifest=manifest,
        config=config,
        tables=tables,
        hypotheses=hypotheses,
        findings=findings_of(hypotheses),
        baselines=baselines_of(tables.candidates),
        tallies=tallies_of(tables.rounds, counted_once(tables.candidates) if labelled else None),
        names=names_of(classifiers_in(config, tables.hypotheses, tables.rounds)),
        generators=names_of(list(generators)),
        confidence=1 - config.alpha,
        wording=LABELLED if labelled else GENERATED,
    )


def cluster_of(config: FailuresConfig) -> str:
    labelled = config.images.labelled
    return (labelled.cluster if labelled is not None else None) or ""


def classifiers_in(config: FailuresConfig, *tables: pa.Table) -> list[str]:
    """Returns the classifiers of the config, then those that the tables have besides."""
    in_tables = (name for table in tables for name in table["classifier"].unique().to_pylist())
    return list(dict.fromkeys([*config.specs, *in_tables]))


def counted_once(candidates: pa.Table) -> set[str]:
    """Returns the captions whose rounds contain each labelled image once: captions of a label share its images, and the
    baselines include one over all labels where a caption holds for any label."""
    baselines = baselines_of(candidates)
    return {baselines[label].caption_id for label in ([ANY_LABEL] if ANY_LABEL in baselines else baselines)}


def read_facts(run: FailuresRun) -> Facts:
    return facts_of(
        run.manifest,
        run.config,
        Tables(
            candidates=run.read("candidates"),
            rounds=run.read("rounds", COLUMNS),
            hypotheses=run.read("hypotheses"),
            reliability=run.read("reliability"),
            transfers=run.read("transfers"),
        ),
    )
