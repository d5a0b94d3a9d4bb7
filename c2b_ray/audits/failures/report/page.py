"""The report of a run of `c2b failures`: its page, one self-contained file, and its terminal summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from c2b_ray.audits.failures.report import sentences as headline
from c2b_ray.audits.failures.report.captions import (
    MOST_ROWS,
    CaptionRow,
    Transfers,
    caption_row,
    transfers,
    undecided_first,
)
from c2b_ray.audits.failures.report.comparison import Compared, compared
from c2b_ray.audits.failures.report.gallery import COLUMNS, MOST_SHOWN, Detail, Examples, details
from c2b_ray.audits.failures.report.labels import Labels, Reliability, labels, reliability
from c2b_ray.audits.failures.report.method import (
    ReachRow,
    Spending,
    caption_columns,
    caption_line,
    caption_rows,
    caption_summary,
    method,
    ratio_of,
    reach_columns,
    reach_rows,
    reach_summary,
    rule_line,
    search_line,
    spending,
)
from c2b_ray.audits.failures.report.rows import COLUMNS as COUNTED
from c2b_ray.audits.failures.report.rows import FAILURE, NOT_SHOWN, UNDETERMINED, Finding, Hypothesis
from c2b_ray.audits.failures.report.sentences import (
    MOST_DETAILED,
    Facts,
    Headline,
    Statement,
    Tables,
    absent,
    facts_of,
    measured_alike,
    merge_statements,
    says,
    stages,
    statement,
    tally,
    target_of,
)
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.report import words
from c2b_ray.report.method import Method, SetupNote, mapping, setup_lines, setup_notes
from c2b_ray.report.page import MOST, STYLES, Answer, render
from c2b_ray.report.pictures import chosen_rows, thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Span, Summary
from c2b_ray.storage.files import write_bytes
from c2b_ray.text import finite

# The report of `c2b failures` as a tree of frozen dataclasses that hold nothing but text: all counting ends here.


MOST_SENTENCES, MOST_REACHES = 40, 200
PICTURES = 4  # of each answer


@dataclass(frozen=True)
class View:
    headline: Headline
    setup: tuple[SetupNote, ...]
    classifiers: tuple[str, ...]
    several: bool
    labelled: bool
    cluster: str
    interval_name: str
    alpha: str
    ratio: str
    rule: str
    answers: tuple[Answer, ...]
    findings: tuple[Statement, ...]
    findings_line: str
    findings_more: int
    captions: tuple[CaptionRow, ...]
    captions_more: int
    details: tuple[Detail, ...]
    compared: Compared
    labels: Labels
    reliability: Reliability
    transfers: Transfers
    rest: tuple[CaptionRow, ...]
    rest_line: str
    rest_more: int
    absent: str
    search_line: str
    reach_columns: tuple[str, ...]
    reach: tuple[ReachRow, ...]
    reach_more: int
    spending: Spending
    method: Method


def build_view(facts: Facts, examples: Examples, thumbnails: Mapping[str, str]) -> View:
    """`thumbnails`: a data: URI by an example's key; those that are absent are described in words."""
    sentences = [
        statement(finding, facts.names[finding.lead.classifier], link, facts.wording)
        for finding, link in zip(facts.findings, _links(len(facts.findings)), strict=True)
    ]
    statements = merge_statements(facts.findings, sentences)
    of_findings = (hypothesis for finding in facts.findings for hypothesis in finding.confirmed)
    confirmed = list(
        dict.fromkeys([*of_findings, *(hypothesis for hypothesis in facts.hypotheses if hypothesis.confirmed)])
    )
    undecided = undecided_first(facts.hypotheses)
    search = mapping(facts.manifest.get("search"))
    captions_tried = mapping(facts.manifest.get("caption_search"))
    reach = reach_rows(search, facts.names) or caption_rows(captions_tried, facts.names)
    detailed = details(facts, sentences, examples, thumbnails)
    return View(
        headline=headline.headline(facts),
        setup=setup_notes(facts.manifest),
        classifiers=tuple(facts.names.values()),
        several=len(facts.names) > 1,
        labelled=facts.labelled,
        cluster=clean(facts.cluster),
        interval_name=words.percent(facts.confidence),
        alpha=words.decimal(round(1 - facts.confidence, 10)),
        ratio=ratio_of(facts.config),
        rule=rule_line(facts.config),
        answers=answers(statements, detailed, headline.absent(facts)),
        findings=tuple(statements[:MOST_SENTENCES]),
        findings_line=headline.order_line(len(facts.findings), len(statements), facts.confidence),
        findings_more=max(len(statements) - MOST_SENTENCES, 0),
        captions=tuple(caption_row(hypothesis, facts) for hypothesis in confirmed[:MOST_ROWS]),
        captions_more=max(len(confirmed) - MOST_ROWS, 0),
        details=detailed,
        compared=compared(facts),
        labels=labels(facts),
        reliability=reliability(facts.tables.reliability, facts.generators),
        transfers=transfers(facts.tables.transfers, _says(facts), facts.names, 1 - facts.confidence, facts.primary),
        rest=tuple(caption_row(hypothesis, facts) for hypothesis in undecided[:MOST_ROWS]),
        rest_line=headline.rest_line(undecided, ratio_of(facts.config)),
        rest_more=max(len(undecided) - MOST_ROWS, 0),
        absent=headline.absent(facts),
        search_line=search_line(search) or caption_line(captions_tried),
        reach_columns=reach_columns(search) or caption_columns(captions_tried),
        reach=reach[:MOST_REACHES],
        reach_more=max(len(reach) - MOST_REACHES, 0),
        spending=spending(facts.tallies, facts.manifest),
        method=method(facts.manifest),
    )


def answers(shown: Sequence[Statement], detailed: Sequence[Detail], absent: str) -> tuple[Answer, ...]:
    """Returns the first findings, each with four failures; without any what `absent` says."""
    pictures = {
        detail.statement.link: gallery
        for detail in detailed
        for panel in detail.panels
        if (gallery := panel.gallery) is not None  # the last panel is of the caption, the first of its baseline
    }
    result = []
    for shown_statement in shown[:MOST]:
        gallery = pictures.get(shown_statement.link)
        galleries = () if gallery is None else (replace(gallery, pictures=gallery.pictures[:PICTURES]),)
        result.append(
            Answer(
                "against",
                "▼",
                shown_statement.sentence,
                (*shown_statement.beneath, *shown_statement.doubts),
                shown_statement.link,
                galleries,
            )
        )
    return tuple(result) or (Answer("undetermined", "◇", (Span(absent),), (), "open"),)


def _links(findings: int) -> list[str]:
    """Returns the anchor of each finding that is shown in detail."""
    return [f"finding-{i + 1}" if i < MOST_DETAILED else "" for i in range(findings)]


def _says(facts: Facts) -> dict[str, str]:
    return {hypothesis.caption_id: says(hypothesis) for hypothesis in facts.hypotheses}


def write_report(run: FailuresRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path.

    Of the rounds no picture is read but those of captions that are shown. StorageError where the file system refuses.
    """
    facts = read_facts(run)
    captions_shown = facts.shown()
    captions = list(dict.fromkeys(caption_id for caption_id, _, _ in captions_shown))
    examples = Examples(chosen_rows(run, "rounds", "caption_id", captions, COLUMNS), captions_shown)
    pictures = {
        example.key: example.image
        for key, targets in captions_shown.items()
        for target in (*targets, None)
        for example in examples.of(key, target, MOST_SHOWN)
    }
    view = build_view(facts, examples, thumbnails(pictures))
    write_bytes(run.report, render("failures.html.j2", view, (*STYLES, "failures.css")).encode())
    return run.report


def read_facts(run: FailuresRun) -> Facts:
    return facts_of(
        run.manifest,
        run.config,
        Tables(
            candidates=run.read("candidates"),
            rounds=run.read("rounds", COUNTED),
            hypotheses=run.read("hypotheses"),
            reliability=run.read("reliability"),
            transfers=run.read("transfers"),
        ),
    )


# The terminal summary of a run of `c2b failures`: its findings, and the number of hypotheses by verdict.


MOST_FINDINGS = 15
LONGEST = 60  # characters of a caption
SUMMARY_COLUMNS = (
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
    shown_findings = facts.findings[:MOST_FINDINGS]
    by_classifier = Counter(finding.lead.classifier for finding in facts.findings)
    return Summary(
        title=words.shown_of("Findings", len(shown_findings), len(facts.findings)),
        columns=SUMMARY_COLUMNS,
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
