"""Draws captions that may fail more often: few images first, more where they fail, on the seeds of discovery.

The counts decide which captions are worth confirming, and nothing else: rates are measured on other draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from c2b_ray.audits.failures.drawing import DISCOVERY, SEARCH, Counts, Wanted
from c2b_ray.audits.failures.work import Hypothesis, Kind, Work

FIRST, GROWTH = 64, 3.0
GOAL = 6
"""Failures after which a rate is known well enough to go on with."""


@dataclass
class Purse:
    """The draws that are left."""

    left: int

    def take(self, draws: int) -> None:
        self.left -= draws


def baseline_rate(work: Work, kind: Kind) -> float:
    """Returns the kind's rate among the label's baseline images of discovery; slightly above 0 where none failed."""
    counts = work.drawing.counts(work.baselines[kind.label], kind.classifier, DISCOVERY, SEARCH)
    return (counts.towards(kind.target) + 0.5) / (counts.draws + 1)


def seen(work: Work, one: Hypothesis) -> tuple[int, int]:
    """Returns failures and draws of a hypothesis on the seeds of discovery."""
    counts: Counts = work.drawing.counts(one.caption, one.kind.classifier, DISCOVERY, SEARCH)
    return counts.towards(one.kind.target), counts.draws


def rate(work: Work, one: Hypothesis) -> float:
    failures, draws = seen(work, one)
    return failures / draws if draws else 0.0


def screen(work: Work, hypotheses: Sequence[Hypothesis], purse: Purse, most: int, goal: int = GOAL) -> None:
    """Draws each caption until it has `goal` failures, looks hopeless, or has had `most` draws."""
    draw_while(work, hypotheses, purse, most, lambda one: _worth_more(work, one, goal))


def draw_while(
    work: Work,
    hypotheses: Sequence[Hypothesis],
    purse: Purse,
    most: int,
    is_open: Callable[[Hypothesis], bool],
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """Multiplies the draws of every caption with an open hypothesis, highest failure rate first, while draws are left.

    Calls `after_each` after each turn, before the next `is_open`.
    """
    by_caption: dict[str, list[Hypothesis]] = {}
    for one in hypotheses:
        by_caption.setdefault(one.caption.caption_id, []).append(one)
    while True:
        wanted: list[tuple[float, Wanted]] = []
        for group in by_caption.values():
            draws = seen(work, group[0])[1]
            if draws < most and any(is_open(one) for one in group):
                more = min(max(FIRST, int(draws * (GROWTH - 1))), most - draws)
                promise = max((seen(work, one)[0] + 0.5) / (draws + 1) for one in group)
                wanted.append((promise, Wanted(group[0].caption, DISCOVERY, SEARCH, more, examples=2)))
        chosen = []
        for _, one_wanted in sorted(wanted, key=lambda item: -item[0]):
            if one_wanted.draws <= purse.left:
                purse.take(one_wanted.draws)
                chosen.append(one_wanted)
        if not chosen:
            return
        work.drawing.draw(chosen, work.steps, "draw captions that may fail")
        after_each()


def _worth_more(work: Work, one: Hypothesis, goal: int) -> bool:
    failures, draws = seen(work, one)
    if failures >= goal:
        return False
    # Did it fail as often as is searched for, as few failures as that would be rare.
    return draws * work.config.smallest_ratio * baseline_rate(work, one.kind) < failures + 3
