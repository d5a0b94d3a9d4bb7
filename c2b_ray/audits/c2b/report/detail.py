"""Findings in detail: a forest plot, a row for each value, and pictures; the weaker ones as a table."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from c2b_ray.audits.c2b.report.findings import NAMES, SIGNS, brief, caveats, key_of, mistaken, paper_cell
from c2b_ray.audits.c2b.report.gallery import Examples, galleries, shared_caption
from c2b_ray.audits.c2b.report.method import DerivedValues, shown, shown_range, titled
from c2b_ray.audits.c2b.report.ranking import Cell, Group, Key
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import blocks, words
from c2b_ray.report.blocks import (
    Article,
    Block,
    Columns,
    Details,
    Figure,
    Galleries,
    Paragraph,
    Section,
    Table,
    TableRow,
    Verdict,
    spec,
)
from c2b_ray.report.forest import BAND, RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.pictures import ThumbnailSet
from c2b_ray.report.words import Column, Sentence, Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_CORRECTION = 0.01  # of φ, to be worth reporting


@dataclass(frozen=True)
class DetailedGroups:
    """The groups of a page, strongest first within each classifier. `examples`: of those that are shown in detail;
    `listed`: those that are rows of a table; `links`: the id of each group on the page; `names`: of classifiers."""

    groups: Sequence[Group]
    examples: Mapping[Key, Examples]
    listed: Collection[Key]
    links: Mapping[Key, str]
    names: Mapping[str, str]
    pictures: ThumbnailSet

    @property
    def links_to_details(self) -> dict[Key, str]:
        """The ids of those groups that are on the page."""
        return {key: self.links[key] for key in (*self.examples, *self.listed)}


def detail_section(
    details: DetailedGroups, config: AuditConfig, derived: DerivedValues, verified: bool
) -> list[Section]:
    """Returns the findings of each classifier: of groups with examples all there is, of those that are listed a table,
    and how many others there are; nothing without a finding. `verified`: whether it was looked at what images show."""
    if not any(group.lead for group in details.groups):
        return []
    measured = titled(config.metric)
    articles = []
    for classifier in dict.fromkeys(group.classifier for group in details.groups):
        scored = [group for group in details.groups if group.classifier == classifier and group.lead is not None]
        detailed = [group for group in scored if group.key in details.examples]
        others = [group for group in scored if group.key not in details.examples and group.key in details.listed]
        contents: list[Block] = [
            _group(details, group, config, derived, is_open=i == 0) for i, group in enumerate(detailed)
        ]
        if others:
            title = f"{'Further findings' if detailed else 'Findings'}, as a table"
            contents.append(Details(title, [_table_of(others, details.links, derived, measured)]))
        if not contents:
            contents.append(Paragraph("No findings."))
        if more := words.further(len(scored), len(detailed) + len(others), "in the run’s scores.parquet"):
            contents.append(Paragraph(more, "beneath"))
        articles.append(Article((spec(details.names[classifier]),), contents, style="classifier"))
    return [Section("In detail", [*_legend(measured, config.tau, 1 - config.alpha, verified), *articles], "detail")]


def _legend(measured: str, tau: float, confidence: float, verified: bool) -> list[Paragraph]:
    """Returns what plots, small print and signs mean."""
    phi = (
        "the accuracy on a value minus the mean accuracy"
        if measured == "Accuracy"
        else f"{measured} on a value minus its mean"
    )
    corrected = (
        Span(" Accuracy and φ are corrected for "),
        Span("what the images show", link="#shown"),
        Span(f"; where that moves φ by more than {LEAST_CORRECTION}, the φ observed stands beneath it."),
    )
    meaning = (
        Span(
            f"φ is {phi} on the attribute’s other values; whiskers and small print are {words.percent(confidence)} "
            "intervals, those of findings "
        ),
        Span("widened because they were selected", link="#made"),
        Span(f"; the shaded band is ±{words.decimal(tau)}."),
        *(corrected if verified else ()),
    )
    differs = (Span("≠", style="differs"), Span(f"{words.FIXED}the paper’s rule says otherwise"))
    signs = [key_of(verdict) for verdict in ("against", "for", "none", "undetermined")]
    return [Paragraph(meaning, "legend"), Paragraph((*_spaced(signs), *differs), "legend key")]


def _spaced(spans: Sequence[Span]) -> Sentence:
    return tuple(one for span in spans for one in (span, Span(" ")))


def _group(
    details: DetailedGroups, group: Group, config: AuditConfig, derived: DerivedValues, is_open: bool
) -> Details:
    lead, link, examples = group.lead, details.links[group.key], details.examples[group.key]
    assert lead is not None
    columns = [Column(group.attribute), *_columns(titled(config.metric))]
    contents: list[Block] = [Paragraph(line, "aside") for line in filter(None, [mistaken(lead)])]
    plot = Figure(forest_plot(group, config.tau, link))
    contents.append(Columns([plot, Table(columns, value_rows(group, derived), style="values")], "evidence"))
    counts, name = (lead.n - lead.correct, lead.correct), details.names[group.classifier]
    if pictures := galleries(examples, counts, lead.verdict, details.pictures, name):
        contents += [Paragraph(line, "source") for line in filter(None, [shared_caption(examples)])]
        contents.append(Galleries(pictures))
    else:
        contents.append(Paragraph("No image of the leading value is at hand to show.", "beneath"))
    sign = Span(SIGNS[lead.verdict], style=f"sign verdict {lead.verdict}")
    summary = (*_heading(group, strong=True), Span(" "), sign, Span(f" {brief(lead)}.", style="brief"))
    return Details(summary, contents, is_open, "group", link)


def _heading(group: Group, strong: bool = False) -> Sentence:
    return (
        Span(group.target_class, strong),
        Span(" by ", style="by"),
        Span(group.attribute, strong),
    )


def _table_of(groups: Sequence[Group], links: Mapping[Key, str], derived: DerivedValues, measured: str) -> Table:
    rows: list[TableRow] = []
    for group in groups:
        rows.append(TableRow([blocks.Cell(_heading(group))], "title", link=links[group.key]))
        rows += value_rows(group, derived)
    return Table([Column("Value"), *_columns(measured)], rows, style="values many")


def _columns(measured: str) -> list[Column]:
    numbers = ("Right", measured, "φ", "q")
    return [*(Column(name, number=True) for name in numbers), Column("Verdict"), Column("Paper’s")]


def value_rows(group: Group, derived: DerivedValues | None = None) -> list[TableRow]:
    """Returns a row for each value, that of the lead marked. Beneath a value stand its range, where it was cut from
    numbers, and what weakens a finding on it; beneath φ what was observed, where the correction for what images show
    moved it, and φ on fresh images."""
    return [_value_row(cell, cell is group.lead, derived) for cell in group.cells]


def _value_row(cell: Cell, is_lead: bool, derived: DerivedValues | None) -> TableRow:
    phi_lines: list[str | Sentence] = [words.signed_range(cell.phi_low, cell.phi_high)]
    if abs(cell.phi - cell.phi_observed) > LEAST_CORRECTION:
        phi_lines.append((Span(f"observed {words.signed(cell.phi_observed)}", style="observed"),))
    if not math.isnan(cell.phi_confirmed):
        interval = words.signed_range(cell.phi_confirmed_low, cell.phi_confirmed_high)
        text = f"fresh images {words.signed(cell.phi_confirmed)} ({interval})"
        phi_lines.append((Span(text, style="observed"),))
    wanted = f"{words.count(cell.wanted)} asked for" if cell.wanted and cell.wanted > cell.n else ""
    return TableRow(
        [
            blocks.Cell(
                cell.bias_class,
                [
                    derived.range_of(cell.target_class, cell.attribute, cell.bias_class) if derived else "",
                    ", ".join(caveats(cell)) if cell.is_finding else "",
                ],
            ),
            blocks.Cell(
                (Span(words.count(cell.correct)), Span(f" of {words.count(cell.n)}", style="of")),
                [wanted, f"{words.count(cell.errors)} failed" if cell.errors else ""],
            ),
            blocks.Cell(
                shown(cell.metric, cell.accuracy), [shown_range(cell.metric, cell.accuracy_low, cell.accuracy_high)]
            ),
            blocks.Cell(words.signed(cell.phi), phi_lines),
            words.small_probability(cell.q_value),
            blocks.Cell(
                style="ruling",
                title=cell.because if cell.verdict == "undetermined" else "",
                mark=Verdict(cell.verdict, SIGNS[cell.verdict], NAMES[cell.verdict]),
            ),
            paper_cell(cell),
        ],
        "lead" if is_lead else "",
    )


# A group's forest plot: φ of every value with its interval, the band within ±τ shaded, as an SVG text.


ENDS = ("← worse than the others", "better →")


def forest_plot(group: Group, tau: float, salt: str) -> str:
    """An <svg> element, a row per cell in the group's order. `salt` keeps its ids apart from other plots' on a page."""
    rows = [ForestRow(cell.bias_class, cell.phi, cell.phi_low, cell.phi_high, cell.verdict) for cell in group.cells]
    forest = Forest(rows, description(group, tau), ENDS)
    return forest_svg(forest, lambda axes: _dress(axes, group.cells, tau), salt)


def description(group: Group, tau: float) -> str:
    """The text for a reader who cannot see the plot."""
    rows = [
        f"{cell.bias_class} {words.signed(cell.phi)} ({words.signed_range(cell.phi_low, cell.phi_high)})"
        if not math.isnan(cell.phi)
        else f"{cell.bias_class} without data"
        for cell in group.cells
    ]
    return f"φ by {group.attribute} for {group.target_class}, band ±{words.decimal(tau)}: {'; '.join(rows)}."


def _dress(axes: Axes, cells: tuple[Cell, ...], tau: float) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(*_limits(cells, tau))
    axes.axvspan(-tau, tau, color=BAND, linewidth=0, clip_on=False)
    axes.axvline(0, color=RULE, linewidth=1, clip_on=False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _limits(cells: tuple[Cell, ...], tau: float) -> tuple[float, float]:
    finite = [limit for cell in cells for limit in (cell.phi_low, cell.phi_high, cell.phi) if not math.isnan(limit)]
    least, most = min([*finite, -2 * tau, -0.02]), max([*finite, 2 * tau, 0.02])
    margin = 0.04 * (most - least)
    return least - margin, most + margin


def _tick(value: float) -> str:
    digits = f"{abs(value):.2f}".rstrip("0").rstrip(".")
    return f"{words.MINUS}{digits}" if value < 0 and digits != "0" else digits
