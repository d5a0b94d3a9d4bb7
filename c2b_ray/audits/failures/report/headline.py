"""The head of the page and the text about missing findings, in sentences.

Knows hypotheses, findings and tallies; knows nothing of pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.audits.failures.report.rows import (
    CONFIRMATION,
    DISCOVERY,
    FAILURE,
    NOT_SHOWN,
    UNDETERMINED,
    Finding,
    Hypothesis,
)
from c2b_ray.audits.failures.report.sentences import Facts
from c2b_ray.report import words
from c2b_ray.report.redact import clean


@dataclass(frozen=True)
class Headline:
    """The head of the page. `stages` tells which draws chose captions and which measured them."""

    title: str
    date: str
    unfinished: str
    tally: str
    scale: str
    stages: str


def headline(facts: Facts) -> Headline:
    manifest = facts.manifest
    status = str(manifest.get("status", "finished"))
    return Headline(
        title=_title(list(facts.names.values())),
        date=words.moment(str(manifest.get("finished") or manifest.get("created") or "")),
        unfinished=""
        if status == "finished"
        else f"This run is not finished (status: {clean(status)}); its numbers may change.",
        tally=tally(facts.hypotheses, facts.findings),
        scale=_scale(facts),
        stages=stages(facts),
    )


def _title(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Where {names[0]} fails"
    return f"Where {words.count(len(names))} classifiers fail" if names else "Failures"


def tally(hypotheses: Sequence[Hypothesis], findings: Sequence[Finding]) -> str:
    verdicts = Counter(hypothesis.verdict for hypothesis in hypotheses)
    return (
        f"{words.plural(len(findings), 'finding')}, {words.count(verdicts[NOT_SHOWN])} not shown, "
        f"{words.count(verdicts[UNDETERMINED])} undetermined"
    )


def _scale(facts: Facts) -> str:
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
    tallies = facts.tallies
    images_of_stage = {stage: sum(e.images for (name, _), e in tallies.efforts.items() if name == stage) for stage in
          (DISCOVERY, CONFIRMATION)}  # fmt: skip
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
            f"{words.plural(verdicts[UNDETERMINED], 'hypothesis was', 'hypotheses were')} still open when the budget "
            "ended"
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
