"""The terminal summary of a run of `c2b failures`: its findings, and the number of hypotheses by verdict.

Knows the report's facts and sentences; knows nothing of terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from c2b_ray.audits.failures.report.headline import absent, stages, tally
from c2b_ray.audits.failures.report.method import (
    caption_line,
    caption_summary,
    reach_summary,
    rule_line,
    search_line,
    spending,
)
from c2b_ray.audits.failures.report.page import read_facts
from c2b_ray.audits.failures.report.rows import FAILURE, NOT_SHOWN, UNDETERMINED, Finding, Hypothesis
from c2b_ray.audits.failures.report.sentences import Facts, measured_alike, says, target_of
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.report import words
from c2b_ray.report.method import mapping, setup_lines
from c2b_ray.report.words import Column, Summary
from c2b_ray.text import finite

MOST_ROWS = 15
LONGEST = 60  # characters of a caption
COLUMNS = (
    *(Column(name) for name in ("classifier", "label", "taken for", "the caption says")),
    *(Column(name, number=True) for name in ("rate", "interval", "baseline", "times", "q")),
    Column("in doubt"),
)


def summary(run: FailuresRun) -> Summary:
    facts = read_facts(run)
    verdicts = Counter(hypothesis.verdict for hypothesis in facts.hypotheses)
    rule = rule_line(facts.config)
    nothing, search = absent(facts), mapping(facts.manifest.get("search"))
    captions_tried = mapping(facts.manifest.get("caption_search"))
    tally_line = tally(facts.hypotheses, facts.findings)
    lines = [
        *([nothing] if nothing else []),
        tally_line,
        stages(facts),
        spending(facts.tallies, facts.manifest).line,
        *([rule] if rule else []),
        *filter(None, [search_line(search), reach_summary(search)]),
        *filter(None, [caption_line(captions_tried), caption_summary(captions_tried)]),
    ]
    shown_findings = facts.findings[:MOST_ROWS]
    by_classifier = Counter(finding.lead.classifier for finding in facts.findings)
    return Summary(
        title=words.shown_of("Findings", len(shown_findings), len(facts.findings)),
        columns=COLUMNS,
        rows=[_row(finding, facts) for finding in shown_findings],
        marks=["bad"] * len(shown_findings),
        lines=lines,
        report=run.report,
        first=setup_lines(facts.manifest),
        headline=". ".join([*map(_strongest, shown_findings[:1]), tally_line]),
        findings={
            name: by_classifier[name] for name in sorted({hypothesis.classifier for hypothesis in facts.hypotheses})
        },
        to_json={
            "run": run.path,
            "report": run.report,
            "setup": facts.manifest.get("setup") or [],
            "verdicts": {name: verdicts[name] for name in (FAILURE, NOT_SHOWN, UNDETERMINED)},
            "images": {
                f"{stage} {part}": effort.images for (stage, part), effort in sorted(facts.tallies.efforts.items())
            },
            "search": search or None,
            "caption_search": captions_tried or None,
            "findings": findings(facts.findings),
        },
    )


def _strongest(finding: Finding) -> str:
    lead = finding.lead
    rate = words.rate(lead.rate)
    return f"{lead.label}, “{says(lead, LONGEST)}”: " + ("fails" if rate == words.UNKNOWN else f"{rate} fail")


def _row(finding: Finding, facts: Facts) -> tuple[str, ...]:
    lead = finding.lead
    return (
        facts.names[lead.classifier],
        lead.label,
        target_of(lead),
        says(lead, LONGEST),
        words.rate(lead.rate),
        words.rate_range(lead.rate_low, lead.rate_high),
        words.rate(lead.baseline_rate),
        words.times(lead.ratio),
        words.small_probability(lead.q_value),
        "yes" if lead.doubts else "its rate" if measured_alike(lead) else "",
    )


def findings(findings_of_run: Sequence[Finding]) -> list[Mapping[str, Any]]:
    """Returns findings for programs, in the order of the page; `alike`: the captions with the same meaning."""
    return [
        {**_numbers(finding.lead), "alike": [caption_finding.caption for caption_finding in finding.alike]}
        for finding in findings_of_run
    ]


def _numbers(hypothesis: Hypothesis) -> Mapping[str, Any]:
    """Returns the hypothesis's row, with null for unknown values."""
    row: Mapping[str, Any] = finite(
        {name: getattr(hypothesis, name) for name in Hypothesis.__dataclass_fields__ if name != "stage"}
    )
    return row
