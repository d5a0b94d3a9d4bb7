"""Each label before any caption: how often classifiers fail, and whether the generator draws it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.discovery.reliability import LEAST_RATE
from c2b_ray.audits.failures.report.rows import CONFIRMATION, DISCOVERY, Tally, share
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


# Whether the generator draws what the prompt says: each label, and with which attributes (Wiles et al. 2022, App.
# B.3 and Fig. 5b).


MOST_LABELS = 200
MOST_VALUES = 6


@dataclass(frozen=True)
class Drawn:
    """`width`: of 100; `parents`: how many show a label of the same parent, empty without a hierarchy."""

    generator: str
    label: str
    images: str
    rate: str
    interval: str
    width: str
    parents: str
    attributes: tuple[str, ...]
    marked: bool


@dataclass(frozen=True)
class Reliability:
    """`present` is whether a verifier measured it."""

    present: bool
    line: str = ""
    rows: tuple[Drawn, ...] = ()
    more: int = 0
    generators: int = 1
    parents: bool = False


def reliability(table: pa.Table, names: Mapping[str, str]) -> Reliability:
    """`names`: what each generator is called."""
    rows = table.to_pylist()
    of_labels = [row for row in rows if row["attribute"] is None]
    if not of_labels:
        return Reliability(present=False)
    of_labels.sort(key=lambda row: (_rate(row), row["label"]))
    attributes: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        if row["attribute"] is not None:
            by_name = attributes.setdefault((row["generator"], row["label"]), {})
            by_name.setdefault(row["attribute"], []).append(row)
    return Reliability(
        present=True,
        line=_line(of_labels),
        rows=tuple(
            _drawn(row, names, attributes.get((row["generator"], row["label"]), {})) for row in of_labels[:MOST_LABELS]
        ),
        more=max(len(of_labels) - MOST_LABELS, 0),
        generators=len({row["generator"] for row in of_labels}),
        parents=any(row["parent_shown"] is not None for row in of_labels),
    )


def _rate(row: Mapping[str, Any]) -> float:
    rate = row["rate"]
    return float(rate) if rate is not None and not math.isnan(rate) else share(row["shown"], row["images"])


def _line(rows: Sequence[Mapping[str, Any]]) -> str:
    images, shown = sum(row["images"] for row in rows), sum(row["shown"] for row in rows)
    with_parent = [row for row in rows if row["parent_shown"] is not None]
    line = (
        f"Of {words.plural(images, 'image')} drawn for {words.plural(len(rows), 'label')}, "
        f"{words.rate(share(images - shown, images))} do not show their label"
    )
    if with_parent:
        parents_shown, images_drawn = (
            sum(row["parent_shown"] for row in with_parent),
            sum(row["images"] for row in with_parent),
        )
        line += (
            f", and {words.rate(share(images_drawn - parents_shown, images_drawn))} show nothing of the label’s parent"
        )
    return f"{line}, by the verifier’s word."


def _drawn(
    row: Mapping[str, Any], names: Mapping[str, str], attributes: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Drawn:
    rate = _rate(row)
    limits = (math.nan if row[name] is None else float(row[name]) for name in ("rate_low", "rate_high"))
    return Drawn(
        generator=names.get(row["generator"], clean(row["generator"])),
        label=clean(row["label"]),
        images=words.count(row["images"]),
        rate=words.percent(rate),
        interval=words.percent_range(*limits),
        width="0" if math.isnan(rate) else f"{100 * rate:.1f}",
        parents="" if row["parent_shown"] is None else words.percent(share(row["parent_shown"], row["images"])),
        attributes=tuple(_attribute(name, values) for name, values in attributes.items()),
        marked=rate < LEAST_RATE,
    )


def _attribute(name: str, values: Sequence[Mapping[str, Any]]) -> str:
    ranked = sorted(values, key=lambda row: (-_rate(row), row["value"] or ""))
    value_texts = [
        f"{clean(row['value'] or words.UNKNOWN)} {words.percent(_rate(row))}" for row in ranked[:MOST_VALUES]
    ]
    remainder = f" and {words.count(len(ranked) - MOST_VALUES)} more" if len(ranked) > MOST_VALUES else ""
    return f"{clean(name)}: {', '.join(value_texts)}{remainder}"
