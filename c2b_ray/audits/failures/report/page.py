"""The report of a run of `c2b failures`: its page, made of sections, and its terminal summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from c2b_ray.audits.failures.report.captions import caption_table, compared, elsewhere, in_numbers, undecided_first
from c2b_ray.audits.failures.report.detail import COLUMNS, MOST_SHOWN, Examples, Pictures, in_detail
from c2b_ray.audits.failures.report.facts import Facts, read_facts
from c2b_ray.audits.failures.report.labels import labels, reliability
from c2b_ray.audits.failures.report.method import (
    caption_line,
    caption_summary,
    method,
    ratio_of,
    reach,
    reach_summary,
    rule_line,
    search_line,
    spent,
    spent_line,
    terms,
)
from c2b_ray.audits.failures.report.rows import FAILURE, NOT_SHOWN, UNDETERMINED, Finding, Hypothesis
from c2b_ray.audits.failures.report.sentences import (
    absent,
    doubts_of,
    found_row,
    measured_alike,
    order_line,
    rest_line,
    says,
    scale,
    sentence,
    stages,
    tally,
    target_of,
    title,
    told_together,
)
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.report import words
from c2b_ray.report.blocks import Answers, Findings, Page, Paragraph, Section, Terms, assumed, made, setup, spec
from c2b_ray.report.method import mapping, setup_lines, setup_notes
from c2b_ray.report.page import MOST, STYLES, Answer
from c2b_ray.report.pictures import chosen_rows, thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Span, Summary
from c2b_ray.storage.files import write_bytes
from c2b_ray.text import finite

MOST_SENTENCES = 40
PICTURES = 4  # of each answer


def page(facts: Facts, pictures: Pictures) -> Page:
    """Returns the page of a run, which the sections' modules word and this one puts in order."""
    manifest, names = facts.manifest, list(facts.names.values())
    made_by = method(facts)
    status = str(manifest.get("status", "finished"))
    unfinished = f"This run is not finished (status: {clean(status)}); its numbers may change."
    date = words.moment(str(manifest.get("finished") or manifest.get("created") or ""))
    return Page(
        title=title(names),
        suffix="failures",
        kicker=f"Failures of {'image classifiers' if len(names) > 1 else 'an image classifier'}",
        byline=(*([(spec(name),) for name in names] if len(names) > 1 else []), *([date] if date else [])),
        head=(
            *([] if status == "finished" else [Paragraph(unfinished, "notice")]),
            *setup(setup_notes(manifest)),
            *assumed(made_by),
            Answers(answers(facts, pictures)),
        ),
        sections=(
            _found(facts),
            *in_numbers(facts),
            *in_detail(facts, pictures),
            *compared(facts),
            *elsewhere(facts),
            *labels(facts),
            *([] if facts.labelled else [reliability(facts.tables.reliability, facts.generators)]),
            _not_found(facts),
            spent(facts),
            made(
                made_by,
                "failures.yaml",
                Paragraph(tally(facts.hypotheses, facts.findings), "tally"),
                Paragraph(scale(facts), "scale"),
                Paragraph(stages(facts), "stages"),
                Terms(terms(facts)),
            ),
        ),
        styles=(*STYLES, "failures.css"),
    )


def answers(facts: Facts, pictures: Pictures) -> list[Answer]:
    """Returns the first findings, each with four failures; without any what `absent` says."""
    result = []
    for group in told_together(facts.findings)[:MOST]:
        row, lead = found_row(group, facts), facts.findings[group[0]].lead
        gallery = pictures.of_finding(lead, facts) if row.link else None
        galleries = () if gallery is None else (replace(gallery, pictures=gallery.pictures[:PICTURES]),)
        beneath = (*row.beneath, *doubts_of(lead))
        claim = sentence(lead, facts.names[lead.classifier], facts.wording)
        result.append(Answer("against", "▼", claim, beneath, row.link, galleries))
    return result or [Answer("undetermined", "◇", (Span(absent(facts)),), (), "open")]


def _found(facts: Facts) -> Section:
    groups = told_together(facts.findings)
    if not groups:
        return Section("What was found", [Paragraph(absent(facts))], "found", "What was found")
    rows = Findings(
        [found_row(group, facts) for group in groups[:MOST_SENTENCES]],
        filtered="findings",
        more=words.further(len(groups), MOST_SENTENCES, "in the run’s hypotheses.parquet"),
    )
    intro = Paragraph(order_line(len(facts.findings), len(groups), facts.confidence), "intro")
    return Section("What was found", [intro, rows], "found", "What was found")


def _not_found(facts: Facts) -> Section:
    undecided = undecided_first(facts.hypotheses)
    sees = (
        "these images and what the table says of them"
        if facts.labelled
        else "what the generator draws and what captions say"
    )
    given_up = f" {rest_line(undecided, ratio_of(facts.config))}" if undecided else ""
    text = (
        "A failure that no caption here names can still be there. The method shows that failures exist; it cannot show "
        f"that there are none, because it sees no more than {sees} (Wiles et al. 2022, section 5).{given_up}"
    )
    searched = search_line(mapping(facts.manifest.get("search"))) or caption_line(
        mapping(facts.manifest.get("caption_search"))
    )
    blocks = (
        Paragraph(text),
        *([Paragraph(searched)] if searched else []),
        *reach(facts),
        *([caption_table(undecided, facts, "open")] if undecided else []),
    )
    return Section("What was not found", blocks, "open", "What was not found")


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
    write_bytes(run.report, page(facts, Pictures(examples, thumbnails(pictures))).html().encode())
    return run.report


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
        spent_line(facts),
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
