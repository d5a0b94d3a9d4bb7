"""Each label at its baseline, before any caption: each classifier's failure rate and its wrong answers.

Knows tallies and hypotheses; knows nothing of pages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.audits.failures.report.rows import CONFIRMATION, DISCOVERY, Tally
from c2b_ray.audits.failures.report.sentences import Facts
from c2b_ray.report import words
from c2b_ray.report.redact import clean

MOST_ROWS = 400
MOST_TAKEN = 3


@dataclass(frozen=True)
class LabelRow:
    """`stage`: the stage that drew the images; discovery where confirmation drew none of the label."""

    classifier: str
    label: str
    rate: str
    interval: str
    draws: str
    stage: str
    taken_for: str
    captions: str
    findings: str


@dataclass(frozen=True)
class Labels:
    rows: tuple[LabelRow, ...]
    more: int


def labels(facts: Facts) -> Labels:
    """Returns a row per label and classifier, the label that fails most often first; images of all generators
    together."""
    captions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for hypothesis in facts.hypotheses:
        captions[hypothesis.label, hypothesis.classifier].add(hypothesis.caption_id)
    findings = Counter((finding.lead.label, finding.lead.classifier) for finding in facts.findings)
    pairs = [(label, classifier) for label in facts.baselines for classifier in facts.names]
    rows = [_row(*pair, facts, (len(captions[pair]), findings[pair])) for pair in pairs]
    rows.sort(key=lambda pair: (pair[0], pair[1].label, pair[1].classifier))
    return Labels(tuple(row for _, row in rows[:MOST_ROWS]), max(len(rows) - MOST_ROWS, 0))


def _row(label: str, classifier: str, facts: Facts, tried_and_found: tuple[int, int]) -> tuple[float, LabelRow]:
    """Returns the row with its sort key. `tried_and_found`: the numbers of captions tried, and of findings."""
    stage, counts = at_baseline(facts, label, classifier)
    rate = facts.rate(counts.failures, counts.draws)
    row = LabelRow(
        classifier=facts.names[classifier],
        label=clean(label),
        rate=words.rate(float(rate.value)),
        interval=words.rate_range(float(rate.low), float(rate.high)) if counts.draws else "",
        draws=words.count(counts.draws),
        stage=stage,
        taken_for=_taken(counts),
        captions=words.count(tried_and_found[0]),
        findings=words.count(tried_and_found[1]),
    )
    return -float(rate.value) if counts.draws else 1.0, row


def at_baseline(facts: Facts, label: str, classifier: str) -> tuple[str, Tally]:
    """Returns the stage that drew the images, confirmation where it drew any, and their tally."""
    caption_id = facts.baselines[label].caption_id
    keys = [(caption_id, classifier, generator) for generator in facts.primary]
    confirmed = _sum_tallies([facts.tallies.of(*key) for key in keys])
    if confirmed.draws:
        return CONFIRMATION, confirmed
    return DISCOVERY, _sum_tallies([facts.tallies.discovered.get(key, Tally()) for key in keys])


def _sum_tallies(tallies: Sequence[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.draws += tally.draws
        total.failures += tally.failures
        total.taken.update(tally.taken)
    return total


def _taken(tally: Tally) -> str:
    ranked = sorted(tally.taken.items(), key=lambda item: (-item[1], item[0]))[:MOST_TAKEN]
    return ", ".join(f"{clean(label)} ({words.percent(count / tally.failures)})" for label, count in ranked)
