"""Captions and their numbers as rows of a table: the counterpart of Tables 1, 3 and 4 of Wiles et al. 2022.

Knows hypotheses and words; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.audits.failures.report.rows import FAILURE, NOT_SHOWN, UNDETERMINED, Hypothesis, share
from c2b_ray.audits.failures.report.sentences import Facts, says, target_of
from c2b_ray.report import words
from c2b_ray.report.redact import clean

SIGNS = {FAILURE: "▼", NOT_SHOWN: "○", UNDETERMINED: "◇"}
NAMES = {FAILURE: "failure", NOT_SHOWN: "not shown", UNDETERMINED: "undetermined"}
DRESSES = {FAILURE: "against", NOT_SHOWN: "none", UNDETERMINED: "undetermined"}
"""A verdict's colour and marker, by their names in the style sheet."""

MOST_ROWS = 300
LARGEST = 1e300
_ORIGINS = {
    "cluster": "describes a cluster of failures",
    "sentence": "one sentence",
    "pair": "two sentences",
    "shorter": "a sentence left out",
    "adjective": "adjectives left out",
    "language_model": "by the language model",
    "person": "by a person",
    "file": "from the config",
}


@dataclass(frozen=True)
class CaptionRow:
    """A caption's numbers as text. `anyhow`: the rate of any failure; `baseline_anyhow`: the baseline's; `..._value`:
    the sort keys of a table."""

    classifier: str
    label: str
    target: str
    says: str
    caption: str
    origin: str
    anyhow: str
    baseline_anyhow: str
    rate: str
    interval: str
    draws: str
    baseline: str
    baseline_draws: str
    ratio: str
    ratio_interval: str
    ratio_value: str
    evidence: str
    evidence_value: str
    q: str
    dress: str
    sign: str
    verdict: str
    doubts: str


def caption_row(hypothesis: Hypothesis, facts: Facts) -> CaptionRow:
    baseline = facts.at_baseline(hypothesis)
    return CaptionRow(
        classifier=facts.names[hypothesis.classifier],
        label=clean(hypothesis.label),
        target=target_of(hypothesis),
        says=says(hypothesis, 2_000),
        caption=clean(hypothesis.caption),
        origin=_ORIGINS.get(hypothesis.origin, hypothesis.origin),
        anyhow=words.rate(share(hypothesis.any_failures, hypothesis.draws)),
        baseline_anyhow=words.rate(share(baseline.failures, baseline.draws)),
        rate=words.rate(hypothesis.rate),
        interval=words.rate_range(hypothesis.rate_low, hypothesis.rate_high),
        draws=words.plural(hypothesis.draws, "image") + of_clusters(hypothesis, facts.cluster),
        baseline=words.rate(hypothesis.baseline_rate),
        baseline_draws=words.count(hypothesis.baseline_draws),
        ratio=words.times(hypothesis.ratio),
        ratio_interval=words.times_range(hypothesis.ratio_low, hypothesis.ratio_high),
        ratio_value=_plain(hypothesis.ratio),
        evidence=e_value(hypothesis.e_value),
        evidence_value=_plain(hypothesis.e_value),
        q=words.small_probability(hypothesis.q_value),
        dress=DRESSES.get(hypothesis.verdict, "undetermined"),
        sign=SIGNS.get(hypothesis.verdict, "◇"),
        verdict=NAMES.get(hypothesis.verdict, hypothesis.verdict),
        doubts="; ".join(clean(doubt) for doubt in hypothesis.doubts),
    )


def of_clusters(hypothesis: Hypothesis, cluster: str) -> str:
    """Returns how many clusters a caption's images are of; empty where images are independent."""
    return "" if hypothesis.clusters is None else f", {clean(cluster)}: {words.count(hypothesis.clusters)}"


def e_value(value: float) -> str:
    if math.isnan(value):
        return words.UNKNOWN
    if value >= 1e6:
        return "∞" if math.isinf(value) else f"10{_superscript(math.floor(math.log10(value)))}"
    return words.count(round(value)) if value >= 100 else f"{value:.2g}"


def _plain(value: float) -> str:
    """Formats a number for scripts; infinity becomes the largest number."""
    return "" if math.isnan(value) else f"{min(value, LARGEST):.6f}"


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def undecided_first(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the hypotheses that are no findings: undetermined ones first, those with more evidence before others."""
    undecided = [hypothesis for hypothesis in hypotheses if not hypothesis.confirmed]
    return sorted(
        undecided,
        key=lambda hypothesis: (
            hypothesis.verdict != UNDETERMINED,
            -(0.0 if math.isnan(hypothesis.e_value) else hypothesis.e_value),
            hypothesis.label,
            hypothesis.caption,
        ),
    )
