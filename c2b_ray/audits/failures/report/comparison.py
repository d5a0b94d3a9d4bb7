"""The texts of a comparison of two classifiers by their failures, for the page and a terminal.

Knows the columns of `tables.FAILURES_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from c2b_ray.audits.failures.report.labels import at_baseline
from c2b_ray.audits.failures.report.rows import Hypothesis, Tally, share
from c2b_ray.audits.failures.report.sentences import Facts, says, target_of
from c2b_ray.report import words
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, Rows, difference_texts
from c2b_ray.report.redact import clean

HEADINGS = (
    Heading("label"),
    Heading("taken for"),
    Heading("caption"),
    Heading("A", number=True),
    Heading("B", number=True),
    *DIFFERENCE,
    Heading("times", number=True, page_only=True),
    Heading("verdicts", page_only=True),
)
LONGEST = 400  # characters of a caption on the page


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    is_compared = row["p_value"] is not None
    verdicts = (row[f"verdict_{side}"] for side in "ab")
    return (
        clean(row["label"]),
        "any label" if row["target"] is None else clean(row["target"]),
        words.shortened(clean(row["caption"]), LONGEST),
        words.rate(row["rate_a"]) if row["draws_a"] else words.UNKNOWN,
        words.rate(row["rate_b"]) if row["draws_b"] else words.UNKNOWN,
        *difference_texts(row, _signed),
        words.times(row["ratio"]) if is_compared else words.UNKNOWN,
        " → ".join("not tested" if verdict is None else verdict.replace("_", " ") for verdict in verdicts),
    )


def _signed(difference: float) -> str:
    return f"{'+' if difference >= 0 else '−'}{words.rate(abs(difference))}"


def _not_compared(rows: Rows) -> str:
    """Tells how many captions only one of the two was measured on, and how many of these are findings."""
    parts = []
    for side in "ab":
        only_here = [row for row in rows if row["p_value"] is None and row[f"draws_{side}"]]
        findings = sum(row[f"verdict_{side}"] == "failure" for row in only_here)
        if only_here:
            hypothesis_count = f"{words.plural(len(only_here), 'hypothesis', 'hypotheses')} of {side.upper()} alone"
            parts.append(f"{hypothesis_count} ({words.plural(findings, 'finding')})")
    return f"Not compared: {words.listed(parts)}." if parts else ""


PAGES = Pages(
    kicker="Two classifiers compared",
    title="Where they fail",
    caption="Failure rates, the largest difference first",
    terms=(
        "Hypotheses are the same where label, wrong label, caption and generator are; each label’s baseline is "
        "compared too. Rates are from draws whose number was fixed before they were drawn, so that what each run "
        "stopped for has no part in them; the baseline of a label without any confirmation is that of discovery, "
        "whose number was fixed too.",
        "**More often** and **less often** where q is at most α\u00a0=\u00a0{alpha}: an exact test of how the "
        "failures of both divide among them (Przyborowski & Wilenski 1940), adjusted for the false discovery rate "
        "over all that both have (Benjamini & Hochberg 1995). Intervals of differences combine those of the rates "
        "(Newcombe 1998). Of runs with one seed and one generator both classifiers saw the same images, and "
        "counts alone are kept: tests and intervals hold however the failures of both go together, even where "
        "each fails on what the other gets right, and are too careful where both fail on the same images.",
    ),
    titles={"worse": "Fails more often", "better": "Fails less often", "undetermined": "Undetermined"},
    headings=HEADINGS,
    texts=_texts,
    remark=_not_compared,
)


# A comparison of several classifiers on the same images, at the baselines and on the captions of findings.


MOST_ROWS = 60


@dataclass(frozen=True)
class ClassifierLine:
    """`baseline_width`, `caption_width`: bars, of 100."""

    name: str
    findings: str
    baseline: str
    baseline_width: str
    captions: str
    caption_width: str


@dataclass(frozen=True)
class ComparedRate:
    """A rate with its bar. `width`: in percent of the largest rate in the row."""

    rate: str
    interval: str
    baseline: str
    width: str
    confirmed: bool


@dataclass(frozen=True)
class ComparedRow:
    label: str
    target: str
    says: str
    rates: tuple[ComparedRate, ...]


@dataclass(frozen=True)
class Compared:
    lines: tuple[ClassifierLine, ...]
    rows: tuple[ComparedRow, ...]
    more: int


def compared(facts: Facts) -> Compared:
    """Returns a line per classifier; with several, also a row per finding's caption with the rates of all."""
    lines = _lines(facts)
    if len(facts.names) < 2:
        return Compared(lines, (), 0)
    leads: dict[tuple[str, str | None, str], Hypothesis] = {}
    for finding in facts.findings:
        lead = finding.lead
        leads.setdefault((lead.caption_id, lead.target, lead.generator), lead)
    rows = [_row(lead, facts) for lead in list(leads.values())[:MOST_ROWS]]
    return Compared(lines, tuple(rows), max(len(leads) - MOST_ROWS, 0))


def _lines(facts: Facts) -> tuple[ClassifierLine, ...]:
    on_captions = {finding.lead.caption_id for finding in facts.findings}
    rates = {name: (_at_baselines(facts, name), _on_captions(facts, name, on_captions)) for name in facts.names}
    largest = max((rate for pair in rates.values() for rate in pair if rate == rate), default=0.0) or 1.0
    return tuple(
        ClassifierLine(
            name=facts.names[classifier],
            findings=words.count(sum(finding.lead.classifier == classifier for finding in facts.findings)),
            baseline=words.rate(base),
            baseline_width=_width(base, largest),
            captions=words.rate(hard),
            caption_width=_width(hard, largest),
        )
        for classifier, (base, hard) in rates.items()
    )


def _at_baselines(facts: Facts, classifier: str) -> float:
    """Computes the mean over all labels of the rate of any failure at the baseline, as the table of labels has them."""
    return _mean(at_baseline(facts, label, classifier)[1] for label in facts.baselines)


def _on_captions(facts: Facts, classifier: str, captions: set[str]) -> float:
    return _mean(
        tally
        for (caption, name, generator), tally in facts.tallies.confirmed.items()
        if name == classifier and caption in captions and generator in facts.primary
    )


def _mean(tallies: Iterable[Tally]) -> float:
    """Computes the mean of the rates of any failure; each tally has the same weight."""
    rates = [tally.failures / tally.draws for tally in tallies if tally.draws]
    return sum(rates) / len(rates) if rates else math.nan


def _row(hypothesis: Hypothesis, facts: Facts) -> ComparedRow:
    tallies = {name: facts.tallies.of(hypothesis.caption_id, name, hypothesis.generator) for name in facts.names}
    largest = max(
        (
            share(tally_of_any.towards(hypothesis.target), tally_of_any.draws)
            for tally_of_any in tallies.values()
            if tally_of_any.draws
        ),
        default=0.0,
    )
    confirmed = {
        each.classifier
        for finding in facts.findings
        for each in finding.captions
        if (each.caption_id, each.target) == (hypothesis.caption_id, hypothesis.target)
    }
    entries = []
    for name, tally in tallies.items():
        base, failures = facts.at_baseline(hypothesis, name), tally.towards(hypothesis.target)
        limits = facts.rate(failures, tally.draws)
        entries.append(
            ComparedRate(
                rate=words.rate(share(failures, tally.draws)),
                interval=words.rate_range(float(limits.low), float(limits.high)) if tally.draws else "",
                baseline=words.rate(share(base.towards(hypothesis.target), base.draws)),
                width=_width(share(failures, tally.draws), largest or 1.0),
                confirmed=name in confirmed,
            )
        )
    return ComparedRow(clean(hypothesis.label), target_of(hypothesis), says(hypothesis), tuple(entries))


def _width(rate: float, largest: float) -> str:
    return "0" if rate != rate else f"{100 * rate / largest:.1f}"
