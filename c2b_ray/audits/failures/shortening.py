"""Finds out which sentences a failing caption needs: leaves out each in turn, on the seeds of discovery.

Without an unnecessary sentence the rate stays as it was, and failures show other things in its place. Without a
necessary one failures become fewer, and those that remain show what it says. Both count: the rates always, and what
failures show where the captioner says the same of other images too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.audits.failures.failing import background, describe_at_once, described
from c2b_ray.audits.failures.screening import Purse, draw_while, rate, screen, seen
from c2b_ray.audits.failures.work import Hypothesis, Kind, Work
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.mining import Background

MISREAD = 0.08
"""How often a captioner is taken to be wrong about one thing."""
CLEAR = 2.5
"""Log odds that settle whether a sentence is needed."""
KEPT = 0.4
"""The least share of the rate that a shorter caption keeps."""
UNKNOWN = 0.3
"""How many other images show what a sentence says, where no description of them says it."""


@dataclass(frozen=True)
class Trial:
    """A caption without one of its sentences."""

    whole: Hypothesis
    without: Hypothesis
    sentence: str


def shorten(work: Work, hypotheses: Sequence[Hypothesis], purse: Purse, most: int) -> list[Hypothesis]:
    """Draws shorter captions and returns hypotheses on them, also on those that fail less."""
    roots = _roots(work, hypotheses)
    trials = [trial for root in roots for trial in _trials(work, root)]
    odds = _Odds(work)
    by_id = {(trial.without.kind, trial.without.caption.caption_id): trial for trial in trials}

    def is_open(one: Hypothesis) -> bool:
        return abs(odds.not_needed(by_id[one.kind, one.caption.caption_id])) < CLEAR

    tried = [trial.without for trial in trials]
    draw_while(work, tried, purse, most, is_open, lambda: describe_at_once(work, _pairs(tried)))
    shorter = []
    for root in roots:
        unneeded = {trial.sentence for trial in trials if trial.whole == root and odds.not_needed(trial) > 0}
        kept = tuple(sentence for sentence in root.caption.sentences if sentence not in unneeded)
        if kept and unneeded:
            shorter.append(_without(work, root, kept))
    screen(work, shorter, purse, most)
    alike = [trial.without for trial in trials if rate(work, trial.without) >= KEPT * rate(work, trial.whole)]
    return [*shorter, *alike]


def _pairs(hypotheses: Sequence[Hypothesis]) -> list[tuple[Kind, Candidate]]:
    return [(one.kind, one.caption) for one in hypotheses]


def _roots(work: Work, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns for each kind the caption of several sentences that failed most."""
    best: dict[Kind, Hypothesis] = {}
    for one in hypotheses:
        if len(one.caption.sentences) > 1 and (one.kind not in best or rate(work, one) > rate(work, best[one.kind])):
            best[one.kind] = one
    return list(best.values())


def _trials(work: Work, root: Hypothesis) -> list[Trial]:
    sentences = root.caption.sentences
    return [
        Trial(root, _without(work, root, sentences[:index] + sentences[index + 1 :]), sentence)
        for index, sentence in enumerate(sentences)
    ]


def _without(work: Work, root: Hypothesis, sentences: tuple[str, ...]) -> Hypothesis:
    return Hypothesis(root.kind, work.caption(root.kind.label, sentences, "shorter", root.caption))


class _Odds:
    """The log odds that sentences are unnecessary."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._backgrounds: dict[str, Background] = {}

    def not_needed(self, trial: Trial) -> float:
        """Returns the log odds: above 0 where the counts, and what failures show, favour a caption without the
        sentence."""
        share = self._background(trial.whole.kind.label).share((trial.sentence,))
        is_common = share * 50 > 1
        usual = min(share, 0.95) if is_common else UNKNOWN
        failures, draws = seen(self._work, trial.without)
        expected = draws * rate(self._work, trial.whole)
        odds = failures * math.log(1 / usual) - expected * (1 - usual)
        if not is_common:
            return odds
        for shown in described(self._work, trial.without.kind, trial.without.caption):
            has = trial.sentence in shown
            odds += math.log(usual / (1 - MISREAD)) if has else math.log((1 - usual) / MISREAD)
        return odds

    def _background(self, label: str) -> Background:
        if label not in self._backgrounds:
            self._backgrounds[label] = background(self._work, label)
        return self._backgrounds[label]
