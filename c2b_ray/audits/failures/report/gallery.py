"""Chooses the failures that a caption shows, with pictures: those towards the target first, then in order of drawing.

Failures of confirmation are shown. Those of discovery, from which captions were derived, are shown only where there are
no others, or none towards the target, and are marked. Knows the examples of `tables.ROUNDS`; knows nothing of pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.discovery.rounds import SAMPLE
from c2b_ray.audits.failures.report.captions import rates_plot
from c2b_ray.audits.failures.report.rows import CONFIRMATION, UNDECIDED, Finding, Tally, TallyKey, share
from c2b_ray.audits.failures.report.sentences import Facts, Statement
from c2b_ray.report import words
from c2b_ray.report.pictures import WRONG, Gallery, Picture
from c2b_ray.report.redact import clean

COLUMNS = ["caption_id", "stage", "part", "generator", "classifier", "first", "examples"]
MOST_SHOWN = 12
_OTHERS = None


@dataclass(frozen=True)
class Example:
    """`key`: a hash of the image; `file`: its name in its source, empty for a generated one; `predicted`: `UNDECIDED`
    where no label is the likeliest."""

    stage: str
    key: str
    file: str
    predicted: str
    confidence: float | None
    image: bytes


_Placed = tuple[bool, int, int, Example]


class Examples:
    """The failures of chosen captions that rounds kept, up to the number that a page can show."""

    def __init__(self, tables: Iterable[pa.Table], targets: Mapping[TallyKey, Collection[str]]) -> None:
        """`tables`: of `COLUMNS`; `targets`: of the captions that are shown, the labels that their findings are about.

        Of each caption, classifier and generator `MOST_SHOWN` are kept of each such label, and so many of all others.
        """
        self._kept: dict[TallyKey, dict[str | None, list[_Placed]]] = {key: {} for key in targets}
        for table in tables:
            for row in table.to_pylist():
                key = row["caption_id"], row["classifier"], row["generator"]
                if key in targets and row["part"] != SAMPLE:  # whose images need not be failures
                    _keep(self._kept[key], targets[key], row)

    def of(self, key: TallyKey, target: str | None, most: int = MOST_SHOWN) -> list[Example]:
        """Returns the failures in order of drawing, those towards the target first.

        They are of confirmation, or of discovery where confirmation has none, or none towards the target: rounds keep
        only so many of each label, which discovery may have used up.
        """
        by_label = self._kept.get(key, {})
        placed = [
            (label != target, placed) for label, examples_of_label in by_label.items() for placed in examples_of_label
        ]
        placed.sort(key=lambda entry: (entry[0], entry[1][:3]))
        confirmed = [placed_example for placed_example in placed if placed_example[1][-1].stage == CONFIRMATION]
        of_discovery = [placed_example for placed_example in placed if placed_example[1][-1].stage != CONFIRMATION]
        only_there = of_discovery and (not confirmed or of_discovery[0][0] < confirmed[0][0])
        return [example for _, (*_, example) in (of_discovery if only_there else confirmed)[:most]]


def _keep(by_label: dict[str | None, list[_Placed]], targets: Collection[str], row: Mapping[str, Any]) -> None:
    for number, example_row in enumerate(row["examples"]):
        if example_row["image"] is None:
            continue
        label = example_row["predicted"] or UNDECIDED
        key = hashlib.sha256(example_row["image"]).hexdigest()[:16]
        examples_of_label = by_label.setdefault(label if label in targets else _OTHERS, [])
        file = example_row.get("key") or ""  # examples of older runs lack it
        example = Example(row["stage"], key, file, label, example_row["confidence"], example_row["image"])
        examples_of_label.append((row["stage"] != CONFIRMATION, row["first"], number, example))
        examples_of_label.sort(key=lambda placed: placed[:3])
        del examples_of_label[MOST_SHOWN:]


def gallery(examples: list[Example], thumbnails: Mapping[str, str], names: tuple[str, str]) -> Gallery | None:
    """`names`: what the classifier is called, and the label. None where there is nothing to show."""
    name, label = names
    if not examples:
        return None
    return Gallery(
        verdict="wrong",
        sign=WRONG,
        title=f"{words.plural(len(examples), 'failure')} of {examples[0].stage}",
        pictures=tuple(_picture(example, thumbnails, name, label) for example in examples),
    )


def _picture(example: Example, thumbnails: Mapping[str, str], name: str, label: str) -> Picture:
    predicted = clean(example.predicted)
    probability_text = "" if example.confidence is None else f"{example.confidence:.2f}"
    return Picture(
        source=thumbnails.get(example.key, ""),
        key=clean(example.file),
        alt=f"{'Labelled' if example.file else 'Drawn as'} {words.article(label)}{label}; {name} says {predicted}"
        f"{f' with probability {probability_text}' if probability_text else ''}.",
        label=predicted,
        probability=probability_text,
        stands_for="",
        caption="",
    )


# The wrong answers at the baseline and under a caption, side by side: the counterpart of Figure 3.


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
    largest = max((count / tally.failures for tally in tallies for count in tally.taken.values()), default=1.0)
    return tuple(
        _panel(tally, target, title, largest, gallery)
        for tally, title, gallery in zip(tallies, titles, galleries, strict=True)
    )


def _panel(tally: Tally, target: str | None, title: str, largest: float, gallery: Gallery | None) -> Panel:
    ranked = sorted(tally.taken.items(), key=lambda item: (-item[1], item[0]))
    bars = ranked[:MOST_BARS]
    if target is not None and target in tally.taken and target not in dict(bars):
        bars = [*bars[:-1], (target, tally.taken[target])]
    remaining = sum(count for label, count in ranked if label not in dict(bars))
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
            for label, count in bars
        ),
        more=f"{words.plural(len(ranked) - len(bars), 'more label')}, {words.plural(remaining, 'failure')}"
        if len(ranked) > len(bars)
        else "",
        gallery=gallery,
    )


# A finding with its evidence: the rates of its captions as a plot, the answers of failures, and pictures.


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
