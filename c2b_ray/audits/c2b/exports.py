"""Exports of a C2B run: documents for other programs, a model card, and its images for other tools."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from c2b_ray.audits.c2b.classification import one_of
from c2b_ray.audits.c2b.report import intersections
from c2b_ray.audits.c2b.report.findings import sentence
from c2b_ray.audits.c2b.report.overview import pooled_sentence, strongest_pooled
from c2b_ray.audits.c2b.report.ranking import Cell, Group, ranked, worst_first
from c2b_ray.audits.c2b.report.undetermined import notes
from c2b_ray.audits.c2b.run import CLASSIFIER, C2BRun
from c2b_ray.audits.gate import ALL_CLASSES
from c2b_ray.config.audit import AuditConfig
from c2b_ray.errors import Argument, RunError
from c2b_ray.report import words
from c2b_ray.report.export import about, csv_of, exported_only, json_of, parquet_of
from c2b_ray.report.formats.folder import CHUNK, Finding, Place, RunImages, place_of
from c2b_ray.report.method import mapping
from c2b_ray.report.pictures import chosen_rows, read_pictures
from c2b_ray.report.redact import clean, clean_setting, names_of
from c2b_ray.report.words import Sentence, Span
from c2b_ray.steps.answers import ClassifierAnswers, answers_of
from c2b_ray.tables.path import EXPORTED_IMAGES
from c2b_ray.text import visible

# The scores of a run in the formats that other programs read, CSV, JSON, Parquet, and its failures as CSV.


SETTINGS = (
    "task", "classes", "right", "metric", "tau", "alpha", "seed", "images_per_caption", "captions_per_cell",
    "intersections",
)  # fmt: skip


def scores_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    return csv_of(exported_only(run.scores, _chosen(run, classifier)))


def failures_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns the images that were answered wrong, as in `C2BRun.wrong_answers`: columns of `tables.FAILURES`."""
    return csv_of(exported_only(run.wrong_answers(), _chosen(run, classifier)))


def perturbations_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns a row per classifier, class, perturbation and level: columns of `tables.PERTURBATIONS`."""
    return csv_of(exported_only(run.read("perturbations"), _chosen(run, classifier)))


def label_errors_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns the suspected label errors, of each classifier the most confident first: columns of
    `tables.LABEL_ERRORS`."""
    return csv_of(exported_only(run.read("label_errors"), _chosen(run, classifier)))


def scores_json(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings, its models, and a row per classifier and cell: of one attribute
    in `scores`, of two in `intersections`, over all classes in `pooled`, of perturbations in `perturbations`; `looks`
    says what the answers follow."""
    chosen = _chosen(run, classifier)
    tables = {"scores": run.scores, "intersections": run.intersections, "pooled": run.read("pooled")}
    if run.has("perturbations"):
        tables["perturbations"] = run.read("perturbations")
    if run.has("looks"):
        tables["looks"] = run.read("looks")
    rows = {name: exported_only(table, chosen).to_pylist() for name, table in tables.items()}
    return json_of({**about(run, SETTINGS), "blank_rows": run.manifest.get("blank_rows") or {}, **rows})


def scores_parquet(run: C2BRun, classifier: str | None = None) -> bytes:
    return parquet_of(exported_only(run.scores, _chosen(run, classifier)))


def _chosen(run: C2BRun, classifier: str | None) -> str | None:
    """Returns the spec of the chosen classifier; None: all. Raises RunError for a run without scores."""
    if not run.has("scores"):
        raise RunError(f"{run.path}: the run has no scores yet; run its c2b audit to the end", run=run.path)
    return None if classifier is None else one_of(run, classifier, Argument.CLASSIFIER)


# A section of a model card: what an audit found of one classifier, in words, under metadata of the Hugging Face
# Hub.


MOST_FINDINGS = 20
TASK = {"type": "image-classification", "name": "Image Classification"}
DATASET = "c2b-ray"  # the Hub wants a type; images found by caption have no dataset of their own there
SOURCES = {"retrieve": "images retrieved by caption", "labelled": "labelled images"}
PAPER = "https://openaccess.thecvf.com/content/CVPR2025/html/Guimard_Classifier-to-Bias_Toward_Unsupervised_Automatic_Bias_Detection_for_Visual_Classifiers_CVPR_2025_paper.html"

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#|~&$@^]|:(?=//)|(?<=www)\.)")


def card(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns a model card. Raises ConfigError where the run has several classifiers and none is named."""
    _chosen(run, None)
    return model_card(run, one_of(run, classifier, Argument.CLASSIFIER)).encode()


def model_card(run: C2BRun, classifier: str) -> str:
    """Markdown with front matter for the classifier of that spec."""
    scores = run.scores
    groups = [group for group in ranked(scores) if group.classifier == classifier]
    images = images_used(run, classifier)
    manifest = run.manifest
    # Two of one name get the suffixes that they have on the page.
    name = names_of(scores["classifier"].unique().to_pylist()).get(classifier, clean_setting(classifier))
    front_matter = metadata(manifest, run.config, groups, name, images)
    front = yaml.safe_dump(front_matter, sort_keys=False, allow_unicode=True, width=math.inf)
    return f"---\n{front}---\n\n{section(run, groups, (classifier, name), images)}"


def metadata(
    manifest: Mapping[str, Any], config: AuditConfig, groups: Sequence[Group], name: str, images: int
) -> dict[str, object]:
    """The model-index: accuracy and number of findings, then φ of every finding; what is not known is left out."""
    cells = [cell for group in groups for cell in group.cells]
    return {
        "tags": ["c2b-ray", "bias-audit"],
        "model-index": [
            {
                "name": _line(name),
                "results": [
                    {
                        "task": TASK,
                        "dataset": _dataset(manifest, config, images),
                        "metrics": list(_metrics(groups, cells)),
                    }
                ],
            }
        ],
    }


def section(run: C2BRun, groups: Sequence[Group], classifier: tuple[str, str], images: int) -> str:
    """Returns the Markdown section. `classifier`: its spec in the run, and its name."""
    manifest, config = run.manifest, run.config
    tau, alpha = config.tau, config.alpha
    cells = [cell for group in groups for cell in group.cells]
    name = classifier[1]
    paragraphs = [
        "## Biases and failures found by an audit",
        _introduction(manifest, config, classifier, images, cells),
        " ".join(escaped(note) for note in notes(config, cells)),
        _findings_line(cells, tau, alpha),
        _findings(groups, name, 1 - alpha),
        *_more(run, classifier),
        _undetermined_line(cells),
        _method_line(config, cells),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def images_used(run: C2BRun, classifier: str) -> int:
    """Counts the distinct images that captions drew and the classifier answered."""
    drawn_ids = set(run.draws["image_id"].to_pylist())
    answers = answers_of(run.predictions, classifier)
    return len(drawn_ids & answers.answered())


def escaped(text: str) -> str:
    """Escapes a text for the middle of a Markdown line, without credentials and paths."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(clean(text).split())))


def _line(text: str) -> str:
    """Puts the text on one line, because a line of three dashes would end the front matter."""
    return visible(" ".join(text.split()))


def _dataset(manifest: Mapping[str, Any], config: AuditConfig, images: int) -> dict[str, str]:
    models = mapping(manifest.get("models"))
    dataset = {"type": DATASET, "name": f"{images} {_source(config)}", "split": "audit"}
    for role in ("index", "table"):
        revision = mapping(models.get(role)).get("revision")
        if revision:
            dataset["revision"] = str(revision)
    return dataset


def _metrics(groups: Sequence[Group], cells: Sequence[Cell]) -> Iterator[dict[str, object]]:
    images, right = sum(cell.n for cell in cells), sum(cell.correct for cell in cells)
    if images:
        yield {"type": "accuracy", "value": round(right / images, 4), "name": "Accuracy over all cells"}
    yield {
        "type": "findings",
        "value": sum(cell.is_finding for cell in cells),
        "name": "Cells with an established bias",
    }
    yield {
        "type": "undetermined",
        "value": sum(cell.verdict == "undetermined" for cell in cells),
        "name": "Cells that stay undetermined",
    }
    for cell in [group.lead for group in worst_first(list(groups)) if group.lead is not None][:MOST_FINDINGS]:
        name = f"φ of {cell.target_class}, {cell.attribute}: {cell.bias_class}"
        yield {"type": "bias_score", "value": round(cell.phi, 4), "name": _line(clean(name))}


def _introduction(
    manifest: Mapping[str, Any],
    config: AuditConfig,
    classifier: tuple[str, str],
    images: int,
    cells: Sequence[Cell],
) -> str:
    task = escaped(config.task).rstrip(".")
    revision = mapping(mapping(manifest.get("models")).get(f"{CLASSIFIER}{classifier[0]}")).get("revision")
    when = words.moment(str(manifest.get("finished") or ""))
    classes, attributes = ({getattr(cell, field) for cell in cells} for field in ("target_class", "attribute"))
    parts = [
        f"The classifier {escaped(classifier[1])}",
        f" (revision {escaped(str(revision))})" if revision else "",
        f" was audited with [Classifier-to-Bias]({PAPER})",
        f" on {when}" if when else "",
        f" for the task “{task}”" if task else "",
        f": {words.plural(len(cells), 'cell')}, each one value of an attribute for one class "
        f"({words.plural(len(classes), 'class', 'classes')}, {words.plural(len(attributes), 'attribute')}), "
        f"on {words.count(images)} {_source(config)}.",
        "" if manifest.get("status") == "finished" else " The audit is not finished, and its numbers may change.",
    ]
    return "".join(parts)


def _source(config: AuditConfig) -> str:
    return SOURCES.get(str(config.images.source), "images")


def _findings_line(cells: Sequence[Cell], tau: float, alpha: float) -> str:
    verdicts = Counter(cell.verdict for cell in cells)
    findings = verdicts["against"] + verdicts["for"]
    return (
        f"{words.plural(findings, 'cell shows', 'cells show')} an established bias (|φ| beyond "
        f"τ = {words.decimal(tau)} at a false discovery rate of α = {words.decimal(alpha)}), "
        f"{words.count(verdicts['none'])} "
        f"{'is' if verdicts['none'] == 1 else 'are'} clear: shown to have none that large, and "
        f"{words.count(verdicts['undetermined'])} {'stays' if verdicts['undetermined'] == 1 else 'stay'} undetermined."
    )


def _findings(groups: Sequence[Group], name: str, confidence: float) -> str:
    leading = [group for group in worst_first(list(groups)) if group.lead is not None]
    return _list(
        [sentence(group, group.lead, name, confidence) for group in leading[:MOST_FINDINGS] if group.lead is not None],
        len(leading),
    )


def _more(run: C2BRun, classifier: tuple[str, str]) -> list[str]:
    """Returns a paragraph for the findings of two values at once, and one for those over all classes."""
    spec, name = classifier
    confidence = 1 - run.config.alpha
    tables = (run.intersections, run.read("pooled"))
    pairs, pooled = ([row for row in table.to_pylist() if row["classifier"] == spec] for table in tables)
    pairs, pooled = intersections.strongest(pairs), strongest_pooled(pooled)
    of_pairs = [intersections.sentence(row, name, confidence) for row in pairs[:MOST_FINDINGS]]
    of_all = [(Span(pooled_sentence(row, name, confidence)),) for row in pooled[:MOST_FINDINGS]]
    return [
        f"{title}\n\n{_list(sentences, number_found)}"
        for title, sentences, number_found in (
            ("Two values at once:", of_pairs, len(pairs)),
            ("Over all classes together:", of_all, len(pooled)),
        )
        if sentences
    ]


def _list(sentences: Sequence[Sentence], number_found: int) -> str:
    """Returns a list of the strongest of `number_found` findings."""
    lines = [
        "- " + "".join(f"**{escaped(span.text)}**" if span.strong else _inline(span.text) for span in spans)
        for spans in sentences
    ]
    if number_found > len(sentences):
        lines.append(f"- And {words.count(number_found - len(sentences))} more, in the audit's report.")
    return "\n".join(lines)


def _inline(text: str) -> str:
    """Like `escaped`, but keeps blanks at either end of the text, which is part of a sentence."""
    body = escaped(text)
    return f"{' ' if text[:1] == ' ' else ''}{body}{' ' if text[-1:] == ' ' and text.strip() else ''}"


def _undetermined_line(cells: Sequence[Cell]) -> str:
    if not any(cell.verdict == "undetermined" for cell in cells):
        return ""
    return (
        "Undetermined does not mean unbiased: the images at hand establish neither a bias nor its absence. What the "
        "audit did not name, it did not look at."
    )


def _method_line(config: AuditConfig, cells: Sequence[Cell]) -> str:
    how_drawn = ""
    if _source(config) == SOURCES["retrieve"] and any(cell.basis not in ("labels", "calibrated") for cell in cells):
        how_drawn = (
            " Images found by caption are noisy labels: a finding says that the classifier does worse, or better, on "
            "what the captions found."
        )
    if any(cell.basis == "calibrated" for cell in cells):
        how_drawn += (
            " A verifier looked at what the images show; accuracies and φ are corrected for that, and for its own "
            "errors as measured on labelled images."
        )
    return (
        "φ of a value is the accuracy on the class's images that show it, minus the mean accuracy on the attribute's "
        f"other values. A cell counts as biased where φ lies beyond ±τ = ±{words.decimal(config.tau)} and the "
        "hypothesis that it does not is rejected at a false discovery rate of "
        f"α = {words.decimal(config.alpha)} over all cells of all classifiers of the audit (Benjamini and Hochberg "
        "1995)."
        f"{how_drawn}"
    )


# The images that a C2B run's classifiers got wrong, for other tools: with every classifier's answer, their cells,
# and the findings that they are part of.


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
        for cell_finding in _cell_findings(run, names)
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


def _cell_findings(run: C2BRun, names: Mapping[str, str]) -> list[_CellFinding]:
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
