"""The head of the page: the extent of the audit and its result, in sentences.

Knows cells and a manifest; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.findings import NAMES, SIGNS
from c2b_ray.audits.c2b.report.ranking import Cell
from c2b_ray.config.audit import ALL_IMAGES, AuditConfig
from c2b_ray.report import blocks, words
from c2b_ray.report.blocks import Bar, Segment, Table
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Sentence, Span
from c2b_ray.stats.intervals import share_interval


def unfinished(manifest: Mapping[str, Any]) -> str:
    status = str(manifest.get("status", "finished"))
    return (
        "" if status == "finished" else f"This run is not finished (status: {clean(status)}); its numbers may change."
    )


def tally(cells: Sequence[Cell], pooled: int = 0, pairs: int = 0, perturbed: int = 0) -> str:
    """Returns how many cells have which verdict. `pooled`, `pairs`, `perturbed`: the findings over all classes, of two
    values at once, and of perturbations, which are no cells."""
    verdicts = Counter(cell.verdict for cell in cells)
    findings = words.plural(verdicts["against"] + verdicts["for"], "finding")
    line = f"{findings}, {words.count(verdicts['none'])} clear, {words.count(verdicts['undetermined'])} undetermined"
    other_counts = ((pooled, "over all classes"), (pairs, "of two values at once"), (perturbed, "of perturbations"))
    further = [f"{words.plural(number, 'finding')} {scope}" for number, scope in other_counts if number]
    return f"{line}; besides, {words.listed(further)}" if further else line


def scale(cells: Sequence[Cell], draws: pa.Table) -> str:
    if not cells:
        return "Nothing was scored."
    classes, attributes = ({getattr(cell, name) for cell in cells} for name in ("target_class", "attribute"))
    images = pc.count_distinct(draws["image_id"]).as_py()
    per_classifier = len({(c.target_class, c.attribute, c.bias_class) for c in cells})
    classifiers = len({cell.classifier for cell in cells})
    suffix = " for each classifier" if classifiers > 1 else ""
    return (
        f"{words.plural(per_classifier, 'cell')}{suffix}: a cell is one value of an attribute, for one class. "
        f"{words.plural(len(classes), 'class', 'classes')}, {words.plural(len(attributes), 'attribute')}, "
        f"{words.plural(images, 'image')}."
    )


def two_stages(config: AuditConfig, cells: Sequence[Cell], captions: pa.Table, fresh: pa.Table) -> str:
    """Returns sentences on an audit in two stages, and what it would have found; empty for other audits. `fresh`: the
    draws of the second stage."""
    design = config.screening
    if design is None or not cells:
        return ""
    captions_drawn = captions.filter(pc.is_in(captions["caption_id"], fresh["caption_id"].unique().cast(pa.string())))
    groups = set(zip(captions_drawn["target_class"].to_pylist(), captions_drawn["attribute"].to_pylist(), strict=True))
    repeated = sum((cell.target_class, cell.attribute) in groups for cell in cells)
    first = (config.images_per_caption or 0) * config.captions_per_cell
    in_all = words.count(pc.count_distinct(fresh["image_id"]).as_py())
    further = words.count(design.fresh)
    of_cells = f"of the {words.count(repeated)} of {words.plural(len(cells), 'cell')} whose attribute had |φ| ≥ "
    of_cells += words.decimal(design.least)
    line = f"Two stages: {words.plural(first, 'image')} of each cell, then "
    if design.tested == ALL_IMAGES:
        in_total = f"; with the first they are {in_all}" if repeated else ""
        line += f"{further} more, or as many as the source holds, {of_cells}{in_total}. Findings rest on all of them."
    else:
        line += f"{further} fresh ones ({in_all} in all) {of_cells}. Findings rest on the fresh images alone."
    phis = sorted(cell.detectable for cell in cells if not math.isnan(cell.detectable))
    if not phis:
        return line
    return (
        f"{line} In the median cell |φ| of {words.decimal(math.ceil(100 * phis[len(phis) // 2]) / 100)} is found in "
        f"four of five audits; in nine of ten cells |φ| of "
        f"{words.decimal(math.ceil(100 * phis[9 * (len(phis) - 1) // 10]) / 100)}."
    )


def paper(cells: Sequence[Cell]) -> str:
    count = sum(cell.disagrees and not cell.is_finding for cell in cells)
    if not count:
        return ""
    return (
        f"The paper’s rule, |φ| > τ alone, would have called {words.plural(count, 'more cell', 'more cells')} biased; "
        "the images at hand do not establish that."
    )


def findings_line(cells: Sequence[Cell], sentences: int) -> str:
    findings = sum(cell.is_finding for cell in cells)
    order = "Strongest first, by φ drawn towards 0 as far as its noise makes likely."
    if any(not math.isnan(cell.phi_confirmed) for cell in cells):
        order = "Strongest first, by φ on fresh images, which had no part in finding anything."
    if findings == sentences:
        return order
    return (
        f"{order} {words.plural(findings, 'finding')} in {words.plural(sentences, 'sentence')}: one sentence tells "
        "of all findings of one class and attribute, and of two attributes that rest on the same images."
    )


# Classifiers in a line each: accuracy, the number of cells by verdict, and a bar of the shares.


_ORDER = ("against", "for", "undetermined", "none")


def summary_table(cells: Sequence[Cell], names: Mapping[str, str]) -> list[Table]:
    """Returns a row for each classifier; nothing without cells."""
    if not cells:
        return []
    columns = [
        Column("Classifier", spec=True),
        Column("Accuracy", number=True),
        *(Column(NAMES[verdict], number=True, heading=_mark(verdict)) for verdict in _ORDER),
        Column("Shares", hidden=True),
    ]
    rows: list[list[str | blocks.Cell | Bar]] = []
    for classifier in dict.fromkeys(cell.classifier for cell in cells):
        of_classifier = [cell for cell in cells if cell.classifier == classifier]
        verdicts = Counter(cell.verdict for cell in of_classifier)
        images, right = sum(cell.n for cell in of_classifier), sum(cell.correct for cell in of_classifier)
        shares = [(verdict, verdicts[verdict] / len(of_classifier)) for verdict in _ORDER]
        rows.append(
            [
                names[classifier],
                words.percent(right / images if images else float("nan")),
                *(words.count(verdicts[verdict]) for verdict in _ORDER),
                Bar(list(_segments(shares)), ground=False),
            ]
        )
    return [Table(columns, rows, style="summary")]


def _mark(verdict: str) -> Sentence:
    sign = Span(SIGNS[verdict], style=f"sign verdict {verdict}")
    return sign, Span(f"{words.FIXED}{NAMES[verdict]}", style=f"verdict {verdict}")


def _segments(shares: Sequence[tuple[str, float]]) -> Iterable[Segment]:
    start = 0.0
    for verdict, share in shares:
        if share:
            yield Segment(verdict, f"{100 * share:.2f}", f"{100 * start:.2f}")
        start += share


# What a terminal says beside findings: how often each classifier is right, the largest differences that are not
# settled, and what would settle them.


MOST_NEAR = 3
NEAR = 20
"""A difference is no near miss if settling it takes more than this many times the images at hand."""
LEAST_IMAGES = 20
"""Of fewer images a share says nothing about a classifier's set-up."""
HARDLY_ANY = 0.1
MOST_ACCURACIES = 3
"""Classifiers at the head of the page; the others are in a table."""
CAUSES = (
    "another normalisation, scale or order of colours (BGR) than the weights were trained with, label names in another "
    "order than the outputs, or an incomplete `label_map`. `c2b check` on the audit file shows answers beside labels"
)


@dataclass(frozen=True)
class Accuracy:
    """A classifier's right answers on the images of an audit. `balanced`: the mean of its classes' accuracies, in which
    a class of many images counts no more than one of few. `independent`: the share of the images that as many
    independent ones would be: below 1 where images come in clusters."""

    classifier: str
    right: int
    images: int
    balanced: float
    classes: int
    independent: float = 1.0

    @property
    def implausible(self) -> bool:
        """Whether hardly any answer is right, or of all classes together no more than by guessing."""
        share = self.right / self.images if self.images else 1.0
        at_chance = self.classes > 1 and self.balanced <= 1 / self.classes
        return self.images >= LEAST_IMAGES and (share < HARDLY_ANY or at_chance)


def accuracies(cells: Sequence[Cell], each: bool = False) -> list[Accuracy]:
    """Returns the accuracy of each classifier, its classes' images together.

    Of each class those of the attribute with the most answers are counted, each image once: of labelled images all
    whose value is known. `each`: whether each label is given on its own, so that none is guessed among the others.
    """
    most_of: dict[str, dict[str, tuple[int, int]]] = {}
    for (classifier, target, _), members in _groups(cells).items():
        most = most_of.setdefault(classifier, {})
        size_and_correct = sum(cell.n for cell in members), sum(cell.correct for cell in members)
        most[target] = max(most.get(target, (0, 0)), size_and_correct, key=lambda pair: pair[0])
    result = []
    for classifier, most in most_of.items():
        images, right = (sum(pair[i] for pair in most.values()) for i in (0, 1))
        shares = [correct / n for n, correct in most.values() if n]
        result.append(
            Accuracy(classifier, right, images, sum(shares) / max(1, len(shares)), 1 if each else len(shares))
        )
    return result


def accuracy_line(accuracy: Accuracy, confidence: float) -> str:
    if not accuracy.images:
        return f"{accuracy.classifier}: no image has an answer."
    share = accuracy.right / accuracy.images
    low, high = share_interval(share, accuracy.images * accuracy.independent, confidence)
    return (
        f"{accuracy.classifier}: {words.count(accuracy.right)} of {words.plural(accuracy.images, 'answer')} "
        f"{'is' if accuracy.images == 1 else 'are'} right ({words.percent(share)}; {words.percent_range(low, high)})."
    )


def accuracy_in_brief(accuracy: Accuracy, names: Mapping[str, str]) -> str:
    """Returns how often a classifier is right, for the head of a page; named where the run has several."""
    prefix = f"{names[accuracy.classifier]}: " if len(names) > 1 else ""
    if not accuracy.images:
        return f"{prefix}no image has an answer." if prefix else "No image has an answer."
    share = words.percent(accuracy.right / accuracy.images)
    return f"{prefix}{words.count(accuracy.right)} of {words.plural(accuracy.images, 'answer')} right ({share})."


def accuracies_in_brief(
    accuracies_of_run: Sequence[Accuracy], names: Mapping[str, str], images: int
) -> tuple[str, ...]:
    """Returns this of the first classifiers, and what is left out. `images`: of the run, whose attributes may have
    images each of their own."""
    lines = [accuracy_in_brief(accuracy, names) for accuracy in accuracies_of_run[:MOST_ACCURACIES]]
    if len(accuracies_of_run) > MOST_ACCURACIES:
        lines.append(f"{words.plural(len(accuracies_of_run) - MOST_ACCURACIES, 'more classifier')} below.")
    if 0 < max((accuracy.images for accuracy in accuracies_of_run), default=0) < images:
        lines.append(
            "These counts are of the images of one attribute for each class, the one with most answers, and not of "
            f"all {words.count(images)} images of the run."
        )
    return tuple(lines)


def implausible_line(accuracy: Accuracy) -> str:
    """Returns what may be wrong with a classifier that is hardly ever right; "" where nothing has to be."""
    if not accuracy.implausible:
        return ""
    guessing = (
        f"; guessing among {accuracy.classes:,} classes gives {words.percent(1 / accuracy.classes)}"
        if accuracy.classes > 1
        else ""
    )
    return (
        f"{accuracy.classifier}: only {words.count(accuracy.right)} of {words.count(accuracy.images)} answers are "
        f"right ({words.percent(accuracy.right / accuracy.images)}{guessing}). If that is a surprise, look at the "
        f"set-up before the findings: {CAUSES}."
    )


def near_misses(cells: Sequence[Cell], tau: float) -> list[Cell]:
    """Returns the largest differences that the images at hand do not settle: of each class and attribute without a
    finding the open cell of the largest |φ| beyond τ that at most `NEAR` times its images would settle; of two that
    are equally large, as those of two values are, the worse one."""
    result = []
    for members in _groups(cells).values():
        open_cells = [cell for cell in members if cell.verdict == "undetermined" and cell.size > tau]
        open_cells = [
            cell for cell in open_cells if 0 < (cell.images_to_settle or 0) <= NEAR * cell.n and not cell.doubt
        ]
        if open_cells and not any(cell.is_finding for cell in members):
            result.append(max(open_cells, key=lambda cell: (round(cell.size, 9), -cell.phi)))
    return sorted(result, key=lambda cell: -cell.weight)[:MOST_NEAR]


def near_line(cell: Cell, several: bool, tau: float) -> str:
    prefix = f"{cell.classifier}: " if several else ""
    return (
        f"not settled: {prefix}{cell.target_class}, {cell.attribute}: {cell.bias_class}: φ {words.signed(cell.phi)} "
        f"({words.signed_range(cell.phi_low, cell.phi_high)}) on {words.plural(cell.n, 'image')}; "
        f"{what_settles(cell, tau)}."
    )


def what_settles(cell: Cell, tau: float) -> str:
    """Returns what would settle a near miss: a number of images; or, where the cell's own interval lies beyond τ
    already and only the other tests keep it open, this reason: `images_to_settle` is of a cell that is tested alone."""
    if _beyond_alone(cell, tau):
        return clean(cell.because) or "it is one of many tests, of which some lie as far by chance"
    return f"about {words.count(cell.images_to_settle or 0)} images of each of its values would settle it"


def _beyond_alone(cell: Cell, tau: float) -> bool:
    return cell.phi_low > tau or cell.phi_high < -tau


def next_step(near: Sequence[Cell], config: AuditConfig) -> str:
    """Returns what to do about open differences; "" where there are none."""
    if not near:
        return ""
    if config.images.sources == ("labelled",):
        return (
            "next: more labelled images of these classes and values; or `c2b failures` on the same table, which looks "
            "for combinations of values that fail together"
        )
    if config.budget:
        return "next: a larger `budget`, which goes on from the images at hand"
    images_to_settle = max(
        (cell.images_to_settle or 0 for cell in near if not _beyond_alone(cell, config.tau)), default=0
    )
    if not images_to_settle:
        return (
            "next: an audit of these classes and attributes alone, on other images: among fewer tests less is expected "
            "by chance"
        )
    per_caption = ceil(images_to_settle / config.captions_per_cell)
    return (
        f"next: `images_per_caption: {per_caption}` draws that many; `budget: {{images: N}}` draws images until each "
        "is settled or N are used; `c2b failures` looks for captions that fail"
    )


def _groups(cells: Iterable[Cell]) -> dict[tuple[str, str, str], list[Cell]]:
    """Returns the cells of each classifier, class and attribute."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.classifier, cell.target_class, cell.attribute), []).append(cell)
    return groups
