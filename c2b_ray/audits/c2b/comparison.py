"""Compares two runs, or two classifiers of one run, on the images that both saw; and checks gates on a run.

It composes runs, the comparing step and the gates, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits import gate as gates
from c2b_ray.audits.c2b.budget import clusters, duplicates
from c2b_ray.audits.c2b.classification import one_of, two_of
from c2b_ray.audits.c2b.report.findings import ONE_CAPTION
from c2b_ray.audits.c2b.report.ranking import on_one_caption
from c2b_ray.audits.c2b.run import C2BRun, check_same_images, same_images
from c2b_ray.audits.c2b.scoring import comparison as step
from c2b_ray.audits.c2b.scoring.comparison import ComparisonSide, Disagreement, SharedImages
from c2b_ray.audits.c2b.verification.verified import VerifierAnswers
from c2b_ray.errors import Argument, RunError, SourceError
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Article,
    Cell,
    Galleries,
    Items,
    Page,
    Paragraph,
    Section,
    TableRow,
    Terms,
)
from c2b_ray.report.comparison import MARKS, MOST_ROWS, both, changes, mark_of
from c2b_ray.report.pictures import WRONG, Gallery, Picture, ThumbnailSet, read_pictures, thumbnails
from c2b_ray.report.redact import clean, names_of
from c2b_ray.report.words import Column, Span, Summary
from c2b_ray.steps.cells import CellName
from c2b_ray.storage import files, resolve
from c2b_ray.storage.run import MANIFEST, NOTEBOOK

# The images that one of two classifiers got right and the other wrong, of the cells that changed.


MOST_CELLS = 24
MOST_PICTURES = 6  # of each side
MOST_NAMED = 3  # images of a cell, where only names are shown
CHANGED = ("worse", "better")
Answered = tuple[str, str, str]
"""An image's id, its class, and the wrong side's answer."""


def changed_cells(cells: pa.Table, pooled: pa.Table) -> list[CellName]:
    """Returns the cells that changed, and the cells of values that changed over all classes together."""
    values = {(row["attribute"], row["bias_class"]) for row in pooled.to_pylist() if row["change"] in CHANGED}
    return [
        CellName(row["target_class"], row["attribute"], row["bias_class"])
        for row in cells.to_pylist()
        if row["change"] in CHANGED or ((row["attribute"], row["bias_class"]) in values and row["doubt"] is None)
    ]


def image_lines(cells: pa.Table, disagreements: Mapping[CellName, Disagreement], run: C2BRun) -> list[str]:
    """Returns, for each changed cell in the order of the tables, the first images that only the worse side got
    wrong."""
    keys = _keys(run)
    lines = []
    for row in sorted(_by_difference(cells), key=lambda row: CHANGED.index(row["change"])):
        cell = CellName(row["target_class"], row["attribute"], row["bias_class"])
        side, images = (
            ("B", disagreements[cell].only_a) if row["change"] == "worse" else ("A", disagreements[cell].only_b)
        )
        keys_shown = ", ".join(clean(keys[image]) for image, _ in images[:MOST_NAMED])
        remainder = f" and {words.count(len(images) - MOST_NAMED)} more" if len(images) > MOST_NAMED else ""
        lines.append(f"{cell[0]}, {cell[1]}: {cell[2]}: {side} alone is wrong on {keys_shown}{remainder}")
    return lines


def _keys(run: C2BRun) -> dict[str, str]:
    images = run.read("images", ["image_id", "key"])
    return dict(zip(images["image_id"].to_pylist(), images["key"].to_pylist(), strict=True))


def disagreement_pictures(run: C2BRun, disagreements: Mapping[CellName, Disagreement]) -> ThumbnailSet:
    """Returns the thumbnails and names of the first images of each cell, which are all that a page shows."""
    ids = [
        image
        for cell in disagreements.values()
        for side in (cell.only_a, cell.only_b)
        for image, _ in side[:MOST_PICTURES]
    ]
    image_ids = list(dict.fromkeys(ids))[: 4 * MOST_CELLS * MOST_PICTURES]
    return ThumbnailSet(thumbnails(read_pictures(run, image_ids)), _keys(run))


def side_by_side(
    cells: pa.Table,
    pooled: pa.Table,
    disagreements: Mapping[CellName, Disagreement],
    names: tuple[str, str],
    thumbnail_set: ThumbnailSet,
) -> list[Article]:
    """Returns, for each cell or value over all classes that changed, the images that only one of the two classifiers
    got right: values over all classes first, then cells, largest difference first."""
    articles = []
    for row in _by_difference(pooled):
        title = f"Over all classes, {row['attribute']}: {row['bias_class']}"
        of_value = [cell for cell in disagreements if cell[1:] == (row["attribute"], row["bias_class"])]
        articles.append(
            _shown(title, row["change"], {cell: disagreements[cell] for cell in of_value}, names, thumbnail_set)
        )
    for row in _by_difference(cells):
        cell = CellName(row["target_class"], row["attribute"], row["bias_class"])
        if cell in disagreements:
            title = f"{cell[0]}, {cell[1]}: {cell[2]}"
            articles.append(_shown(title, row["change"], {cell: disagreements[cell]}, names, thumbnail_set))
    return [article for article in articles[:MOST_CELLS] if article.blocks]


def _by_difference(table: pa.Table) -> list[dict[str, str]]:
    return sorted((r for r in table.to_pylist() if r["change"] in CHANGED), key=lambda row: -abs(row["difference"]))


def _shown(
    title: str, change: str, cells: Mapping[CellName, Disagreement], names: tuple[str, str], thumbnail_set: ThumbnailSet
) -> Article:
    only_a = [(image, cell[0], answer) for cell, sides in cells.items() for image, answer in sides.only_a]
    only_b = [(image, cell[0], answer) for cell, sides in cells.items() for image, answer in sides.only_b]
    a_right = _gallery(f"A right, B wrong: {words.count(len(only_a))}", _spread(only_a), names[1], thumbnail_set)
    b_right = _gallery(f"B right, A wrong: {words.count(len(only_b))}", _spread(only_b), names[0], thumbnail_set)
    worse = change == "worse"
    ordered = (a_right, b_right) if worse else (b_right, a_right)
    galleries = [gallery for gallery in ordered if gallery.pictures]
    blocks = [Galleries(galleries)] if galleries else []
    return Article(title, blocks, style="sides", mark=mark_of(change))


def _spread(images: Sequence[Answered]) -> list[Answered]:
    """Returns the first few images, one of each class before a second of any."""
    shown_so_far: dict[str, int] = {}
    order = []
    for number, (_, target, _) in enumerate(images):
        shown_so_far[target] = shown_so_far.get(target, 0) + 1
        order.append((shown_so_far[target], number))
    return [images[number] for _, number in sorted(order)[:MOST_PICTURES]]


def _gallery(title: str, images: Sequence[Answered], name: str, thumbnail_set: ThumbnailSet) -> Gallery:
    pictures = tuple(
        Picture(
            source=thumbnail_set.thumbnails.get(image, ""),
            key=clean(thumbnail_set.keys.get(image, "")),
            alt=f"{target}, which {name} takes for {answer}.",
            label=answer,
            probability="",
            stands_for="",
            caption="",
        )
        for image, target, answer in images
    )
    # The answer below a picture is that of the side that is wrong.
    return Gallery(verdict="wrong", sign=WRONG, title=title, pictures=pictures)


# A comparison as one HTML page: what got worse, what got better, and what is undetermined.


TITLES = {"worse": "Got worse", "better": "Got better", "undetermined": "Undetermined"}
COMPARED_COLUMNS = (
    *(Column(name) for name in ("Class", "Attribute: value")),
    *(Column(name, number=True) for name in ("A", "B", "Difference", "Change of φ", "q", "Images")),
)
OPEN_COLUMNS = (*COMPARED_COLUMNS, Column(f"Would settle{words.FIXED}it", number=True))
TERMS = (
    "Both classifiers answered the same images. An image that both get right, or both wrong, does not tell "
    "them apart: the tests look at those that only one of them gets right.",
    "**Worse** and **better** where the accuracies differ by more than τ\u00a0=\u00a0{tau} and q is at most "
    "α\u00a0=\u00a0{alpha}: the larger of two p-values, of Tango’s score test (1998) that the difference lies "
    "within ±τ and of McNemar’s exact test, adjusted for the false discovery rate over all cells (Benjamini & "
    "Hochberg 1995). **The same** where a difference of τ or more, either way, is refuted at the same rate "
    "(two one-sided tests); else **undetermined**, as are cells that are in doubt on either side. The images that "
    "**would settle it** are those of the cell in all: they do in four of five cases, if the two differ on more images "
    "as they do on these.",
    "Images of one caption share its wording, on which either classifier may happen to be better. So the "
    "tests and intervals count each cell’s images as fewer, the more its captions differ and the fewer there "
    "are; comparison.parquet has these numbers (`effective`).",
    "**Change of φ** is that of the bias score, B minus A; its interval combines the intervals of the cells (Zou "
    "& Donner 2008).",
)


def comparison_page(
    title: str,
    classifiers: tuple[str, str],
    tables: tuple[pa.Table, pa.Table],
    levels: tuple[float, float],
    disagreements: Mapping[CellName, Disagreement] | None = None,
    thumbnail_set: ThumbnailSet | None = None,
) -> Page:
    """`tables`: of `tables.COMPARISON` and `tables.COMPARISON_POOLED`; `levels`: tau and
    alpha; `disagreements`: the images that one side alone got right, of the cells that changed, and `thumbnail_set`:
    what they look like."""
    cells, pooled = tables
    rows, (tau, alpha) = cells.to_pylist(), levels
    shown_names = names_of(classifiers)
    names = (shown_names[classifiers[0]], shown_names[classifiers[1]])
    scale = f"{words.plural(len(rows), 'cell')}, {words.plural(sum(row['n'] for row in rows), 'pair')} of answers."
    articles = side_by_side(cells, pooled, disagreements or {}, names, thumbnail_set or ThumbnailSet({}, {}))
    terms = [text.format(tau=words.decimal(tau), alpha=words.decimal(alpha)) for text in TERMS]
    return Page(
        title=clean(title),
        suffix="two classifiers compared",
        kicker="Two classifiers compared",
        byline=both(*names),
        head=(
            Paragraph(tally(rows), "tally"),
            Paragraph(
                " ".join(filter(None, (scale, to_settle_line(rows), left_out(rows), one_caption_line(rows)))), "scale"
            ),
        ),
        sections=(
            *_over_all_classes(pooled.to_pylist()),
            *(_changes(change, rows, alpha) for change in TITLES),
            *_images(articles),
            Section("How they were compared", [Terms(terms)]),
        ),
    )


def _over_all_classes(rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    lines = pooled_lines(rows)
    return [Section("Over all classes", [Items(lines, "pooled")])] if lines else []


def _changes(change: str, rows: Sequence[Mapping[str, Any]], alpha: float) -> Section:
    changed = by_change(rows, change)
    caption = f"Largest difference first; B minus A, with {words.percent(1 - alpha)} intervals"
    lines = [_compared_row(row) for row in changed[:MOST_ROWS]]
    columns = OPEN_COLUMNS if change == "undetermined" else COMPARED_COLUMNS
    return changes(TITLES[change], mark_of(change), caption, columns, lines, len(changed))


def _images(articles: Sequence[Article]) -> list[Section]:
    text = (
        "Images that one of the two got right and the other wrong; beneath each what the one that is wrong took it for."
    )
    return [Section("What tells them apart", [Paragraph(text, "legend"), *articles], "images")] if articles else []


def _compared_row(row: Mapping[str, Any]) -> TableRow:
    value = (Span(f"{row['attribute']}: "), Span(row["bias_class"], strong=True))
    caveat = ONE_CAPTION if row["change"] in CHANGED and _on_one_caption(row) else ""
    phi_interval = words.signed_range(row["phi_difference_low"], row["phi_difference_high"])
    return TableRow(
        (
            row["target_class"],
            Cell(value, [caveat]),
            words.percent(row["accuracy_a"]),
            words.percent(row["accuracy_b"]),
            Cell(words.signed(row["difference"]), [words.signed_range(row["difference_low"], row["difference_high"])]),
            Cell(words.signed(row["phi_difference"]), [phi_interval]),
            words.small_probability(row["q_value"]),
            words.count(row["n"]),
            *([_would_settle(row)] if row["change"] == "undetermined" else []),
        ),
        data={"class": row["target_class"], "attribute": row["attribute"]},
    )


def _would_settle(row: Mapping[str, Any]) -> str:
    if row["doubt"] is not None:
        return "in doubt"
    return words.count(row["pairs_to_settle"]) if row["pairs_to_settle"] else words.UNKNOWN


def to_settle_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence with the images that would settle the undetermined cells; empty where that is known of
    none."""
    undetermined = [row for row in rows if row["change"] == "undetermined"]
    known = [row for row in undetermined if row["pairs_to_settle"]]
    if not known:
        return ""
    cells = words.plural(len(undetermined), "undetermined cell")
    if len(known) < len(undetermined):
        cells = f"{words.count(len(known))} of {cells}"
    shared, needed = (words.count(round(median(row[name] for row in known))) for name in ("n", "pairs_to_settle"))
    if len(known) == 1:
        return f"{cells} has {shared} images that both answered, and about {needed} would settle it."
    return f"{cells} have {shared} images that both answered, and about {needed} would settle one (medians)."


def tally(rows: Sequence[Mapping[str, Any]]) -> str:
    changes = Counter(row["change"] for row in rows)
    return (
        f"{words.count(changes['worse'])} worse, {words.count(changes['better'])} better, "
        f"{words.count(changes['same'])} the same, {words.count(changes['undetermined'])} undetermined"
    )


def pooled_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns one sentence for each value that changed over all classes together, the largest difference first."""
    changed = [row for row in rows if row["change"] in ("worse", "better")]
    changed.sort(key=lambda row: -abs(row["difference"]))
    return [
        f"Over {words.plural(row['classes'], 'class', 'classes')}, {row['attribute']}: {row['bias_class']} got "
        f"{row['change']}: difference {words.signed(row['difference'])} "
        f"({words.signed_range(row['difference_low'], row['difference_high'])}, "
        f"q {words.small_probability(row['q_value'])}, {words.plural(row['n'], 'image')}"
        f"{f', {ONE_CAPTION} a class' if _on_one_caption(row) else ''})."
        for row in changed
    ]


def left_out(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence with the number of images that did not count; empty where all did."""
    names = ("unshared", "unanswered", "refused", "repeats")
    unshared, unanswered, unverified, repeats = (sum(row[name] or 0 for row in rows) for name in names)
    parts = []
    if unshared:
        parts.append(f"{words.count(unshared)} that only one of the two drew")
    if unanswered:
        parts.append(f"{words.count(unanswered)} that one of them did not answer")
    if unverified:
        parts.append(f"{words.count(unverified)} in which the verifier did not see class and value")
    if repeats:
        parts.append(f"{words.plural(repeats, 'near-duplicate')}")
    return f"Left out, counted cell by cell: {words.listed(parts)}." if parts else ""


def one_caption_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns what changes of cells with one caption mean; empty where any cell shows how captions differ."""
    if not any(_on_one_caption(row) for row in rows):
        return ""
    return (
        "One caption drew the images of each cell: a change may be of that caption alone, and no interval holds how "
        "much captions differ. Give each cell two captions or more (captions_per_cell)."
    )


def _on_one_caption(row: Mapping[str, Any]) -> bool:
    return on_one_caption(row["captions"], row["caption_spread"])


def by_change(rows: Sequence[Mapping[str, Any]], change: str) -> list[Mapping[str, Any]]:
    """Returns the cells of that change, largest difference first, those without a number last."""
    changed = [row for row in rows if row["change"] == change]
    return sorted(changed, key=lambda row: (row["n"] == 0, -abs(row["difference"]) if row["n"] else 0.0))


# The summary of a comparison for terminals and programs: what got worse, what got better, and the counts.


MOST_SUMMARY_ROWS = 15
COLUMNS = (
    *(Column(name) for name in ("class", "attribute", "value")),
    *(Column(name, number=True) for name in ("A right", "B right", "difference", "interval", "change of φ", "n")),
)


def summaries(classifiers: tuple[str, str], tables: tuple[pa.Table, pa.Table], images: Sequence[str]) -> list[Summary]:
    """`tables`: of `tables.COMPARISON` and `tables.COMPARISON_POOLED`; `images`: those that only one of the two got
    right, in words."""
    rows = tables[0].to_pylist()
    result = [Summary("", COLUMNS, [], [], [f"A: {classifiers[0]}", f"B: {classifiers[1]}"])]
    for change in CHANGED:
        changed = by_change(rows, change)
        summary_rows = [_summary_row(row) for row in changed[:MOST_SUMMARY_ROWS]]
        title = words.shown_of(TITLES[change], len(summary_rows), len(changed))
        result.append(Summary(title, COLUMNS, summary_rows, [MARKS[change][2]] * len(summary_rows), []))
    lines = [*images[:MOST_SUMMARY_ROWS], *pooled_lines(tables[1].to_pylist()), tally(rows), to_settle_line(rows)]
    remarks = (left_out(rows), one_caption_line(rows))
    return [*result, Summary("", COLUMNS, [], [], [line for line in (*lines, *remarks) if line])]


def counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts the cells by change, and the images that were left out."""
    return {
        "changes": {
            name: sum(row["change"] == name for row in rows) for name in ("worse", "better", "same", "undetermined")
        },
        "left_out": {name: sum(row[name] for row in rows) for name in ("unshared", "unanswered")},
    }


def _summary_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["target_class"],
        row["attribute"],
        row["bias_class"],
        words.percent(row["accuracy_a"]),
        words.percent(row["accuracy_b"]),
        f"{row['difference']:+.2f}",
        f"{row['difference_low']:+.2f} … {row['difference_high']:+.2f}",
        f"{row['phi_difference']:+.2f}",
        str(row["n"]),
    )


OF_TWO_VALUES = (
    "classifier", "target_class", "attribute", "bias_class", "n", "correct", "errors", "accuracy", "accuracy_low",
    "accuracy_high", "expected", "interaction", "interaction_low", "interaction_high", "p_value", "q_value", "basis",
    "doubt",
)  # fmt: skip
"""Columns of two values at once for gates. φ is none: it is large wherever that of one of the two values is, which has
a cell of its own."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `compare`. `cells`: a table of `tables.COMPARISON`. `pooled`: of `COMPARISON_POOLED`, over all
    classes together. `scores`: those of B."""

    run_a: C2BRun
    run_b: C2BRun
    classifier_a: str
    classifier_b: str
    tau: float
    alpha: float
    cells: pa.Table
    pooled: pa.Table
    scores: pa.Table
    shared: SharedImages

    def __repr__(self) -> str:
        return f"<A: {self.classifier_a}, B: {self.classifier_b}: {tally(self.cells.to_pylist())}>"

    def _repr_html_(self) -> str:
        """In a notebook, a comparison is its page."""
        return str(resolve_name(f"{NOTEBOOK}:framed")(self.page()))

    def check(self, fail_on: Sequence[str], allow_unchecked: bool = False) -> list[gates.Check]:
        """Checks gates on the changes of cells, also over all classes, and on B's scores, also of two values at once.

        `phi` and `verdict` are B's, on all of its images. A gate that no cell could be checked against fails, unless
        `allow_unchecked`.
        """
        scores_of_b = {_cell_of(row): row for row in self.scores.to_pylist()}
        rows = []
        for row in self.cells.to_pylist():
            scored = scores_of_b.get(_cell_of(row), {})
            rows.append({**scored, **row, "n": scored.get("n", 0), "pairs": row["n"]})
        rows += [{**row, "pairs": row["n"]} for row in self.pooled.to_pylist()]
        rows += [row for row in _of_two_values(self.run_b) if row["classifier"] == self.classifier_b]
        return gates.check(fail_on, gates.cells_of(rows, self.classifier_b), allow_unchecked)

    def disagreements(self) -> dict[CellName, Disagreement]:
        """Returns the images that only one side got right, for cells that changed and for values that changed over all
        classes."""
        return self.shared.disagreements(changed_cells(self.cells, self.pooled))

    def properties(self) -> dict[str, str]:
        return {
            "classifier_a": self.classifier_a,
            "classifier_b": self.classifier_b,
            "tau": str(self.tau),
            "alpha": str(self.alpha),
        }

    def summaries(self) -> list[Summary]:
        images = image_lines(self.cells, self.disagreements(), self.run_a)
        return summaries((self.classifier_a, self.classifier_b), (self.cells, self.pooled), images)

    def to_json(self) -> dict[str, Any]:
        return {
            "a": self.run_a.path,
            "b": self.run_b.path,
            **{name: getattr(self, name) for name in ("classifier_a", "classifier_b", "tau", "alpha")},
            **counted(self.cells.to_pylist()),
            "cells": self.cells.to_pylist(),
            "pooled": self.pooled.to_pylist(),
        }

    def page(self) -> str:
        """Returns the comparison as one HTML page."""
        title = self.run_b.config.task
        disagreements = self.disagreements()
        pictures = disagreement_pictures(self.run_a, disagreements)  # their ids are A's
        return comparison_page(
            title,
            (self.classifier_a, self.classifier_b),
            (self.cells, self.pooled),
            (self.tau, self.alpha),
            disagreements,
            pictures,
        ).html()

    def write(self, out: str | Path) -> str:
        """Writes comparison.parquet, comparison_pooled.parquet and comparison.html into a directory; returns the page's
        path."""
        files.make_directory(out)
        directory = str(out).rstrip("/")
        files.write_table(f"{directory}/comparison.parquet", self.cells)
        files.write_table(f"{directory}/comparison_pooled.parquet", self.pooled)
        files.write_bytes(f"{directory}/comparison.html", self.page().encode())
        return f"{directory}/comparison.html"


def compare(
    run_a: C2BRun, run_b: C2BRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares two classifiers, cell by cell, on identical images: B against A, or two of one finished run.

    `classifier_a`, `classifier_b`: specs, needed where a run has several classifiers and the choice is unclear. The
    thresholds are the runs'. Raises ConfigError where it is unclear which classifiers are meant; RunError for runs that
    have different settings or share no image, or whose images of the same name have different bytes.
    """
    ids: Mapping[str, str] = {}
    if resolve(run_a.path)[1] == resolve(run_b.path)[1]:
        spec_a, spec_b = two_of(run_a, classifier_a, classifier_b)
    else:
        spec_a = one_of(run_a, classifier_a, Argument.CLASSIFIER_A)
        spec_b = one_of(run_b, classifier_b, Argument.CLASSIFIER_B)
        check_same_images(run_a, run_b)
        ids = same_images(run_a, run_b)
    tau, alpha = _thresholds(run_a, run_b)
    shared_images = SharedImages(_side(run_a, spec_a), _renamed(_side(run_b, spec_b), ids))
    cells, pooled = step.compare(shared_images, tau, alpha), step.compare_pooled(shared_images, tau, alpha)
    scores = run_b.scores.filter(pc.equal(run_b.scores["classifier"], spec_b))
    return Comparison(run_a, run_b, spec_a, spec_b, tau, alpha, cells, pooled, scores, shared_images)


def findings(run: C2BRun, classifier: str | None = None) -> list[gates.GateCell]:
    """Returns the scores of single classes, of all together, of two values at once and of perturbations: of all
    classifiers of the run, or of one. Raises RunError where there is none."""
    rows = [*run.scores.to_pylist(), *run.read("pooled").to_pylist(), *_of_two_values(run), *_of_perturbations(run)]
    if classifier is not None:
        chosen_classifier = one_of(run, classifier, Argument.CLASSIFIER)
        rows = [row for row in rows if row["classifier"] == chosen_classifier]
    if not rows:
        raise RunError(f"{run.path}: the run has no scores, so no gate can be checked")
    return gates.cells_of(rows)


def _of_two_values(run: C2BRun) -> list[dict[str, Any]]:
    """Returns the run's cells of two values at once, as gates check them: without a verdict where another combination
    explains the cell, which then has no interaction of its own."""
    rows = run.intersections.to_pylist()
    return [
        {name: row[name] for name in (*OF_TWO_VALUES, *([] if row["folded_into"] else ["verdict"]))} for row in rows
    ]


def _of_perturbations(run: C2BRun) -> list[dict[str, Any]]:
    """Returns the effects of perturbations as cells: class/perturbation/level."""
    rows = run.read("perturbations").to_pylist()
    return [{**row, "attribute": row["perturbation"], "bias_class": str(row["level"])} for row in rows]


def _cell_of(row: Mapping[str, str]) -> tuple[str, str, str]:
    return row["target_class"], row["attribute"], row["bias_class"]


def _side(run: C2BRun, classifier: str) -> ComparisonSide:
    of_classifier = run.scores.filter(pc.equal(run.scores["classifier"], classifier)).to_pylist()
    doubts = {_cell_of(row): row["doubt"] for row in of_classifier if row["doubt"] is not None}
    verifier_answers = VerifierAnswers(run.verifications) if run.has("verifications") else None
    return ComparisonSide(
        run.captions, run.draws, run.predictions, classifier, duplicates(run), verifier_answers, doubts, clusters(run)
    )


def _renamed(side: ComparisonSide, ids: Mapping[str, str]) -> ComparisonSide:
    """Returns B's side with the ids that A has for the same images."""
    if not ids:
        return side
    names, new_names = pa.array(ids), pa.array(ids.values())

    def renamed(table: pa.Table) -> pa.Table:
        found = new_names.take(pc.index_in(table["image_id"], names))
        column = pc.coalesce(found, table["image_id"])
        return table.set_column(table.column_names.index("image_id"), "image_id", column)

    return replace(side, draws=renamed(side.draws), predictions=renamed(side.predictions))


def _thresholds(run_a: C2BRun, run_b: C2BRun) -> tuple[float, float]:
    """Returns τ and α, which must be equal in both runs, as the classes must.

    Raises SourceError where a run's config lacks one of them.
    """
    for run in (run_a, run_b):
        for name in ("tau", "alpha", "classes"):
            if name not in run.record.config:
                raise SourceError(
                    f"{run.location(MANIFEST)}: its config has no {name}, so nothing says how the run was asked; it is "
                    "damaged or of another kind: run its c2b audit anew"
                )
    a, b = run_a.config, run_b.config
    different = [name for name in ("tau", "alpha") if getattr(a, name) != getattr(b, name)]
    if set(a.classes) != set(b.classes):
        different.append("classes")  # among other classes, the same answer means something else
    if a.right != b.right:
        different.append("right")
    if a.metric != b.metric:
        different.append("metric")
    elif a.metric not in ("accuracy", "recall"):
        raise RunError(
            f"{run_a.path} and {run_b.path} compare cells by {a.metric}; two classifiers are compared image by "
            "image, by right and wrong answers: audit both with metric: accuracy, or gate each with `c2b gate`"
        )
    if different:
        raise RunError(
            f"{run_a.path} and {run_b.path} were asked differently ({', '.join(different)}): audit both classifiers "
            "with the same settings, or in one run"
        )
    return a.tau, a.alpha
