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


def caption_row(one: Hypothesis, facts: Facts) -> CaptionRow:
    baseline = facts.at_baseline(one)
    return CaptionRow(
        classifier=facts.names[one.classifier],
        label=clean(one.label),
        target=target_of(one),
        says=says(one, 2_000),
        caption=clean(one.caption),
        origin=_ORIGINS.get(one.origin, one.origin),
        anyhow=words.rate(share(one.any_failures, one.draws)),
        baseline_anyhow=words.rate(share(baseline.failures, baseline.draws)),
        rate=words.rate(one.rate),
        interval=words.rate_range(one.rate_low, one.rate_high),
        draws=words.plural(one.draws, "image") + of_clusters(one, facts.cluster),
        baseline=words.rate(one.baseline_rate),
        baseline_draws=words.count(one.baseline_draws),
        ratio=words.times(one.ratio),
        ratio_interval=words.times_range(one.ratio_low, one.ratio_high),
        ratio_value=_plain(one.ratio),
        evidence=e_value(one.e_value),
        evidence_value=_plain(one.e_value),
        q=words.small_probability(one.q_value),
        dress=DRESSES.get(one.verdict, "undetermined"),
        sign=SIGNS.get(one.verdict, "◇"),
        verdict=NAMES.get(one.verdict, one.verdict),
        doubts="; ".join(clean(doubt) for doubt in one.doubts),
    )


def of_clusters(one: Hypothesis, cluster: str) -> str:
    """Returns how many clusters a caption's images are of; empty where images are independent."""
    return "" if one.clusters is None else f", {clean(cluster)}: {words.count(one.clusters)}"


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
    rest = [one for one in hypotheses if not one.confirmed]
    return sorted(
        rest,
        key=lambda one: (
            one.verdict != UNDETERMINED,
            -(0.0 if math.isnan(one.e_value) else one.e_value),
            one.label,
            one.caption,
        ),
    )
