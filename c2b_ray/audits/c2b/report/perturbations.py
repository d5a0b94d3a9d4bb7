"""Perturbations: what each does to each class, as sentences, curves, a table and pictures of one image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.perturbation.images import UNPERTURBED, Perturbing
from c2b_ray.audits.c2b.report.findings import NAMES, SIGNS, sign_of
from c2b_ray.audits.c2b.report.ranking import FINDINGS
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.errors import ImageError
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Article,
    Block,
    Cell,
    Columns,
    Details,
    Figure,
    Findings,
    FoundRow,
    Frame,
    Paragraph,
    Section,
    Strips,
    Table,
)
from c2b_ray.report.pictures import keep_shown, read_pictures, shown, small, uri
from c2b_ray.report.words import Column, Sentence, Span
from c2b_ray.steps.decode import decode
from c2b_ray.steps.draw import png

MOST_SENTENCES = 12
MOST_CURVES = 12
"""Curves of one perturbation, the strongest effects first."""
MOST_NAMED = 6
MOST_ROWS = 40
"""Rows of one perturbation's table."""
SHOWN_SIDE = 160
"""Pixels of the longer side of an example picture."""

ONLY_PERTURBED = "The images have no attribute by which they could be compared; the same images were perturbed."

ABOUT = {
    "blur": ("Blur", "blurred"),
    "noise": ("Noise", "noisy"),
    "jpeg": ("JPEG compression", "compressed as JPEG"),
    "dark": ("Darkness", "darkened"),
    "bright": ("Brightness", "brightened"),
    "fog": ("Fog", "in fog"),
    "rotation": ("Rotation", "rotated"),
    "crop": ("Crop", "cropped"),
    "grey": ("Less colour", "with less colour"),
    "flip": ("Mirroring", "mirrored"),
}
"""A heading, and the state of an image, of each perturbation."""

Row = Mapping[str, Any]
ClassKey = tuple[str, str]
"""Classifier and class."""


@dataclass(frozen=True)
class Example:
    """The image that shows a perturbation, and its pictures by level as data: URIs."""

    target_class: str
    key: str
    pictures: Mapping[int, str]


def perturbations_section(
    table: pa.Table, names: Mapping[str, str], tau: float, alpha: float, examples: Mapping[str, Example]
) -> list[Section]:
    """Returns the section; nothing where no image was perturbed. `names`: how classifiers are called; `examples`: by
    perturbation."""
    rows = table.to_pylist()
    if not rows:
        return []
    confidence = 1 - alpha
    how = (
        f"The difference of accuracies is that of the same images perturbed and unperturbed, with Tango’s "
        f"{words.percent(confidence)} interval; a finding lies beyond ±{words.decimal(tau)}, at a false discovery rate "
        f"of {words.decimal(alpha)} over all classes, perturbations and levels."
    )
    blocks: list[Block] = [Paragraph(f"{line(rows)} {how}")]
    if findings := strongest(rows):
        told = [_found_row(of_kind, names, confidence) for of_kind in findings[:MOST_SENTENCES]]
        blocks.append(Findings(told, more=words.further(len(findings), MOST_SENTENCES, "in the tables below")))
    else:
        blocks.append(Paragraph("No perturbation is established to change the accuracy of a class by more than τ."))
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(row["perturbation"], []).append(row)
    for kind, of_kind in sorted(by_kind.items(), key=lambda item: -max(map(_size, item[1]))):
        blocks.append(_perturbation(kind, of_kind, names, confidence, examples.get(kind)))
    return [Section("Perturbations of the same images", blocks, "perturbations", "Perturbations")]


def line(rows: Sequence[Row]) -> str:
    """Returns how many images were perturbed how, and how many verdicts of each kind that gave."""
    classes, classifiers = ({row[name] for row in rows} for name in ("target_class", "classifier"))
    kinds = {(row["perturbation"], row["level"]) for row in rows}
    images = sum({row["target_class"]: row["n"] + row["errors"] for row in rows}.values())
    per_classifier = f", of {words.count(len(classifiers))} classifiers" if len(classifiers) > 1 else ""
    return (
        f"{words.plural(images, 'image')} of {words.plural(len(classes), 'class', 'classes')} were answered as they "
        f"are and perturbed in {words.plural(len(kinds), 'way')}{per_classifier}: {tally(rows)}."
    )


def tally(rows: Sequence[Row]) -> str:
    """Returns how many rows have which verdict."""
    verdicts = [row["verdict"] for row in rows]
    findings = words.plural(sum(verdict in FINDINGS for verdict in verdicts), "finding")
    clear, open_still = (words.count(verdicts.count(name)) for name in ("none", "undetermined"))
    return f"{findings}, {clear} clear, {open_still} undetermined"


def strongest(rows: Sequence[Row]) -> list[list[Row]]:
    """Returns the findings of each classifier, class and perturbation, those with the largest difference first."""
    by_kind: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row["verdict"] in FINDINGS:
            by_kind.setdefault((row["classifier"], row["target_class"], row["perturbation"]), []).append(row)
    for of_kind in by_kind.values():
        of_kind.sort(key=lambda row: (-abs(row["difference"]), row["level"]))
    return sorted(
        by_kind.values(), key=lambda rows_of_kind: (-abs(rows_of_kind[0]["difference"]), rows_of_kind[0]["q_value"])
    )


def sentence(row: Row, name: str, confidence: float) -> Sentence:
    """Returns a finding as a sentence. `name`: the classifier's; empty where there is only one."""
    state = ABOUT[row["perturbation"]][1]
    level = "" if row["perturbation"] == "flip" else f" (level {row['level']})"
    by_classifier = f" by {name}" if name else ""
    mistaken = (
        f"; {words.count(row['mistaken'])} are taken for {row['mistaken_for']}"
        if row["verdict"] == "against" and row["mistaken"]
        else ""
    )
    return (
        Span(f"{row['target_class']}, {state}{level}: "),
        Span(f"{words.count(row['correct'])} of {words.count(row['n'])} are right{by_classifier}", strong=True),
        Span(
            f", against {words.count(row['correct_unperturbed'])} of the same images unperturbed "
            f"({words.signed(row['difference'])}, {words.percent(confidence)} interval "
            f"{words.signed_range(row['difference_low'], row['difference_high'])}){mistaken}."
        ),
    )


def _found_row(of_kind: Sequence[Row], names: Mapping[str, str], confidence: float) -> FoundRow:
    """Returns one class and perturbation at its worst level, its other levels beneath."""
    lead, *other_levels = of_kind
    other_levels = sorted(other_levels, key=lambda row: row["level"])
    level_texts = [f"level {row['level']} {words.signed(row['difference'])}" for row in other_levels]
    name = names[lead["classifier"]] if len(names) > 1 else ""
    beneath = [f"Also at {words.listed(level_texts)}."] if level_texts else []
    return FoundRow(lead["verdict"], SIGNS[lead["verdict"]], sentence(lead, name, confidence), beneath)


def _perturbation(
    kind: str, rows: Sequence[Row], names: Mapping[str, str], confidence: float, example: Example | None
) -> Article:
    """Returns what one perturbation does: an image that shows it, a curve and a row for each class."""
    by_class: dict[ClassKey, list[Row]] = {}
    for row in rows:
        by_class.setdefault((row["classifier"], row["target_class"]), []).append(row)
    ordered = sorted(by_class.items(), key=lambda item: -max(map(_size, item[1])))
    levels = [row["level"] for row in ordered[0][1]]
    title, state = ABOUT[kind]
    has_several = len(names) > 1
    headings = [f"{target}, {names[classifier]}" if has_several else target for (classifier, target), _ in ordered]
    blocks: list[Block] = [Paragraph(_difference(rows), "beneath")]
    if example is not None:
        about = f"{example.key} ({example.target_class}), as it is and {state}"
        blocks += [Strips([_frames(kind, levels, example)]), Paragraph(about, "source")]
    curves = [
        Figure(curve_svg(rows_of_curve, f"{heading}: accuracy {state}"), heading)
        for heading, (_, rows_of_curve) in zip(headings[:MOST_CURVES], ordered, strict=False)
    ]
    interval = f"{words.percent(confidence)} interval"
    numbers = Table(
        [
            Column("Class"),
            *([Column("Classifier", spec=True)] if has_several else []),
            *(Column(name, number=True) for name in ("Unperturbed", *(_label(kind, level) for level in levels))),
        ],
        [_class_row(key, of_class, names) for key, of_class in ordered[:MOST_ROWS]],
        name=f"{title}: accuracy by class and level",
        style="matrix",
        caption=f"Accuracy; perturbed minus unperturbed, with its {interval}",
        more=words.further(len(ordered), MOST_ROWS, "in the run’s perturbations.parquet"),
    )
    return Article(title, [*blocks, Columns(curves, "curves"), Details("Numbers by class", [numbers])])


def _label(kind: str, level: int) -> str:
    return "unperturbed" if level == 0 else "mirrored" if kind == "flip" else f"level {level}"


def _difference(rows: Sequence[Row]) -> str:
    parts = []
    for verdict, adverb in (("against", "worse"), ("for", "better")):
        targets = list(dict.fromkeys(row["target_class"] for row in rows if row["verdict"] == verdict))
        if targets:
            target_text = (
                words.listed(targets) if len(targets) <= MOST_NAMED else words.plural(len(targets), "class", "classes")
            )
            parts.append(f"Answered {adverb}: {target_text}.")
    if parts:
        return " ".join(parts)
    if all(row["verdict"] == "none" for row in rows):
        return "It makes no difference to any class."
    return "No effect is established."


def _size(row: Row) -> float:
    return 0.0 if math.isnan(row["difference"]) else abs(row["difference"])


def _frames(kind: str, levels: Sequence[int], example: Example) -> list[Frame]:
    labels = {level: _label(kind, level) for level in (0, *levels)}
    return [
        Frame(example.pictures.get(level, ""), f"{example.key}, {label}", [label]) for level, label in labels.items()
    ]


def _class_row(key: ClassKey, rows: Sequence[Row], names: Mapping[str, str]) -> list[str | Cell]:
    classifier, target_class = key
    first = rows[0]
    details = [words.plural(first["n"], "image")]
    details += [words.plural(first["repeats"], "copy", "copies") + " left out"] if first["repeats"] else []
    details += [f"{words.count(first['errors'])} without an answer"] if first["errors"] else []
    details += [f"{words.count(first['clusters'])} clusters"] if first["clusters"] is not None else []
    return [
        target_class,
        *([names[classifier]] if len(names) > 1 else []),
        Cell(words.percent(first["accuracy_unperturbed"]), [", ".join(details)]),
        *(_level(row) for row in rows),
    ]


def _level(row: Row) -> Cell:
    """Returns a class at one level."""
    settle, verdict = row["images_to_settle"], row["verdict"]
    needs = f"; about {words.count(settle)} images of the class would settle it" if settle else ""
    return Cell(
        words.percent(row["accuracy"]),
        small=(
            (*sign_of(verdict), Span(f" {words.signed(row['difference'])}", style=f"verdict {verdict}")),
            words.signed_range(row["difference_low"], row["difference_high"]),
        ),
        style=verdict,
        title=f"{NAMES[verdict]}, {words.plural(row['n'], 'image')}{needs}",
    )


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 190, 110, 34, 8, 8, 20


def curve_svg(rows: Sequence[Row], description: str) -> str:
    """Returns an <svg> element: accuracy by level, with Wilson's intervals as bars; level 0 is unperturbed, and its
    accuracy a dashed line. A point is marked by its verdict."""
    readings: dict[int, tuple[float, float, float, str]] = {
        row["level"]: (row["accuracy"], row["accuracy_low"], row["accuracy_high"], row["verdict"]) for row in rows
    }
    first = rows[0]
    base = tuple(first[f"accuracy_unperturbed{end}"] for end in ("", "_low", "_high"))
    points = [(0, (*base, "unperturbed")), *sorted(readings.items())]
    points = [(level, numbers) for level, numbers in points if not any(map(math.isnan, numbers[:3]))]
    most = max(level for level, _ in points) if points else 1
    body = []
    for share in (0.0, 0.5, 1.0):
        y = _y(share)
        body.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{100 * share:.0f}%</text>')
    if points:
        y = _y(points[0][1][0])
        body.append(f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        coordinates = " ".join(f"{_x(level, most):.1f},{_y(numbers[0]):.1f}" for level, numbers in points)
        body.append(f'<polyline class="run" points="{coordinates}"/>')
    for level, (accuracy, low, high, verdict) in points:
        x = _x(level, most)
        body.append(f'<line class="reach" x1="{x:.1f}" x2="{x:.1f}" y1="{_y(low):.1f}" y2="{_y(high):.1f}"/>')
        body.append(f'<circle class="{verdict}" cx="{x:.1f}" cy="{_y(accuracy):.1f}" r="3.2"/>')
        body.append(f'<text x="{x:.1f}" y="{HEIGHT - 5}" text-anchor="middle">{level}</text>')
    return (
        f'<svg class="curve" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'aria-label="{escape(description, quote=True)}">{"".join(body)}</svg>'
    )


def _x(level: int, most: int) -> float:
    return LEFT + 10 + (WIDTH - LEFT - RIGHT - 20) * level / most


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def examples_of(run: C2BRun, table: pa.Table) -> dict[str, Example]:
    """Returns an example of each perturbation: an image of the class that it changes most, one whose answer it changes
    where there is one. Its pictures are made anew, and kept with those that the report shows."""
    side = (run.manifest.get("perturbed") or {}).get("side")
    if not table.num_rows or side is None:
        return {}
    seed = run.config.seed
    stored = shown(run)
    new: dict[str, bytes] = {}
    chosen: dict[str, tuple[str, str, dict[int, str]]] = {}
    for kind, image_id, target_class in _chosen(run, table):
        levels = table.filter(pc.equal(table["perturbation"], kind))["level"].unique().sort().to_pylist()
        perturbing = Perturbing(((kind, tuple(levels)),), int(side), seed)
        ids = {level: perturbing.picture_id(image_id, name, level) for name, level in perturbing.each()}
        if any(picture_id not in stored and picture_id not in new for picture_id in ids.values()):
            new |= _made(run, image_id, perturbing)
        chosen[kind] = (image_id, target_class, ids)
    keep_shown(run, {name: jpeg for name, jpeg in new.items() if name not in stored})
    pictures, keys = stored | new, _keys(run, [image_id for image_id, *_ in chosen.values()])
    return {
        kind: Example(target, keys.get(image_id, ""), {n: uri(pictures[i]) for n, i in ids.items() if i in pictures})
        for kind, (image_id, target, ids) in chosen.items()
    }


def _chosen(run: C2BRun, table: pa.Table) -> list[tuple[str, str, str]]:
    """Returns perturbation, image and class of each example."""
    rows, images = table.to_pylist(), run.read("perturbed_images")
    answers = run.predictions_of(
        ["image_id", "perturbation", "level", "predicted_class", "error"], "perturbed_predictions"
    )
    result = []
    for kind in dict.fromkeys(row["perturbation"] for row in rows):
        row = max((row for row in rows if row["perturbation"] == kind), key=lambda row: (_size(row), row["level"]))
        target = row["target_class"]
        of_class = images.filter(pc.equal(images["target_class"], target))["image_id"]
        right = {
            pair: _right(answers, row["classifier"], pair, target) for pair in ((UNPERTURBED, 0), (kind, row["level"]))
        }
        right_before, right_after = right.values()
        changed = [image for image in sorted(of_class.to_pylist()) if (image in right_before) != (image in right_after)]
        candidates = changed or sorted(right_before & set(of_class.to_pylist())) or sorted(of_class.to_pylist())
        if candidates:
            result.append((kind, candidates[0], target))
    return result


def _right(answers: pa.Table, classifier: str, pair: tuple[str, int], target: str) -> set[str]:
    mask = pc.and_(pc.equal(answers["perturbation"], pair[0]), pc.equal(answers["level"], pair[1]))
    mask = pc.and_(mask, pc.equal(answers["classifier"], classifier))
    mask = pc.and_(mask, pc.fill_null(pc.equal(answers["predicted_class"], target), False))
    return set(answers["image_id"].filter(mask).to_pylist())


def _made(run: C2BRun, image_id: str, perturbing: Perturbing) -> dict[str, bytes]:
    """Returns the pictures of an image, small, by their ids; none where it is not there any more."""
    data = read_pictures(run, [image_id]).get(image_id)
    try:
        pixels = None if data is None else decode(data)
    except ImageError:
        pixels = None
    if pixels is None:
        return {}
    return {
        perturbing.picture_id(image_id, *kind): small(
            png(np.ascontiguousarray(perturbing.picture(pixels, image_id, *kind))), SHOWN_SIDE
        )
        for kind in perturbing.each()
    }


def _keys(run: C2BRun, image_ids: Sequence[str]) -> dict[str, str]:
    ids = pa.array(image_ids, pa.string())
    parts = (part.filter(pc.is_in(part["image_id"], ids)) for part in run.each("images", ["image_id", "key"]))
    return {image: key for part in parts for image, key in zip(*part.to_pydict().values(), strict=True)}
