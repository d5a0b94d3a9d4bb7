"""Groups confirmed captions with the same meaning: a finding is shown once, by its shortest caption, with the others
beneath it.

A cluster's caption has several sentences; refinement tries each alone and drops adjectives. All of them may fail. The
shortest one says why, unless a longer one fails more than twice as often: that is more than the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from c2b_ray.report.failures.rows import Hypothesis

MORE = 2.0  # times as often as the shorter caption, to be a finding of its own
_REWRITTEN = "language_model"

Key = tuple[str, str, str, str | None]


@dataclass(frozen=True)
class Finding:
    """`alike`: confirmed captions that say the same in more or other words, the strongest first, those where any
    failure counts last; `anyhow`: the lead's caption where any failure counts, if the lead is towards one label and
    that is confirmed too."""

    lead: Hypothesis
    alike: tuple[Hypothesis, ...] = ()
    anyhow: Hypothesis | None = None

    @property
    def captions(self) -> tuple[Hypothesis, ...]:
        return (self.lead, *self.alike)

    @property
    def confirmed(self) -> tuple[Hypothesis, ...]:
        return (*self.captions, *([self.anyhow] if self.anyhow else []))


def findings_of(hypotheses: Sequence[Hypothesis]) -> list[Finding]:
    """Returns the confirmed failures as findings, those with the largest excess over the baseline first."""
    confirmed = [one for one in hypotheses if one.confirmed]
    towards = {_where(one): one for one in confirmed if one.target is not None}
    groups: dict[Key, list[Hypothesis]] = {}
    for one in confirmed:
        if one.target is not None or _where(one) not in towards:
            groups.setdefault((one.classifier, one.generator, one.label, one.target), []).append(one)
    anyhow = {_where(one): one for one in confirmed if one.target is None}
    findings = [finding for group in groups.values() for finding in _folded(group)]
    findings = [
        Finding(each.lead, each.alike, anyhow.get(_where(each.lead)) if each.lead.target is not None else None)
        for each in findings
    ]
    findings = _without_repeats(findings)
    return sorted(findings, key=lambda each: (-each.lead.excess, each.lead.caption, each.lead.classifier))


def _without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """A caption where any failure counts is shown with one towards a label that says the same, and fails as often."""
    kept = [finding for finding in findings if finding.lead.target is not None]
    for finding in (each for each in findings if each.lead.target is None):
        at = next((at for at, each in enumerate(kept) if _repeats(each.lead, finding.lead)), None)
        if at is None:
            kept.append(finding)
        else:
            kept[at] = replace(kept[at], alike=(*kept[at].alike, *finding.captions))
    return kept


def _repeats(towards: Hypothesis, anyhow: Hypothesis) -> bool:
    same = (towards.classifier, towards.generator, towards.label) == (anyhow.classifier, anyhow.generator, anyhow.label)
    rate = towards.any_failures / towards.draws if towards.draws else 0.0
    return same and towards.target is not None and says_the_same(replace(towards, rate=rate), anyhow)


def _where(one: Hypothesis) -> tuple[str, str, str]:
    return one.classifier, one.generator, one.caption_id


def _folded(group: Sequence[Hypothesis]) -> list[Finding]:
    leads: list[tuple[Hypothesis, list[Hypothesis]]] = []
    for one in sorted(group, key=lambda each: (each.length, -each.excess, each.caption)):
        same = next((alike for lead, alike in leads if says_the_same(lead, one)), None)
        if same is None:
            leads.append((one, []))
        else:
            same.append(one)
    return [Finding(lead, tuple(sorted(alike, key=lambda each: -each.excess))) for lead, alike in leads]


def says_the_same(shorter: Hypothesis, longer: Hypothesis) -> bool:
    """Tells whether the longer caption includes the meaning of the shorter one and does not fail far more often."""
    if longer.rate_low > MORE * shorter.rate:
        return False
    if _REWRITTEN in (longer.origin, shorter.origin) and (
        longer.parent_caption == shorter.caption or shorter.parent_caption == longer.caption
    ):
        return True
    return bool(shorter.sentences) and all(
        any(_contains(whole, part) for whole in longer.sentences) for part in shorter.sentences
    )


def _contains(whole: str, part: str) -> bool:
    """Tells whether `part` results from dropping inner words of `whole`, keeping its first and last word."""
    words, kept = (text.lower().rstrip(". ").split() for text in (whole, part))
    if not kept or not words or words[0] != kept[0] or words[-1] != kept[-1]:
        return False
    rest = iter(words)
    return all(word in rest for word in kept)
