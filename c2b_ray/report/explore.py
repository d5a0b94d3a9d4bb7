"""The section of a page in which a reader explores the images: a confusion matrix, pictures, filters and a map; and
precision, recall and curves of each classifier.

Knows images as numbers of classes and answers; knows no audit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.errors import ImageError
from c2b_ray.report import words
from c2b_ray.report.blocks import Columns, Details, Figure, Fragment, Paragraph, Section, Table
from c2b_ray.report.pictures import is_jpeg_within, length_of_uri, small, uri
from c2b_ray.report.words import Column, Span
from c2b_ray.stats.classification import precision_recall_f1, reliability, two_class_curves
from c2b_ray.stats.clustering import principal_plane
from c2b_ray.text import visible

# Small line charts over the unit square, as SVG that takes the page's colours.


LEFT, TOP, SIDE = 34, 8, 190
MOST_POINTS = 200


@dataclass(frozen=True)
class Line:
    """Points in [0, 1]; `dots` where each is a measurement."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    dots: bool = False


def chart(lines: Sequence[Line], x_name: str, y_name: str, description: str, diagonal: bool = False) -> str:
    """Returns an <svg> element. `description`: for readers who cannot see it."""
    parts = [f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>']
    if diagonal:
        parts.append(f'<line class="diagonal" x1="{LEFT}" y1="{TOP + SIDE}" x2="{LEFT + SIDE}" y2="{TOP}"/>')
    for line in lines:
        indices = np.unique(np.linspace(0, len(line.x) - 1, min(len(line.x), MOST_POINTS)).astype(int))
        points = [(LEFT + SIDE * float(line.x[i]), TOP + SIDE * (1 - float(line.y[i]))) for i in indices]
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        if line.dots:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
    bottom, middle, height = TOP + SIDE, LEFT + SIDE / 2, TOP + SIDE / 2
    for share, name in ((0, "0"), (0.5, "0.5"), (1, "1")):
        parts.append(f'<text x="{LEFT + SIDE * share:.0f}" y="{bottom + 13}" text-anchor="middle">{name}</text>')
        parts.append(f'<text x="{LEFT - 5}" y="{bottom - SIDE * share + 3:.0f}" text-anchor="end">{name}</text>')
    parts.append(f'<text x="{middle}" y="{bottom + 27}" text-anchor="middle">{escape(visible(x_name))}</text>')
    turned = f'transform="rotate(-90 9 {height})"'
    parts.append(f'<text x="9" y="{height}" text-anchor="middle" {turned}>{escape(visible(y_name))}</text>')
    label = escape(visible(f"{y_name} by {x_name}. {description}"))
    box = f"0 0 {LEFT + SIDE + 12} {bottom + 32}"
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


# The section: what its script reads as JSON, and the tables and curves.


MOST_IMAGES = 600
"""Images that the page holds, each with a picture."""
MOST_CHARACTERS = 1_500_000
"""Of their pictures, so that a page stays below 5 MB."""
LARGEST = 96  # pixels of the longer side
QUALITY = 60
MOST_MATRIX = 24  # classes in the confusion matrix
MOST_ROWS = 200  # classes in the table of a classifier
THREADS = 2
"""That make pictures small, most of which happens outside of Python's lock: a reader waits for the page."""
AT_ONCE = 64
COARSE = 8  # pixels of each side of a picture where no embeddings are at hand

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Answered:
    """One classifier's answers to images, in their order: `answer` is a number of a name, −1 where there is none;
    `confidence` of the answer, in [0, 1], NaN where not known."""

    name: str
    answer: Ints
    confidence: Floats


@dataclass(frozen=True)
class Images:
    """Images with their classes and answers. `names`: of all answers, the classes first; `truth`: the number of each
    image's class; `right` is equality of both. `scored`: whether confidences are probabilities of what counts as the
    answer. `each`: whether a classifier gives each label on its own: images are then of the classes that they show,
    once for each, so that they tell recall alone, and there is no matrix."""

    classes: tuple[str, ...]
    names: tuple[str, ...]
    truth: Ints
    answered: tuple[Answered, ...]
    scored: bool = True
    each: bool = False


@dataclass(frozen=True)
class Measured:
    """One classifier: its table, and curves as headings and <svg> elements. `rows`: of each class its name, images,
    precision, recall, F1 and what `last` is called; `more`: the number of classes that are left out."""

    name: str
    rows: Sequence[Sequence[str]]
    more: int
    charts: Sequence[tuple[str, str]] = ()
    last: str = "Most often taken for"


@dataclass(frozen=True)
class Explore:
    """`data`: JSON for the script; None where there is nothing to look at."""

    line: str = ""
    data: Markup | None = None
    measured: tuple[Measured, ...] = ()


def explore_section(explore: Explore) -> list[Section]:
    """Returns the section; nothing where there is nothing to look at."""
    if explore.data is None:
        return []
    tables = [_details(one, len(explore.measured) > 1) for one in explore.measured]
    return [
        Section(
            "Explore",
            [Paragraph(explore.line, "intro"), Fragment("explore.html.j2", explore.data), *tables],
            "explore",
            "Explore",
        )
    ]


def _details(measured: Measured, several: bool) -> Details:
    """Returns the table and the curves of a classifier."""
    trust = ", and how far its confidence can be trusted" if measured.charts else ""
    name = (Span(": "), Span(measured.name, True, "spec")) if several else ()
    columns = [
        Column("Class"),
        *(Column(measure, number=True) for measure in ("Images", "Precision", "Recall", "F1")),
        Column(measured.last),
    ]
    table = Table(
        columns,
        measured.rows,
        name=f"Precision, recall and F1, {measured.name}",
        style="",
        caption="Lowest F1 first, over the images of this run: precision changes with how many of each class there are",
        sortable=True,
        more=f"And {words.count(measured.more)} more classes." if measured.more else "",
    )
    charts = (
        [Columns([Figure(svg, heading, "") for heading, svg in measured.charts], "charts")] if measured.charts else []
    )
    summary = (Span("Precision, recall and F1 of each class"), *name, Span(trust))
    return Details(summary, [*charts, table])


def sample(images: Images, most: int = MOST_IMAGES, seed: int = 0) -> Ints:
    """Returns the numbers of the images that a page holds, in the order in which they find room: of each pair of class
    and answer of any classifier about as many, so that rare mistakes are among them."""
    count = len(images.truth)
    shuffled = np.random.default_rng(seed).permutation(count)
    rank = np.full(count, count, np.int64)
    for classifier in images.answered:
        pair = (images.truth * (len(images.names) + 1) + classifier.answer + 1)[shuffled]
        order = np.argsort(pair, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(pair[order]) != 0])
        lengths = np.diff(np.r_[starts, count])
        places = np.arange(count) - np.repeat(starts, lengths)
        rank[shuffled[order]] = np.minimum(rank[shuffled[order]], places)
    selected: Ints = shuffled[np.argsort(rank[shuffled], kind="stable")][:most]
    return selected


def explore(
    images: Images,
    chosen: Ints,
    keys: Sequence[str],
    cells: Sequence[str],
    attributes: Mapping[str, Sequence[str]],
    pictures: Sequence[bytes | None],
    embeddings: Floats | None,
    measured: tuple[Measured, ...] | None = None,
) -> Explore:
    """Returns the block. `chosen`: the images that it shows; of each of them, in this order, its key, its cells in
    words, its value of each attribute ("" where it has none), its JPEG (None: it cannot be shown) and its embedding.

    `measured`: the tables of the classifiers, where the images alone do not tell them.

    Without embeddings the map is of the pictures' coarse colours, and says so.
    """
    if not len(images.truth) or not images.answered:
        return Explore()
    vectors = coarse(pictures) if embeddings is None else embeddings
    plane = principal_plane(vectors)
    span = np.abs(plane).max(axis=0, initial=0.0)
    plane = np.divide(plane, span, out=np.zeros_like(plane), where=span > 0)
    shown = sum(picture is not None for picture in pictures)
    data = {
        "classes": [visible(name) for name in images.classes],
        "names": [visible(name) for name in images.names],
        "classifiers": [visible(classifier.name) for classifier in images.answered],
        "each": images.each,
        "matrix": [_in_matrix(images, classifier) for classifier in images.answered],
        "confusions": [_confusions(images, classifier) for classifier in images.answered],
        "keys": [visible(key) for key in keys],
        "cells": [visible(cell) for cell in cells],
        "truth": images.truth[chosen].tolist(),
        "answers": [classifier.answer[chosen].tolist() for classifier in images.answered],
        "confidences": [_rounded(classifier.confidence[chosen]) for classifier in images.answered],
        "attributes": [_coded(visible(name), values) for name, values in attributes.items()],
        "map": np.round(plane, 3).tolist(),
        "mapped": "embeddings" if embeddings is not None else "colours",
        "pictures": ["" if picture is None else uri(picture) for picture in pictures],
    }
    tables = _measured(images) if measured is None else measured
    return Explore(_line(len(images.truth), len(chosen), shown, images.each), script_json(data), tables)


def script_json(data: Any) -> Markup:
    """Returns JSON for the inside of a <script> element of a type that is not run: no text in it can end the element or
    begin another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 — nothing in it is markup any more


def reduced(
    ids: Sequence[str], pictures: Mapping[str, bytes], most: int = MOST_CHARACTERS, thumbnails: bool = False
) -> tuple[dict[str, bytes], int]:
    """Returns JPEGs as small as the block shows them, by id, and how many of the ids, from the first, they are of: as
    many as take `most` characters. What is no picture, or is not there, is left out.

    `thumbnails`: whether all pictures are thumbnails that a report made. Those that are small enough then stay as they
    are: to compress them again would cost time, and some of what they show.
    """
    jpegs: dict[str, bytes] = {}
    length = 0
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            made = pool.map(partial(_as_shown, thumbnails=thumbnails), map(pictures.get, some))
            for i, (image_id, jpeg) in enumerate(zip(some, made, strict=True), start):
                if jpeg is None:
                    continue
                length += length_of_uri(jpeg)
                if length > most:
                    return jpegs, i
                jpegs[image_id] = jpeg
    return jpegs, len(ids)


def _as_shown(picture: bytes | None, thumbnails: bool) -> bytes | None:
    """Returns the JPEG that the block shows of a picture; None of what is none."""
    if picture is None or (thumbnails and is_jpeg_within(picture, LARGEST)):
        return picture
    try:
        return small(picture, LARGEST, QUALITY)
    except ImageError:
        return None


def coarse(pictures: Sequence[bytes | None]) -> Floats:
    """Returns the colours of pictures reduced to 8 × 8 pixels: shape (n, 192), in [0, 1]; the mean of the others where
    there is no picture."""
    rows = np.full((len(pictures), COARSE * COARSE * 3), np.nan)
    for i, picture in enumerate(pictures):
        if picture is not None:
            with Image.open(BytesIO(picture)) as image:
                reduced_image = image.convert("RGB").resize((COARSE, COARSE), Image.Resampling.BOX)
            rows[i] = np.asarray(reduced_image, np.float64).ravel() / 255
    has_picture = ~np.isnan(rows[:, 0])
    rows[~has_picture] = rows[has_picture].mean(axis=0) if has_picture.any() else 0.0
    return rows


def _in_matrix(images: Images, classifier: Answered) -> list[int]:
    """Returns the classes that the matrix holds, in their order: those with the most wrong answers."""
    wrong = (classifier.answer >= 0) & (classifier.answer != images.truth)
    counts = np.bincount(images.truth[wrong], minlength=len(images.classes))
    classes: list[int] = np.sort(np.argsort(-counts, kind="stable")[:MOST_MATRIX]).tolist()
    return classes


def _confusions(images: Images, classifier: Answered) -> list[list[int]]:
    """Returns [class, answer, images] of every pair of the matrix that occurs; −1 stands for all answers that have no
    column there, of which there may be many thousands."""
    classes = _in_matrix(images, classifier)
    in_matrix = (classifier.answer >= 0) & np.isin(images.truth, classes)
    answer = np.where(np.isin(classifier.answer, classes), classifier.answer, -1)[in_matrix]
    pairs, counts = np.unique(np.stack([images.truth[in_matrix], answer], axis=1), axis=0, return_counts=True)
    rows: list[list[int]] = np.column_stack([pairs, counts]).tolist()
    return rows


def _coded(name: str, values: Sequence[str]) -> dict[str, Any]:
    distinct = [value for value in dict.fromkeys(values) if value]
    number = {value: i for i, value in enumerate(distinct)}
    return {"name": name, "values": [visible(v) for v in distinct], "of": [number.get(value, -1) for value in values]}


def _rounded(numbers: Floats) -> list[float | None]:
    return [None if np.isnan(number) else round(float(number), 3) for number in numbers]


def _line(total: int, sampled: int, shown: int, each: bool) -> str:
    if each:
        what = f"{words.plural(total, 'pair')} of an image and a label that it shows"
        sample = "All of them are here." if sampled == total else f"A sample of {words.count(sampled)} is here."
        line = f"{what}. {sample} The tables count all images, those without any label included."
    elif sampled == total:
        line = f"All {words.plural(total, 'image')} of this run." if total > 1 else "The one image of this run."
    else:
        line = (
            f"The matrix, tables and curves count all {words.count(total)} images of this run. Pictures and map "
            f"are a sample of {words.count(sampled)}: of each pair of class and answer about as many, so that rare "
            "mistakes are among them, and not in proportion."
        )
    missing = sampled - shown
    return f"{line} {words.plural(missing, 'picture')} cannot be shown here." if missing else line


def _measured(images: Images) -> tuple[Measured, ...]:
    return tuple(_of_classifier(images, classifier) for classifier in images.answered)


def _of_classifier(images: Images, classifier: Answered) -> Measured:
    has_answer = classifier.answer >= 0
    truth, answer = images.truth[has_answer], classifier.answer[has_answer]
    number = len(images.classes)
    # All answers that are no class are one column: labels may be many thousands.
    table = np.zeros((number, number + 1), np.int64)
    np.add.at(table, (truth, np.minimum(answer, number)), 1)
    scores = precision_recall_f1(table)
    worst = np.argsort(np.nan_to_num(scores.f1, nan=2.0), kind="stable")
    rows = [
        (
            images.classes[i],
            words.count(int(table[i].sum())),
            words.percent(float(scores.precision[i])),
            words.percent(float(scores.recall[i])),
            words.percent(float(scores.f1[i])),
            _taken_for(images, truth, answer, i),
        )
        for i in worst[:MOST_ROWS].tolist()
    ]
    return Measured(classifier.name, rows, max(number - MOST_ROWS, 0), _charts(images, classifier))


def _taken_for(images: Images, truth: Ints, answer: Ints, target: int) -> str:
    wrong = answer[(truth == target) & (answer != target)]
    if not len(wrong):
        return ""
    names, counts = np.unique(wrong, return_counts=True)
    commonest = int(np.argmax(counts))
    return (
        f"{images.names[names[commonest]]} ({words.count(int(counts[commonest]))} of {words.count(len(wrong))} wrong)"
    )


def _charts(images: Images, classifier: Answered) -> list[tuple[str, str]]:
    has_confidence = (classifier.answer >= 0) & ~np.isnan(classifier.confidence)
    if not images.scored or has_confidence.sum() < 2:
        return []
    confidence, right = (
        np.clip(classifier.confidence[has_confidence], 0, 1),
        (classifier.answer == images.truth)[has_confidence],
    )
    curve = reliability(confidence, right)
    charts = [
        (
            f"Reliability: share right by confidence, bins of a tenth; expected calibration error {curve.error:.3f}",
            chart(
                [Line(curve.confidence, curve.accuracy, dots=True)],
                "confidence",
                "share right",
                diagonal=True,
                description="; ".join(
                    f"confidence {c:.2f}: {words.percent(float(a))} of {words.plural(int(n), 'answer')} right"
                    for c, a, n in zip(curve.confidence, curve.accuracy, curve.answers, strict=True)
                ),
            ),
        )
    ]
    two = (
        len(images.classes) == 2
        and (classifier.answer[has_confidence] < 2).all()
        and len(set(images.truth[has_confidence].tolist())) == 2
    )
    return charts + (_curves(images, classifier, has_confidence) if two else [])


def _curves(images: Images, classifier: Answered, has_confidence: NDArray[np.bool_]) -> list[tuple[str, str]]:
    """Returns ROC and precision-recall curves of the second class, ranked by the confidence of the answers: by its
    probability, where the two classes are all labels."""
    positive = images.classes[1]
    confidence = classifier.confidence[has_confidence]
    score = np.where(classifier.answer[has_confidence] == 1, confidence, -confidence)
    curves = two_class_curves(score, images.truth[has_confidence] == 1)
    share = float(np.mean(images.truth[has_confidence] == 1))
    return [
        (
            f"ROC of {positive} against {images.classes[0]}: area {curves.auroc:.3f}",
            chart(
                [Line(np.r_[0, curves.false_positive_rate], np.r_[0, curves.recall])],
                f"share of {images.classes[0]} called {positive}",
                f"share of {positive} found",
                diagonal=True,
                description=f"area under the curve {curves.auroc:.3f}; 0.5 is chance",
            ),
        ),
        (
            f"Precision and recall of {positive}: average precision {curves.average_precision:.3f}; chance {share:.2f}",
            chart(
                [Line(curves.recall, curves.precision)],
                f"share of {positive} found",
                "share right of those called so",
                description=f"average precision {curves.average_precision:.3f}",
            ),
        ),
    ]
