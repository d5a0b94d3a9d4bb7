"""The images that a C2B run's classifiers got wrong, for other tools: with every classifier's answer, their cells, and
the findings that they are part of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.classification import one_of
from c2b_ray.audits.c2b.report import intersections
from c2b_ray.audits.c2b.report.findings import sentence
from c2b_ray.audits.c2b.report.overview import pooled_sentence, strongest_pooled
from c2b_ray.audits.c2b.report.ranking import ranked
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.gate import ALL_CLASSES
from c2b_ray.errors import Argument, RunError
from c2b_ray.report.export import about
from c2b_ray.report.formats.images import Finding, RunImages
from c2b_ray.report.formats.in_place import CHUNK, Place, place_of
from c2b_ray.report.pictures import chosen_rows, read_pictures
from c2b_ray.report.redact import names_of
from c2b_ray.report.words import Sentence
from c2b_ray.steps.answers import ClassifierAnswers, answers_of
from c2b_ray.tables.exported import EXPORTED_IMAGES

Shown = tuple[str, str]
"""An image id, and the class that the image was drawn for."""


def run_images(run: C2BRun, classifier: str | None = None) -> RunImages:
    """Returns the images that the classifier, or any (None), got wrong. Raises RunError for a run without scores."""
    if not run.has("scores"):
        raise RunError(f"{run.path}: the run has no scores yet; run its c2b audit to the end", run=run.path)
    chosen_classifier = None if classifier is None else one_of(run, classifier, Argument.CLASSIFIER)
    names = names_of(run.scores["classifier"].unique().to_pylist())
    cell_findings = [
        cell_finding
        for cell_finding in _findings(run, names)
        if chosen_classifier is None or cell_finding.finding.classifier == names[chosen_classifier]
    ]
    image_locations = place_of(run.record.config.get("images"))
    return RunImages(
        tables=partial(_tables, run, chosen_classifier, names, cell_findings, image_locations),
        findings=[cell_finding.finding for cell_finding in cell_findings],
        title=f"Failures of {', '.join(names[name] for name in names if chosen_classifier in (None, name))}",
        about=about(run, ("task", "classes", "right", "tau", "alpha", "seed")),
        read=partial(read_pictures, run),
        root=image_locations.root,
    )


@dataclass(frozen=True)
class _CellFinding:
    """A finding, and the images that are part of it: those of a class (None: of any) that show all of these cells."""

    finding: Finding
    target_class: str | None
    cells: frozenset[str]


def _findings(run: C2BRun, names: Mapping[str, str]) -> list[_CellFinding]:
    """Returns the findings on cells, on two values at once, and over all classes, of each of these the strongest
    first. `names`: the classifiers' on the page."""
    confidence = 1 - run.config.alpha
    result = []

    def add(classifier: str, target_class: str | None, name: str, cells: Sequence[str], sentence: str) -> None:
        finding = Finding(f"{target_class or ALL_CLASSES}/{name}", sentence, names[classifier])
        result.append(_CellFinding(finding, target_class, frozenset(cells)))

    for group in ranked(run.scores):
        for cell in sorted(group.cells, key=lambda scored_cell: -scored_cell.weight):
            if cell.is_finding:
                name = f"{cell.attribute}/{cell.bias_class}"
                text = _text(sentence(group, cell, names[cell.classifier], confidence))
                add(cell.classifier, cell.target_class, name, [name], text)
    for row in intersections.strongest(run.intersections.to_pylist()):
        both_values = [f"{row['attribute_a']}/{row['value_a']}", f"{row['attribute_b']}/{row['value_b']}"]
        text = _text(intersections.sentence(row, names[row["classifier"]], confidence))
        add(row["classifier"], row["target_class"], f"{row['attribute']}/{row['bias_class']}", both_values, text)
    for row in strongest_pooled(run.read("pooled").to_pylist()):
        name = f"{row['attribute']}/{row['bias_class']}"
        add(row["classifier"], None, name, [name], pooled_sentence(row, names[row["classifier"]], confidence))
    return result


def _text(spans: Sentence) -> str:
    return "".join(span.text for span in spans)


def _tables(
    run: C2BRun,
    classifier: str | None,
    names: Mapping[str, str],
    findings: Sequence[_CellFinding],
    image_locations: Place,
    with_bytes: bool,
) -> Iterator[pa.Table]:
    """Yields parts of the table; all columns but the bytes are in memory at once."""
    failed = run.wrong_answers()
    wrong = set(zip(*(failed[name].to_pylist() for name in ("classifier", "image_id", "truth")), strict=True))
    if classifier is not None:
        failed = failed.filter(pc.equal(failed["classifier"], classifier))
    cells: dict[Shown, list[str]] = defaultdict(list)
    keys: dict[str, str | None] = {}
    for row in failed.select(["image_id", "truth", "cell", "key"]).to_pylist():
        of_image = cells[row["image_id"], row["truth"]]
        if row["cell"] not in of_image:  # another classifier is wrong there, too
            of_image.append(row["cell"])
        keys[row["image_id"]] = row["key"]
    answers = _Answered(run, list(keys), names, wrong)
    all_cells = list(cells)
    for start in range(0, len(all_cells), CHUNK):
        part = all_cells[start : start + CHUNK]
        ids = list(dict.fromkeys(image_id for image_id, _ in part))
        location_of_image = _places(run, ids, image_locations)
        without_location = [image_id for image_id in ids if location_of_image.get(image_id) is None]
        stored = read_pictures(run, without_location) if with_bytes else {}
        rows = [
            {
                "image_id": image_id,
                "key": keys[image_id],
                "location": location_of_image.get(image_id),
                "bytes": stored.get(image_id),
                "truth": truth,
                "text": None,
                "predictions": answers.to(image_id, truth),
                "cells": cells[image_id, truth],
                "tags": _tags(truth, cells[image_id, truth], findings),
            }
            for image_id, truth in part
        ]
        yield pa.Table.from_pylist(rows, EXPORTED_IMAGES)


def _tags(truth: str, cells: Sequence[str], findings: Sequence[_CellFinding]) -> list[str]:
    cells_of_image = set(cells)
    of_image = [
        cell_finding
        for cell_finding in findings
        if cell_finding.target_class in (None, truth) and cell_finding.cells <= cells_of_image
    ]
    return list(
        dict.fromkeys(cell_finding.finding.tag for cell_finding in of_image)
    )  # one per classifier that it is a finding on


def _places(run: C2BRun, image_ids: Sequence[str], image_locations: Place) -> dict[str, str | None]:
    rows = [
        row
        for part in chosen_rows(run, "images", "image_id", image_ids, ["image_id", "row"])
        for row in part.to_pylist()
        if row["row"] is not None
    ]
    locations = image_locations.locations([row["row"] for row in rows])
    return dict(zip((row["image_id"] for row in rows), locations, strict=True))


class _Answered:
    """The answers of all classifiers to some images."""

    def __init__(
        self, run: C2BRun, image_ids: Sequence[str], names: Mapping[str, str], wrong: set[tuple[str, str, str]]
    ) -> None:
        columns = ["image_id", "label", "label_probability", "predicted_class", "answered", "undecided", "error"]
        rows = run.predictions_of(columns)
        rows = rows.filter(pc.is_in(rows["image_id"], pa.array(image_ids, pa.string())))
        self._wrong, self._names = wrong, names
        self._answers = {name: answers_of(rows, name) for name in names}
        self._taken: dict[tuple[str, str], Mapping[str, str | None]] = {}
        self._confidence = {
            (row["classifier"], row["image_id"]): row["label_probability"]
            for row in rows.select(["classifier", "image_id", "label_probability"]).to_pylist()
        }

    def to(self, image_id: str, truth: str) -> list[dict[str, Any]]:
        """Returns what each classifier took the image for, seen from the class that it was drawn for."""
        result = []
        for name, shown_name in self._names.items():
            label = self._seen(name, self._answers[name], truth).get(image_id)
            if label is not None:
                result.append(
                    {
                        "classifier": shown_name,
                        "label": label,
                        "confidence": self._confidence.get((name, image_id)),
                        "failed": (name, image_id, truth) in self._wrong,
                    }
                )
        return result

    def _seen(self, classifier: str, answers: ClassifierAnswers, truth: str) -> Mapping[str, str | None]:
        if (classifier, truth) not in self._taken:
            self._taken[classifier, truth] = answers.of(truth)
        return self._taken[classifier, truth]
