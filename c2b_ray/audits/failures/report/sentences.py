"""Findings as sentences: which classifier mistakes which label for what, how much more often, and under which prompt;
and what the page says of the run as a whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from c2b_ray.audits.failures.config import ANY_LABEL
from c2b_ray.audits.failures.report.facts import MOST_DETAILED, Facts, Wording
from c2b_ray.audits.failures.report.rows import (
    CONFIRMATION,
    DISCOVERY,
    FAILURE,
    NOT_SHOWN,
    UNDETERMINED,
    Finding,
    Hypothesis,
)
from c2b_ray.report import words
from c2b_ray.report.blocks import FoundRow, Paragraph
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Sentence, Span

ANY = "any other label"
LONGEST_SAYING = 160
MOST_ALIKE = 3


def told_together(findings: Sequence[Finding]) -> list[list[int]]:
    """Returns the numbers of the findings that one sentence tells of: several classifiers fail so under one caption."""
    groups: dict[tuple[str, str | None, str], list[int]] = {}
    for number, finding in enumerate(findings):
        lead = finding.lead
        groups.setdefault((lead.caption_id, lead.target, lead.generator), []).append(number)
    return list(groups.values())


def found_row(group: Sequence[int], facts: Facts) -> FoundRow:
    """Returns a sentence on the first finding of a group of `told_together`; beneath it, which classifiers do so too,
    and what puts the finding in doubt."""
    finding = facts.findings[group[0]]
    lead = finding.lead
    data = {"label": clean(lead.label), "target": target_of(lead)}
    if len(facts.names) > 1:
        data["classifier"] = "\n".join(facts.names[facts.findings[number].lead.classifier] for number in group)
    others = [Paragraph(_others(group[1:], facts), "beneath")] if len(group) > 1 else []
    return FoundRow(
        "against",
        "▼",
        sentence(lead, facts.names[lead.classifier], facts.wording),
        _beneath(finding),
        link_of(group[0]),
        data,
        about=f"{clean(lead.label)}, {says(lead)}",
        paragraphs=(*others, *in_doubt(lead)),
    )


def _others(numbers: Sequence[int], facts: Facts) -> Sentence:
    """Returns a sentence on other classifiers with the same failure under the same caption."""
    spans = [Span("So does " if len(numbers) == 1 else "So do ")]
    for i, number in enumerate(numbers):
        lead, link = facts.findings[number].lead, link_of(number)
        rates = f"{words.rate(lead.rate)} against {words.rate(lead.baseline_rate)}"
        detail = (Span(", "), Span("detail", link=f"#{link}")) if link else ()
        spans += [Span(f"{', ' if i else ''}{facts.names[lead.classifier]} ({rates}"), *detail, Span(")")]
    return (*spans, Span("."))


def link_of(number: int) -> str:
    """Returns the id of a finding's details on the page; "" where it has none."""
    return f"finding-{number + 1}" if number < MOST_DETAILED else ""


def doubts_of(lead: Hypothesis) -> list[str]:
    return [f"{clean(doubt).rstrip('.')}." for doubt in lead.doubts]


def in_doubt(lead: Hypothesis) -> list[Paragraph]:
    return [Paragraph((Span("In doubt:", strong=True), Span(f" {doubt}")), "doubt") for doubt in doubts_of(lead)]


def target_of(hypothesis: Hypothesis) -> str:
    return ANY if hypothesis.target is None else clean(hypothesis.target)


def says(hypothesis: Hypothesis, most: int = LONGEST_SAYING) -> str:
    """Returns the caption's addition to the baseline; the whole caption where it is an independent text."""
    text = ". ".join(sentence.strip().rstrip(".") for sentence in hypothesis.sentences) or hypothesis.caption
    return words.shortened(clean(text), most)


def sentence(lead: Hypothesis, name: str, wording: Wording) -> Sentence:
    label = clean(lead.label)
    verb = "fails on" if lead.target is None else "takes"
    spans = [Span(f"{name} {verb} {words.article(label)}"), Span(label, strong=True)]
    if lead.label == ANY_LABEL:
        spans = [Span(f"{name} {verb} images of "), Span(label, strong=True)]
    if lead.target is not None:
        target = clean(lead.target)
        spans += [Span(f" for {words.article(target)}"), Span(target, strong=True)]
    return (
        *spans,
        Span(f"{_often(lead)}{wording.where} “"),
        Span(says(lead), strong=True),
        Span(_evidence(lead, wording)),
    )


def _often(lead: Hypothesis) -> str:
    if not math.isfinite(lead.ratio):
        return " "
    return f" {words.times(lead.ratio)} times as often "


def _evidence(lead: Hypothesis, wording: Wording) -> str:
    if not lead.draws:
        return "” (its rate is not known: no image was left to measure it)."
    rate = f"{words.rate(lead.rate)}, {words.rate_range(lead.rate_low, lead.rate_high)}"
    if math.isfinite(lead.ratio):
        return f"” ({rate}, against {words.rate(lead.baseline_rate)})."
    if not lead.baseline_draws:
        return f"” ({rate}; no image {wording.others} was left to compare it with)."
    least = f": at least {words.times(lead.ratio_low)} times as often" if lead.ratio_low > 1 else ""
    return f"” ({rate}, against none in {words.plural(lead.baseline_draws, 'image')} {wording.others}{least})."


def _beneath(finding: Finding) -> Sequence[str]:
    lead, lines = finding.lead, []
    if lead.confirmed and not (lead.draws and lead.baseline_draws):
        lines.append(
            "Confirmed by the test alone, on other images than those that measure rates: how much more often it fails "
            "than the baseline is open. More images would tell."
        )
    elif measured_alike(lead):
        lines.append(
            "Confirmed, but its measured rate is compatible with the baseline: the "
            f"{words.plural(lead.draws, 'image')} that measured it put it at "
            f"{words.times_range(lead.ratio_low, lead.ratio_high)} times. That it fails more often is what the test "
            "saw, on other images; how much more often is open."
        )
    if lead.target is not None and lead.draws:
        lines.append(_any_failure(finding))
    if finding.alike:
        texts = [
            f"“{says(hypothesis, 80)}” ({_rate_of(hypothesis, lead)})" for hypothesis in finding.alike[:MOST_ALIKE]
        ]
        if (remaining := len(finding.alike) - MOST_ALIKE) > 0:
            texts.append(f"{words.count(remaining)} more")
        lines.append(f"Confirmed too, and saying the same: {words.listed(texts)}.")
    return lines


def measured_alike(hypothesis: Hypothesis) -> bool:
    """Tells whether a finding's measured rate alone is compatible with the baseline's."""
    return hypothesis.confirmed and not hypothesis.ratio_low > 1


def _rate_of(hypothesis: Hypothesis, lead: Hypothesis) -> str:
    return f"{words.rate(hypothesis.rate)}{'' if hypothesis.target == lead.target else ', any failure'}"


def _any_failure(finding: Finding) -> str:
    lead, any_failure = finding.lead, finding.anyhow
    if any_failure is not None and math.isfinite(any_failure.ratio):
        return (
            f"Any failure: {words.rate(any_failure.rate)} against {words.rate(any_failure.baseline_rate)}, "
            f"{words.times(any_failure.ratio)} times as often."
        )
    return f"Any failure: {words.rate(lead.any_failures / lead.draws if lead.draws else math.nan)}."


# What the page says of the run as a whole, and of missing findings.


def title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Where {names[0]} fails"
    return f"Where {words.count(len(names))} classifiers fail" if names else "Failures"


def tally(hypotheses: Sequence[Hypothesis], findings: Sequence[Finding]) -> str:
    verdicts = Counter(hypothesis.verdict for hypothesis in hypotheses)
    return (
        f"{words.plural(len(findings), 'finding')}, {words.count(verdicts[NOT_SHOWN])} not shown, "
        f"{words.count(verdicts[UNDETERMINED])} undetermined"
    )


def scale(facts: Facts) -> str:
    captions = len({hypothesis.caption_id for hypothesis in facts.hypotheses})
    labels = len({*facts.baselines, *(hypothesis.label for hypothesis in facts.hypotheses)})
    images = sum(effort.images for effort in facts.tallies.efforts.values())
    confirmed = sum(hypothesis.verdict == FAILURE for hypothesis in facts.hypotheses)
    line = f"{words.plural(captions, 'caption')} of {words.plural(labels, 'label')}, {words.plural(images, 'image')}. "
    if confirmed:
        line += (
            f"A finding is told once, however many captions say the same: {words.count(confirmed)} "
            f"{'hypothesis was' if confirmed == 1 else 'hypotheses were'} confirmed."
        )
    return line


def stages(facts: Facts) -> str:
    images_of_stage: Counter[str] = Counter()
    for (stage, _), effort in facts.tallies.efforts.items():
        images_of_stage[stage] += effort.images
    if not images_of_stage[CONFIRMATION]:
        return "No image of confirmation was drawn, so nothing on this page is established."
    return facts.wording.stages.format(
        discovery=words.plural(images_of_stage[DISCOVERY], "image"),
        confirmation=words.count(images_of_stage[CONFIRMATION]),
    )


def order_line(findings: int, sentences: int, confidence: float) -> str:
    line = (
        "The largest excess over the baseline first, by the lower limit of the rate. Intervals are "
        f"{words.percent(confidence)}."
    )
    if findings > sentences:
        line += (
            f" {words.plural(findings, 'finding')} in {words.plural(sentences, 'sentence')}: one tells of all "
            "classifiers that do the same under one caption."
        )
    return line


def rest_line(undecided: Sequence[Hypothesis], ratio: str) -> str:
    """`ratio`: the smallest that was searched for, such as "twice"."""
    verdicts = Counter(hypothesis.verdict for hypothesis in undecided)
    parts = []
    if verdicts[NOT_SHOWN]:
        parts.append(
            f"{words.plural(verdicts[NOT_SHOWN], 'hypothesis was', 'hypotheses were')} given up, because the images "
            f"drawn speak against a rate of {ratio} the baseline’s"
        )
    if verdicts[UNDETERMINED]:
        parts.append(
            f"{words.plural(verdicts[UNDETERMINED], 'hypothesis was', 'hypotheses were')} still open at the end"
        )
    line = "; ".join(parts)
    return f"{line[:1].upper()}{line[1:]}." if line else "Every hypothesis was confirmed."


def absent(facts: Facts) -> str:
    """Returns the text for a page without findings; empty where there are findings."""
    if facts.findings:
        return ""
    if not facts.tallies.efforts:
        return "No image was drawn, so nothing can be said about the classifier."
    if not facts.hypotheses:
        return "No caption was tried, so nothing is said of any; how often labels fail at their baseline stands below."
    return "No caption is established to make the classifier fail more often than its baseline."
