"""The wrong answers at the baseline and under a caption, side by side: the counterpart of Figure 3.

Knows tallies and pictures; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.report.failures.tallies import Tally, share
from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import Gallery
from c2b_ray.report.kit.redact import clean

MOST_BARS = 15


@dataclass(frozen=True)
class Bar:
    """`width`: of 100, the largest share of both panels being 100; `target`: whether the finding is about it."""

    label: str
    width: str
    count: str
    share: str
    target: bool


@dataclass(frozen=True)
class Panel:
    title: str
    line: str
    bars: tuple[Bar, ...]
    more: str
    gallery: Gallery | None


def panels(
    tallies: tuple[Tally, Tally], target: str | None, titles: tuple[str, str], galleries: Sequence[Gallery | None]
) -> tuple[Panel, ...]:
    """Returns the baseline's panel and the caption's."""
    largest = max((count / each.failures for each in tallies for count in each.taken.values()), default=1.0)
    return tuple(
        _panel(each, target, title, largest, gallery)
        for each, title, gallery in zip(tallies, titles, galleries, strict=True)
    )


def _panel(tally: Tally, target: str | None, title: str, largest: float, gallery: Gallery | None) -> Panel:
    ranked = sorted(tally.taken.items(), key=lambda item: (-item[1], item[0]))
    shown = ranked[:MOST_BARS]
    if target is not None and target in tally.taken and target not in dict(shown):
        shown = [*shown[:-1], (target, tally.taken[target])]
    rest = sum(count for label, count in ranked if label not in dict(shown))
    return Panel(
        title=title,
        line=f"{words.plural(tally.failures, 'failure')} in {words.plural(tally.draws, 'image')}: "
        f"{words.rate(share(tally.failures, tally.draws))}.",
        bars=tuple(
            Bar(
                clean(label),
                f"{100 * count / tally.failures / largest:.1f}",
                words.count(count),
                words.percent(count / tally.failures),
                label == target,
            )
            for label, count in shown
        ),
        more=f"{words.plural(len(ranked) - len(shown), 'more label')}, {words.plural(rest, 'failure')}"
        if len(ranked) > len(shown)
        else "",
        gallery=gallery,
    )
