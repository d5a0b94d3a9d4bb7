"""The texts of a comparison of two classifiers by their failures, for the page and a terminal.

Knows the columns of `tables.FAILURES_COMPARISON`; does not know how the numbers were computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from c2b_ray.audits.failures.report.labels import at_baseline
from c2b_ray.audits.failures.report.rows import Hypothesis, Tally, share
from c2b_ray.audits.failures.report.sentences import Facts, says, target_of
from c2b_ray.report import words
from c2b_ray.report.blocks import Bar, Cell, Paragraph, Section, Segment, Table, Verdict, spec
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, Rows, difference_texts
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Span

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


def compared(facts: Facts) -> list[Section]:
    """Returns a line per classifier, and a row per finding's caption with the rates of all; nothing where there is one
    classifier alone, or no finding."""
    leads: dict[tuple[str, str | None, str], Hypothesis] = {}
    for finding in facts.findings:
        lead = finding.lead
        leads.setdefault((lead.caption_id, lead.target, lead.generator), lead)
    if len(facts.names) < 2 or not leads:
        return []
    columns = [
        Column("Label"), Column("Taken for"), Column("The caption says"),
        *(Column(name, number=True, heading=(spec(name),)) for name in facts.names.values()),
    ]  # fmt: skip
    caption = (
        "The caption of each finding: how often each classifier fails so, with its "
        f"{words.percent(facts.confidence)} interval and the baseline’s rate; ▼ marks confirmed failures"
    )
    of_findings = Table(
        columns,
        [_row(lead, facts) for lead in list(leads.values())[:MOST_ROWS]],
        "Findings of all classifiers",
        "matrix",
        caption,
        more=words.further(len(leads), MOST_ROWS, "in the run’s rounds"),
    )
    intro = (
        "All classifiers answered for the same images. A caption was tried on all of them, whichever failures it was "
        "made from."
    )
    blocks = [Paragraph(intro), _mean_rates(facts), of_findings]
    return [Section("Classifiers compared", blocks, "compared", "Classifiers compared")]


def _mean_rates(facts: Facts) -> Table:
    """Returns each classifier's mean rate of any failure, at the baselines and on the captions of findings."""
    on_captions = {finding.lead.caption_id for finding in facts.findings}
    rates = {name: (mean_at_baselines(facts, name), _on_captions(facts, name, on_captions)) for name in facts.names}
    largest = max((rate for pair in rates.values() for rate in pair if rate == rate), default=0.0) or 1.0
    findings = Counter(finding.lead.classifier for finding in facts.findings)
    columns = [
        Column("Classifier", spec=True), Column("Findings", number=True), Column("Baselines", number=True),
        Column("Share", hidden=True), Column("Captions", number=True), Column("Share", hidden=True),
    ]  # fmt: skip
    rows = [
        (
            facts.names[name],
            words.count(findings[name]),
            words.rate(at_baselines),
            Bar([Segment("none", _width(at_baselines, largest))]),
            words.rate(on_findings),
            Bar([Segment("against", _width(on_findings, largest))]),
        )
        for name, (at_baselines, on_findings) in rates.items()
    ]
    caption = "Mean rate of any failure: over the labels’ baselines, and over the captions of all findings"
    return Table(columns, rows, caption=caption, style="facts ratios")


def mean_at_baselines(facts: Facts, classifier: str) -> float:
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


def _row(hypothesis: Hypothesis, facts: Facts) -> list[str | Cell]:
    """Returns a caption's rates of the hypothesis's failure. Bars are in percent of the row's largest rate."""
    target = hypothesis.target
    tallies = {name: facts.tallies.of(hypothesis.caption_id, name, hypothesis.generator) for name in facts.names}
    rates = {name: share(tally.towards(target), tally.draws) for name, tally in tallies.items()}
    largest = max((rate for rate in rates.values() if rate == rate), default=0.0) or 1.0
    confirmed = {
        each.classifier
        for finding in facts.findings
        for each in finding.captions
        if (each.caption_id, each.target) == (hypothesis.caption_id, target)
    }
    return [
        clean(hypothesis.label),
        target_of(hypothesis),
        Cell(says(hypothesis), style="says"),
        *(_rate(hypothesis, name, tallies[name], facts, largest, name in confirmed) for name in facts.names),
    ]


def _rate(hypothesis: Hypothesis, name: str, tally: Tally, facts: Facts, largest: float, is_confirmed: bool) -> Cell:
    base, failures = facts.at_baseline(hypothesis, name), tally.towards(hypothesis.target)
    limits, rate = facts.rate(failures, tally.draws), share(failures, tally.draws)
    interval = words.rate_range(float(limits.low), float(limits.high)) if tally.draws else ""
    style = "against" if is_confirmed else "none"
    return Cell(
        (Span("confirmed:", style="unseen"), Span(f" {words.rate(rate)}")) if is_confirmed else words.rate(rate),
        [interval, f"baseline {words.rate(share(base.towards(hypothesis.target), base.draws))}"],
        "against" if is_confirmed else "",
        mark=Verdict("against", "▼", "") if is_confirmed else None,
        bar=Bar([Segment(style, _width(rate, largest))]),
    )


def _width(rate: float, largest: float) -> str:
    return "0" if rate != rate else f"{100 * rate / largest:.1f}"
