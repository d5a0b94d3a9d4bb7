"""A finding with its evidence: the rates of its captions as a plot, the answers of failures, and pictures.

Knows findings, tallies and thumbnails; knows nothing of tables, files or pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.report.failures.examples import MOST_SHOWN, Examples, gallery
from c2b_ray.report.failures.facts import Facts
from c2b_ray.report.failures.families import Finding
from c2b_ray.report.failures.mistakes import Panel, panels
from c2b_ray.report.failures.rates_plot import rates_plot
from c2b_ray.report.failures.sentences import Statement
from c2b_ray.report.failures.tallies import TallyKey
from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import Gallery
from c2b_ray.report.kit.redact import clean

OF_BASELINE = 6  # pictures


@dataclass(frozen=True)
class Elsewhere:
    """The caption through another generator."""

    generator: str
    line: str
    gallery: Gallery | None


@dataclass(frozen=True)
class Detail:
    """`plot` is an <svg> element."""

    statement: Statement
    caption: str
    baseline: str
    plot: str
    panels: tuple[Panel, ...]
    elsewhere: tuple[Elsewhere, ...]


def details(
    facts: Facts, sentences: Sequence[Statement], examples: Examples, thumbnails: Mapping[str, str]
) -> tuple[Detail, ...]:
    """Returns the details of findings. `sentences`: of the findings, in order; `thumbnails`: by an example's key."""
    return tuple(
        _detail(finding, sentence, facts, _Pictures(examples, thumbnails, (sentence.classifier, sentence.label)))
        for finding, sentence in zip(facts.detailed, sentences, strict=False)
    )


@dataclass(frozen=True)
class _Pictures:
    examples: Examples
    thumbnails: Mapping[str, str]
    about: tuple[str, str]

    def gallery(self, key: TallyKey, target: str | None, most: int = MOST_SHOWN) -> Gallery | None:
        return gallery(self.examples.of(key, target, most), self.thumbnails, self.about)


def _detail(finding: Finding, sentence: Statement, facts: Facts, pictures: _Pictures) -> Detail:
    lead = finding.lead
    key, base_key = (lead.caption_id, lead.classifier, lead.generator), facts.baseline_key(lead)
    base, with_caption = facts.at_baseline(lead), facts.tallies.of(*key)
    estimate = facts.rate(lead.baseline_failures, lead.baseline_draws)
    limits = lead.baseline_rate, float(estimate.low), float(estimate.high)
    baseline = facts.baselines.get(lead.label)
    galleries = (
        pictures.gallery(base_key, lead.target, OF_BASELINE),
        pictures.gallery(key, lead.target),
    )
    return Detail(
        statement=sentence,
        caption=clean(lead.caption),
        baseline=clean(baseline.text) if baseline else "",
        plot=rates_plot(finding, limits, sentence.link),
        panels=panels((base, with_caption), lead.target, facts.wording.titles, galleries),
        elsewhere=tuple(_elsewhere(finding, sentence, facts, pictures)),
    )


def _elsewhere(finding: Finding, sentence: Statement, facts: Facts, pictures: _Pictures) -> Iterator[Elsewhere]:
    lead = finding.lead
    for generator, name in facts.generators.items():
        key = lead.caption_id, lead.classifier, generator
        tally = facts.tallies.of(*key)
        if generator != lead.generator and tally.draws:
            towards = "" if lead.target is None else f", {words.count(tally.towards(lead.target))} {sentence.target}"
            line = f"{words.plural(tally.failures, 'failure')} in {words.plural(tally.draws, 'image')}{towards}."
            yield Elsewhere(name, line, pictures.gallery(key, lead.target))
