"""The findings in detail: plots, wrong answers, and the failures that a caption shows, with pictures.

Failures towards the target come first, then in order of drawing. Failures of confirmation are shown; those of
discovery, from which captions were derived, only where there are no others, or none towards the target, and are marked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from c2b_ray.audits.failures.discovery.rounds import SAMPLE
from c2b_ray.audits.failures.report.captions import STYLES
from c2b_ray.audits.failures.report.facts import Facts
from c2b_ray.audits.failures.report.rows import CONFIRMATION, UNDECIDED, Finding, Hypothesis, Tally, TallyKey, share
from c2b_ray.audits.failures.report.sentences import in_doubt, link_of, says, target_of
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Article,
    Bar,
    Block,
    Cell,
    Columns,
    Figure,
    Galleries,
    Pairs,
    Paragraph,
    Section,
    Segment,
    Table,
    TableRow,
    spec,
)
from c2b_ray.report.forest import RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.pictures import WRONG, Gallery, Picture
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


@dataclass(frozen=True)
class Pictures:
    """Failures that can be shown. `sources`: a data: URI by an example's key."""

    examples: Examples
    sources: Mapping[str, str]

    def gallery(self, key: TallyKey, lead: Hypothesis, name: str, most: int = MOST_SHOWN) -> Gallery | None:
        """Returns failures of a caption, those of the lead's target first; None where there are none. `name`: what the
        classifier is called."""
        shown = self.examples.of(key, lead.target, most)
        if not shown:
            return None
        title = words.plural(len(shown), "failure")
        title += "" if shown[0].stage == CONFIRMATION else " among the images that chose the caption"
        return Gallery("wrong", WRONG, title, tuple(self._picture(one, clean(lead.label), name) for one in shown))

    def of_finding(self, lead: Hypothesis, facts: Facts) -> Gallery | None:
        """Returns failures of the finding's caption, or of its baseline where those of the caption were not kept."""
        name = facts.names[lead.classifier]
        return self.gallery(caption_key(lead), lead, name) or self.gallery(
            facts.baseline_key(lead), lead, name, OF_BASELINE
        )

    def _picture(self, example: Example, label: str, name: str) -> Picture:
        predicted = clean(example.predicted)
        probability = "" if example.confidence is None else f"{example.confidence:.2f}"
        return Picture(
            source=self.sources.get(example.key, ""),
            key=clean(example.file),
            alt=f"{'Labelled' if example.file else 'Drawn as'} {words.article(label)}{label}; {name} says {predicted}"
            f"{f' with probability {probability}' if probability else ''}.",
            label=predicted,
            probability=probability,
            stands_for="",
            caption="",
        )


def caption_key(lead: Hypothesis) -> TallyKey:
    return lead.caption_id, lead.classifier, lead.generator


# A finding with its evidence: the rates of its captions as a plot, what failures were taken for at the baseline and
# under the caption, side by side (the counterpart of Figure 3), and pictures.


OF_BASELINE = 6  # pictures
MOST_BARS = 15


def in_detail(facts: Facts, pictures: Pictures) -> list[Section]:
    if not facts.detailed:
        return []
    legend = (
        "The plot has the failure rate of each caption of a finding, beside the baseline’s, with "
        f"{words.percent(facts.confidence)} intervals. Below: what failures were taken for, the {MOST_BARS} most "
        "frequent labels, the finding’s own marked ◀, and the failures that were kept as images, those towards it "
        "first."
    )
    articles = [_finding(finding, link_of(i), facts, pictures) for i, finding in enumerate(facts.detailed)]
    return [Section("In detail", [Paragraph(legend, "legend"), *articles], "detail", "In detail")]


def _finding(finding: Finding, link: str, facts: Facts, pictures: Pictures) -> Article:
    lead, baseline = finding.lead, facts.baselines.get(finding.lead.label)
    name = facts.names[lead.classifier]
    by = (Span(" "), Span("by", style="by"), Span(" "), spec(name)) if len(facts.names) > 1 else ()
    prompts = [
        ("Baseline", (clean(baseline.text) if baseline else "") or words.UNKNOWN),
        ("Caption", clean(lead.caption)),
    ]
    estimate = facts.rate(lead.baseline_failures, lead.baseline_draws)
    limits = lead.baseline_rate, float(estimate.low), float(estimate.high)
    base_key, key = facts.baseline_key(lead), caption_key(lead)
    tallies = facts.at_baseline(lead), facts.tallies.of(*key)
    galleries = (
        pictures.gallery(base_key, lead, name, OF_BASELINE),
        pictures.gallery(key, lead, name),
    )
    return Article(
        (Span(f"{clean(lead.label)} "), Span("taken for", style="by"), Span(f" {target_of(lead)}"), *by),
        [
            *in_doubt(lead),
            Pairs(prompts, style="prompts"),
            Figure(rates_plot(finding, limits, link)),
            Columns(_panels(tallies, lead.target, facts.wording.titles, galleries), "panels"),
            *_through_others(lead, name, facts, pictures),
        ],
        link,
        style="group",
    )


def _panels(
    tallies: tuple[Tally, Tally], target: str | None, titles: tuple[str, str], galleries: Sequence[Gallery | None]
) -> list[Article]:
    """Returns the baseline's panel and the caption's; in both the largest share of either has the longest bar."""
    largest = max((count / tally.failures for tally in tallies for count in tally.taken.values()), default=1.0)
    return [
        _panel(tally, target, title, largest, gallery)
        for tally, title, gallery in zip(tallies, titles, galleries, strict=True)
    ]


def _panel(tally: Tally, target: str | None, title: str, largest: float, gallery: Gallery | None) -> Article:
    line = (
        f"{words.plural(tally.failures, 'failure')} in {words.plural(tally.draws, 'image')}: "
        f"{words.rate(share(tally.failures, tally.draws))}."
    )
    blocks: list[Block] = [Paragraph(line, "line")]
    if tally.taken:
        blocks.append(_wrong_answers(tally, target, largest))
    if gallery is not None:
        blocks.append(Galleries([gallery], style="alone", level=5))
    elif tally.taken:
        blocks.append(Paragraph("No picture of these failures was kept.", "beneath"))
    return Article(title, blocks, style="panel", level=4)


def _wrong_answers(tally: Tally, target: str | None, largest: float) -> Table:
    ranked = sorted(tally.taken.items(), key=lambda item: (-item[1], item[0]))
    shown = ranked[:MOST_BARS]
    if target is not None and target in tally.taken and target not in dict(shown):
        shown = [*shown[:-1], (target, tally.taken[target])]
    remaining = sum(count for label, count in ranked if label not in dict(shown))
    labels_left = words.plural(len(ranked) - len(shown), "more label")
    rows = [_wrong_answer(label, count, tally.failures, largest, label == target) for label, count in shown]
    columns = [Column("Taken for", hidden=True), Column("Share", hidden=True), Column("Failures", True, hidden=True)]
    more = f"And {labels_left}, {words.plural(remaining, 'failure')}." if len(ranked) > len(shown) else ""
    return Table(columns, rows, style="bars", more=more)


def _wrong_answer(label: str, count: int, failures: int, largest: float, is_target: bool) -> TableRow:
    mark = (Span("◀", style="sign"), Span("(the finding’s)", style="unseen"))
    bar = Segment("against" if is_target else "none", f"{100 * count / failures / largest:.1f}")
    cells = (
        Cell((Span(f"{clean(label)} "), *mark)) if is_target else clean(label),
        Bar([bar]),
        Cell(words.percent(count / failures), [words.count(count)]),
    )
    return TableRow(cells, "target" if is_target else "")


def _through_others(lead: Hypothesis, name: str, facts: Facts, pictures: Pictures) -> Iterator[Article]:
    """Yields the caption through each other generator."""
    for generator, called in facts.generators.items():
        key = lead.caption_id, lead.classifier, generator
        tally = facts.tallies.of(*key)
        if generator != lead.generator and tally.draws:
            towards = "" if lead.target is None else f", {words.count(tally.towards(lead.target))} {target_of(lead)}"
            line = f"{words.plural(tally.failures, 'failure')} in {words.plural(tally.draws, 'image')}{towards}."
            gallery = pictures.gallery(key, lead, name)
            galleries = [] if gallery is None else [Galleries([gallery], style="alone", level=5)]
            title = (Span("The caption through "), spec(called))
            yield Article(title, [Paragraph(line, "line"), *galleries], style="panel other", level=4)


# The failure rates of a finding's captions and of their baseline, on a logarithmic axis, as an SVG text.


MOST_PLOTTED_ROWS = 12
ENDS = ("← rarer", "failure rate →")
BASELINE = "baseline"


def rates_plot(finding: Finding, baseline: tuple[float, float, float], salt: str) -> str:
    """An <svg> element. `baseline`: rate, low and high; `salt` keeps its ids apart from other plots' on a page."""
    captions = [caption for caption in finding.captions if caption.target == finding.lead.target][:MOST_PLOTTED_ROWS]
    least = _least([value for caption in captions for value in (caption.rate, caption.rate_low)] + list(baseline))
    rows = [
        _row(BASELINE, baseline, "none", least),
        *(
            _row(says(caption), (caption.rate, caption.rate_low, caption.rate_high), STYLES[caption.verdict], least)
            for caption in captions
        ),
    ]
    forest = Forest(rows, description(captions, baseline), ENDS)
    return forest_svg(forest, lambda axes: _style_axes(axes, rows, least), salt)


def description(captions: Sequence[Hypothesis], baseline: tuple[float, float, float]) -> str:
    """The text for a reader who cannot see the plot."""
    lead = captions[0]
    parts = [f"{says(caption)} {words.rate(caption.rate)}" for caption in captions]
    return (
        f"How often {clean(lead.label)} is taken for {target_of(lead)}: baseline {words.rate(baseline[0])}; "
        f"{'; '.join(parts)}."
    )


def _least(values: Sequence[float]) -> float:
    """Returns a power of ten below every rate that is not 0, where the axis begins and 0 is drawn."""
    above = [value for value in values if value > 0]
    return 10.0 ** (math.floor(math.log10(min(above))) - 1) if above else 1e-6


def _row(label: str, rate: tuple[float, float, float], verdict: str, least: float) -> ForestRow:
    value, low, high = (limit if limit != limit else max(limit, least) for limit in rate)
    return ForestRow(label, value, low, high, verdict)


def _style_axes(axes: Axes, rows: Sequence[ForestRow], least: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    highest = max((limit for row in rows for limit in (row.value, row.high) if limit == limit), default=1.0)
    axes.set_xscale("log")
    axes.set_xlim(least, min(1.5, 1.5 * highest) if highest > least else 1.5)
    if rows[0].value == rows[0].value:
        axes.axvline(rows[0].value, color=RULE, linewidth=1, clip_on=False)
    axes.xaxis.set_major_locator(LogLocator(10, numticks=5))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value <= least else _tick(value)))


def _tick(value: float) -> str:
    """Formats a power of ten in percent: 0.001 %."""
    digits = f"{100 * value:.12f}".rstrip("0").rstrip(".")
    return f"{digits}{words.THIN}%"
