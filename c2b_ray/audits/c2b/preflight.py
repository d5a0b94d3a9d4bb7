"""Checks an audit before Ray starts: that its models, files, labels and classes exist and fit together.

It loads no weights: a classifier whose labels only the loaded model knows is checked when the audit begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from c2b_ray.audits.c2b.classification import question_of
from c2b_ray.audits.c2b.deriving import attributes_of, proposals_of
from c2b_ray.audits.c2b.heads import check_heads
from c2b_ray.audits.c2b.reading import check_reading
from c2b_ray.audits.c2b.scoring.metric import check_metric
from c2b_ray.audits.c2b.verification.calibration import check_calibration
from c2b_ray.audits.c2b.verification.stage import calibration_table
from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.models import check_specs, index_folder
from c2b_ray.audits.kit.tables_of_predictions import is_table
from c2b_ray.config import AuditConfig
from c2b_ray.errors import C2BError, ConfigError, SourceError, SpecError, nearest
from c2b_ray.models import catalog
from c2b_ray.models.spec_options import WORDS, UnstatedPreprocessingError
from c2b_ray.names import normalise
from c2b_ray.roles import Classifier, Pixels
from c2b_ray.steps.cells import pairs
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.labels import TARGET
from c2b_ray.storage import files
from c2b_ray.storage.labelled import LabelledTable, table_opener

# Tries the usual preprocessings of a classifier about which nothing states its own, on labelled images.


LEAST, SHARE = 4, 0.15
"""The best is named where it is right on so many more images, and on such a share more of them, than the second."""


@dataclass(frozen=True)
class PreprocessingTrial:
    """How often a preprocessing was `right` on so many `images`; `error`: why it could not be tried."""

    word: str
    right: int = 0
    images: int = 0
    error: str | None = None


def try_preprocessings(
    words: Sequence[str],
    load: Callable[[str], Classifier],
    classify: Callable[[Classifier], Classification],
    images: Sequence[Pixels],
    targets: Sequence[str],
) -> list[PreprocessingTrial]:
    """Returns how often each of the preprocessings `words` is right, most often first.

    `load` returns the classifier with a preprocessing, `classify` what it decides; `targets` has the class of each
    image. An error of loading or answering becomes the `error` of its row.
    """
    trials = []
    for word in words:
        try:
            classifier = load(word)
            question = classify(classifier)
            logits = classifier.logits(images, [""] * len(images))
        except C2BError as error:
            trials.append(PreprocessingTrial(word, error=str(error)))
            continue
        given_answers = question.answers(logits)
        right = sum(
            answer is not None and (target == answer.predicted_class or target in (answer.answered or ()))
            for answer, target in zip(given_answers, targets, strict=True)
        )
        trials.append(PreprocessingTrial(word, right, len(images)))
    return sorted(trials, key=lambda trial: (trial.error is not None, -trial.right))


def far_best(trials: Sequence[PreprocessingTrial]) -> PreprocessingTrial | None:
    """Returns the preprocessing that is right far more often than the others; None where none is."""
    working = [trial for trial in trials if trial.error is None]
    if len(working) < 2:
        return None
    lead = working[0].right - working[1].right
    return working[0] if lead >= max(LEAST, SHARE * working[0].images) else None


# Says which preprocessing an ONNX file probably needs, where nothing states it and the audit's images are labelled.


IMAGES = 60
"""So many labelled images are tried, as evenly over the classes as they allow."""


def with_trial(error: UnstatedPreprocessingError, name: str, spec: str, config: AuditConfig) -> SpecError:
    """Returns the error with what the usual preprocessings give on the audit's labelled images, where it has any."""
    if config.images.table is None:
        return error
    table = table_opener(config.images.model_dump())()
    targets = table.labels[TARGET].to_pylist()
    rows = _rows(targets, config.classes)
    fetched = table.fetch(rows)
    pixels, _ = decode_batch(fetched["bytes"].to_pylist())
    decoded = [(image, targets[row]) for image, row in zip(pixels, rows, strict=True) if image is not None]
    if not decoded:
        return error

    def load(word: str) -> Classifier:
        return catalog.classifier(f"{spec}{'&' if '?' in spec else '?'}preprocess={word}")

    classify = partial(_classify, name=name, config=config)
    trials = try_preprocessings(
        list(WORDS), load, classify, [image for image, _ in decoded], [text for _, text in decoded]
    )
    if all(trial.error is not None for trial in trials):
        return SpecError(f"{error} (no preprocessing could be tried on the labelled images: {trials[0].error})")
    return SpecError(f"{error}. {_in_words(trials)}")


def _classify(classifier: Classifier, name: str, config: AuditConfig) -> Classification:
    return question_of(config, name, classifier)


def _rows(targets: Sequence[str | None], classes: Sequence[str]) -> list[int]:
    """Returns rows of the classes in turn, at random within each."""
    order = np.random.default_rng(0).permutation(len(targets)).tolist()
    groups = {name: [row for row in order if targets[row] == name] for name in classes}
    largest_class = max(map(len, groups.values()), default=0)
    turns = [group[turn] for turn in range(largest_class) for group in groups.values() if turn < len(group)]
    return sorted(turns[:IMAGES])


def _in_words(trials: Sequence[PreprocessingTrial]) -> str:
    counts = ", ".join(f"{trial.word} {trial.right}" for trial in trials if trial.error is None)
    best = far_best(trials)
    if best is None:
        return f"Right of {trials[0].images} labelled images: {counts}: none is right far more often than the others"
    return f"Right of {best.images} labelled images: {counts}: it is probably ?preprocess={best.word}"


INDEX_MANIFEST = "manifest.json"


def check(config: AuditConfig, via: str) -> None:
    """Raises the errors that the audit itself would raise, before anything is started or written."""
    check_via(via)
    check_metric(config)
    check_specs(config)
    _check_pairs(config)
    if config.images.index is not None:
        _check_index(config.images.index)
    if config.images.table is not None:
        table = table_opener(config.images.model_dump())()
        refuse_paths_outside(table)
        attributes = attributes_of(config, table)
        proposals = proposals_of(config, attributes)
        to_measure = {normalise(image_property.name) for image_property in attributes.to_measure}
        if not attributes.by_models:
            pairs(proposals, [pair for pair in config.intersections if to_measure.isdisjoint(map(normalise, pair))])
    check_reading(config)
    if config.verification is not None and config.verification.calibration is not None:
        check_calibration(calibration_table(config.verification.calibration).labels, config.classes)
    if config.perturb is not None:
        _check_asked(config)
    described = {}
    for name, spec in config.specs.items():
        try:
            description = catalog.describe("classifier", spec)
        except UnstatedPreprocessingError as error:
            raise with_trial(error, name, spec, config) from error
        if description is not None:
            described[name] = description
            question_of(config, name, description)
    check_heads(config, described)


def refuse_paths_outside(table: LabelledTable, field: str = "images.root") -> None:
    """Raises ConfigError where most images of a table lie outside the folder that they are read below: each of them
    would be an error of its row, after the run."""
    outside = table.leading_out()
    if 2 * len(outside) < len(table):
        return
    root = table.root_of(outside)
    line = f"write `root: {root}` under `images`" if root else "give the folder above them as `root` under `images`"
    below = table.root or "the table's folder"
    raise ConfigError(
        field,
        f"{len(outside):,} of {len(table):,} images do not lie below {below}, such as {outside[0]!r}; if they are "
        f"yours, {line}",
    )


def _check_asked(config: AuditConfig) -> None:
    """Raises ConfigError for a table of predictions, which holds no answers to perturbed pictures."""
    for name, spec in config.specs.items():
        if is_table(spec):
            raise ConfigError(
                "perturb",
                f"{name} is a table of predictions, which cannot be asked about a perturbed picture; name the "
                "classifier itself, or leave `perturb` out",
            )


def _check_pairs(config: AuditConfig) -> None:
    """Checks the names in pairs. Without a language model the config itself lists all attributes."""
    if config.language_model is not None or config.images.sources == ("labelled",):
        return
    attributes = {normalise(name) for name in config.attributes or {}}
    for pair in config.intersections:
        for name in pair:
            if normalise(name) not in attributes:
                raise ConfigError("intersections", f"no attribute {name!r}; {nearest(name, attributes)}")


def _check_index(index: str) -> None:
    directory = index_folder(index)
    if not files.exists(f"{directory}/{INDEX_MANIFEST}"):
        raise SourceError(
            f"{directory}: no index there (expected {INDEX_MANIFEST}); c2b index build makes one", location=directory
        )
