"""The report of a run of `c2b failures`: tables → view model → HTML, one self-contained file.

    rows       hypotheses as typed rows, and what the rounds of draws add up to
    sentences  findings in words
    headline   the head of the page

It reads a run and writes its report.html; it knows nothing of models or of how the run was computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from c2b_ray.audits.failures.report import headline
from c2b_ray.audits.failures.report.captions import MOST_ROWS, CaptionRow, caption_row, undecided_first
from c2b_ray.audits.failures.report.comparison import Compared, compared
from c2b_ray.audits.failures.report.gallery import COLUMNS, MOST_SHOWN, Detail, Examples, details
from c2b_ray.audits.failures.report.headline import Headline
from c2b_ray.audits.failures.report.labels import Labels, labels
from c2b_ray.audits.failures.report.method import (
    ReachRow,
    Spending,
    caption_columns,
    caption_line,
    caption_rows,
    method,
    ratio_of,
    reach_columns,
    reach_rows,
    rule_line,
    search_line,
    spending,
)
from c2b_ray.audits.failures.report.reliability import Reliability, reliability
from c2b_ray.audits.failures.report.rows import COLUMNS as COUNTED
from c2b_ray.audits.failures.report.sentences import (
    MOST_DETAILED,
    Facts,
    Statement,
    Tables,
    facts_of,
    merge_statements,
    says,
    statement,
)
from c2b_ray.audits.failures.report.transfers import Transfers, transfers
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.report import words
from c2b_ray.report.answer import MOST, Answer
from c2b_ray.report.method import Method, SetupNote, mapping, setup_notes
from c2b_ray.report.page import STYLES, render
from c2b_ray.report.pictures import chosen_rows, thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Span
from c2b_ray.storage.files import write_bytes

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
