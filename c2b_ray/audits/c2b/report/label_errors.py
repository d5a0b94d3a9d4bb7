"""Suspected label errors in words and pictures, and how far scores would move without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.findings import NAMES
from c2b_ray.audits.c2b.report.ranking import FINDINGS, Cell, cells_of
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.blocks import Article, Block, Galleries, Items, Paragraph, Section, spec
from c2b_ray.report.pictures import Gallery, Picture
from c2b_ray.report.redact import clean

MOST_PICTURES = 24
"""Pictures of each classifier."""
MOST_CHANGES = 10
_WITNESS = (
    "Each is an answer that contradicts the label with confidence (confident learning), and most of the image’s ten "
    "nearest images, by the encoder, are labelled as the classifier answered. Look at them before you change a label: "
    "an encoder can err with the classifier."
)
_ALONE = (
    "Each is an answer that contradicts the label with confidence (confident learning). No encoder was named, so that "
    "nothing tells a wrong label from a wrong answer; images of cells where the classifier is found to be worse are "
    "not listed. `label_errors: {encoder: SPEC}` asks for a second witness."
)


def label_error_images(errors: pa.Table) -> list[str]:
    """Returns the images that the page shows, those of each classifier the most confident first."""
    return [row["image_id"] for rows in _by_classifier(errors).values() for row in rows[:MOST_PICTURES]]


def label_errors_section(
    config: AuditConfig,
    tables: tuple[pa.Table, pa.Table, pa.Table],
    names: Mapping[str, str],
    thumbnails: Mapping[str, str],
) -> list[Section]:
    """Returns the section; nothing where the audit did not look for label errors. `tables`: the suspected errors, the
    scores, and the scores without them; `thumbnails`: a data: URI per image id."""
    if config.label_errors is None:
        return []
    errors, scores, scores_without = tables
    by_classifier = _by_classifier(errors)
    of_classifiers = []
    for classifier, name in names.items():
        before, after = (_of(table, classifier) for table in (scores, scores_without))
        if before:
            rows = by_classifier.get(classifier, [])
            has_witness = config.label_errors.encoder is not None
            of_classifiers.append((name, _of_classifier(rows, before, after, thumbnails, has_witness)))
    if not of_classifiers:
        return []
    blocks: list[Block] = [Paragraph(_WITNESS if config.label_errors.encoder else _ALONE)]
    for name, of_classifier in of_classifiers:
        blocks += [Article((spec(name),), of_classifier)] if len(of_classifiers) > 1 else of_classifier
    return [Section("Suspected label errors", blocks, "labels", "Label errors")]


def _of_classifier(
    rows: Sequence[Mapping[str, Any]],
    before: Sequence[Cell],
    after: Sequence[Cell],
    thumbnails: Mapping[str, str],
    has_witness: bool,
) -> list[Block]:
    """Returns how many there are, what the scores and verdicts would be without them, and pictures. `has_witness`:
    whether an encoder was asked."""
    if sum(cell.n for cell in before) == sum(cell.n for cell in after):
        return [Paragraph("No image is suspected of a wrong label.")]
    pictures = tuple(_picture(row, thumbnails) for row in rows[:MOST_PICTURES])
    changes = _changes(before, after)[:MOST_CHANGES]
    blocks: list[Block] = [Paragraph(f"{_line(rows)} {_without(before, after, has_witness)}")]
    if changes:
        blocks.append(Items(changes, style=""))
    if pictures:
        gallery = Gallery("wrong", "?", "Label, and what the classifier answered", pictures)
        blocks.append(Galleries([gallery], style="alone", level=3))
    if more := words.further(len(rows), MOST_PICTURES, "in the run’s label_errors.parquet"):
        blocks.append(Paragraph(more, "beneath"))
    return blocks


def label_errors_line(errors: pa.Table, config: AuditConfig) -> str:
    """Returns a line for the terminal; "" where nothing was asked."""
    if config.label_errors is None:
        return ""
    images = pc.count_distinct(errors["image_id"]).as_py()
    if not images:
        return "suspected label errors: none"
    return (
        f"suspected label errors: {words.plural(images, 'image')}, in the report and `c2b export --format label-errors`"
    )


def _by_classifier(errors: pa.Table) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in errors.to_pylist():
        rows.setdefault(row["classifier"], []).append(row)
    return rows


def _of(scores: pa.Table, classifier: str) -> list[Cell]:
    return cells_of(scores.filter(pc.equal(scores["classifier"], classifier)))


def _line(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "No image outside of those cells is suspected of a wrong label."
    pairs: dict[tuple[str, str], int] = {}
    for row in rows:
        pair = row["label"], row["answer"]
        pairs[pair] = pairs.get(pair, 0) + 1
    (label, answer), number = max(pairs.items(), key=lambda item: (item[1], item[0]))
    are = "images are" if len(rows) > 1 else "image is"
    most = f", most often {clean(label)} that may be {clean(answer)} ({words.count(number)})" if len(rows) > 1 else ""
    return f"{words.count(len(rows))} {are} suspected of a wrong label{most}."


def _without(before: Sequence[Cell], after: Sequence[Cell], has_witness: bool) -> str:
    was, now = (words.percent(_share(cells)) for cells in (before, after))
    if has_witness:
        return (
            f"Without them {now} of the answers in the cells are right in place of {was}. Each is an answer that "
            "counts as wrong, so that these images explain no more; wrong labels that are not listed may."
        )
    return (
        "Without every answer that contradicts its label with confidence, also in the cells whose images are not "
        f"listed, {now} of the answers are right in place of {was}: so much, and what stands below, may be wrong "
        "labels or the classifier’s own errors."
    )


def _share(cells: Sequence[Cell]) -> float:
    images = sum(cell.n for cell in cells)
    return sum(cell.correct for cell in cells) / images if images else float("nan")


def _changes(before: Sequence[Cell], after: Sequence[Cell]) -> list[str]:
    """Returns the cells whose verdict would be another one, those that are findings first."""
    cell_now = {(cell.target_class, cell.attribute, cell.bias_class): cell for cell in after}
    changed = []
    for cell in before:
        other = cell_now.get((cell.target_class, cell.attribute, cell.bias_class))
        if other is not None and other.verdict != cell.verdict:
            changed.append((cell.verdict not in FINDINGS, -cell.size, cell, other))
    return [
        f"{cell.target_class}, {cell.attribute} {cell.bias_class}: {NAMES[other.verdict]} in place of "
        f"{NAMES[cell.verdict]} (φ {words.signed(other.phi)}, was {words.signed(cell.phi)})"
        for *_, cell, other in sorted(changed, key=lambda item: item[:2])
    ]


def _picture(row: Mapping[str, Any], thumbnails: Mapping[str, str]) -> Picture:
    label, answer, key = (clean(str(row[name] or "")) for name in ("label", "answer", "key"))
    votes = row["neighbours_answer"]
    neighbours = "" if votes is None else f"; neighbours {words.percent(votes)} {answer}"
    return Picture(
        source=thumbnails.get(row["image_id"], ""),
        key=key,
        alt=f"{key}, labelled {label}, answered {answer}",
        label=f"{label} → {answer}",
        probability=f"{row['confidence']:.2f}{neighbours}",
        stands_for="",
        caption="",
    )
