"""Suspected label errors in words and pictures, and how far scores would move without them.

It knows rows of `tables.LABEL_ERRORS` and of `tables.SCORES`; nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.ranking import FINDINGS, cells_of
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
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
    "left out. `label_errors: {encoder: SPEC}` asks for a second witness."
)


@dataclass(frozen=True)
class LabelErrorsOf:
    """Of one classifier: `line` counts, `without` tells what the scores would be, `changes` lists other verdicts."""

    name: str
    line: str
    without: str
    changes: tuple[str, ...]
    gallery: Gallery
    more: int


@dataclass(frozen=True)
class LabelErrors:
    present: bool
    how: str = ""
    sections: tuple[LabelErrorsOf, ...] = ()


def label_error_images(errors: pa.Table) -> list[str]:
    """Returns the images that the page shows, those of each classifier the most confident first."""
    return [row["image_id"] for rows in _by_classifier(errors).values() for row in rows[:MOST_PICTURES]]


def label_errors(
    config: AuditConfig,
    tables: tuple[pa.Table, pa.Table, pa.Table],
    names: Mapping[str, str],
    thumbnails: Mapping[str, str],
) -> LabelErrors:
    """Returns the section. `tables`: the suspected errors, the scores, and the scores without them; `thumbnails`: a
    data: URI per image id."""
    if config.label_errors is None:
        return LabelErrors(False)
    errors, scores, scores_without = tables
    by_classifier = _by_classifier(errors)
    method = _WITNESS if config.label_errors.encoder else _ALONE
    sections = []
    for classifier, name in names.items():
        rows = by_classifier.get(classifier, [])
        cells_with, cells_without = (_of(table, classifier) for table in (scores, scores_without))
        if not cells_with:
            continue
        pictures = tuple(_picture(row, thumbnails) for row in rows[:MOST_PICTURES])
        gallery = Gallery("wrong", "?", "Label, and what the classifier answered", pictures)
        changes = _changes(cells_with, cells_without) if rows else []
        sections.append(
            LabelErrorsOf(
                name=name,
                line=_line(rows),
                without=_without(cells_with, cells_without) if rows else "",
                changes=tuple(changes[:MOST_CHANGES]),
                gallery=gallery,
                more=max(len(rows) - MOST_PICTURES, 0),
            )
        )
    return LabelErrors(bool(sections), method, tuple(sections))


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


def _of(scores: pa.Table, classifier: str) -> list[Any]:
    return cells_of(scores.filter(pc.equal(scores["classifier"], classifier)))


def _line(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "No image is suspected of a wrong label."
    pairs: dict[tuple[str, str], int] = {}
    for row in rows:
        pair = row["label"], row["answer"]
        pairs[pair] = pairs.get(pair, 0) + 1
    (label, answer), number = max(pairs.items(), key=lambda item: (item[1], item[0]))
    are = "images are" if len(rows) > 1 else "image is"
    most = f", most often {clean(label)} that may be {clean(answer)} ({words.count(number)})" if len(rows) > 1 else ""
    return f"{words.count(len(rows))} {are} suspected of a wrong label{most}."


def _without(before: Sequence[Any], after: Sequence[Any]) -> str:
    shares = [_share(cells) for cells in (before, after)]
    return (
        f"Without them {words.percent(shares[1])} of the answers in the cells are right in place of "
        f"{words.percent(shares[0])}. That is the most that they can explain: each is an answer that counts as wrong."
    )


def _share(cells: Sequence[Any]) -> float:
    images = sum(cell.n for cell in cells)
    return sum(cell.correct for cell in cells) / images if images else float("nan")


def _changes(before: Sequence[Any], after: Sequence[Any]) -> list[str]:
    """Returns the cells whose verdict would be another one, those that are findings first."""
    cell_now = {(cell.target_class, cell.attribute, cell.bias_class): cell for cell in after}
    changed = []
    for cell in before:
        other = cell_now.get((cell.target_class, cell.attribute, cell.bias_class))
        if other is not None and other.verdict != cell.verdict:
            changed.append((cell.verdict not in FINDINGS, -cell.size, cell, other))
    return [
        f"{cell.target_class}, {cell.attribute} {cell.bias_class}: {other.verdict} in place of {cell.verdict} "
        f"(φ {words.signed(other.phi)}, was {words.signed(cell.phi)})"
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
