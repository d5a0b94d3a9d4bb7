"""Checks an audit before anything starts, and estimates how many images it may look at and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.budget import first_grant, targets
from c2b_ray.audits.c2b.classification import check_heads, question_of, with_classes
from c2b_ray.audits.c2b.deriving import Attributes, attributes_of, check_reading, proposals_of
from c2b_ray.audits.c2b.hypotheses.derived import LOW_TO_HIGH
from c2b_ray.audits.c2b.hypotheses.labelled import RowDraws, caption_pairs, labelled_pair_rows, labelled_rows
from c2b_ray.audits.c2b.perturbation.effects import perturbed_rows
from c2b_ray.audits.c2b.sampling.selection import NEAREST, cells_of
from c2b_ray.audits.c2b.scoring.metric import check_metric
from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.audits.c2b.verification.calibration import calibration_table, check_calibration
from c2b_ray.audits.kit.backend import AUTO, check_via
from c2b_ray.audits.kit.models import check_specs, index_folder, is_table
from c2b_ray.audits.kit.session import (
    Cost,
    answers,
    classifications,
    descriptions,
    embeddings,
    generations,
    measurements,
)
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.config.reading import with_defaults
from c2b_ray.errors import C2BError, ConfigError, SourceError, SpecError, nearest
from c2b_ray.models import catalog
from c2b_ray.models.spec_options import WORDS, UnstatedPreprocessingError
from c2b_ray.names import normalise
from c2b_ray.roles import Classifier, Pixels
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import pairs
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.fetch import reopen
from c2b_ray.steps.labels import TARGET
from c2b_ray.steps.propose import propose
from c2b_ray.storage import files
from c2b_ray.storage.labelled import LabelledTable, refuse_paths_outside, table_opener
from c2b_ray.storage.manifest import FileOrFields

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

    classify = partial(question_of, config, name)
    trials = try_preprocessings(
        list(WORDS), load, classify, [image for image, _ in decoded], [text for _, text in decoded]
    )
    if all(trial.error is not None for trial in trials):
        return SpecError(f"{error} (no preprocessing could be tried on the labelled images: {trials[0].error})")
    return SpecError(f"{error}. {_in_words(trials)}")


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


# Computes how many images an audit may look at from its config alone, which decides whether it is small.


ASSUMED_ATTRIBUTES, ASSUMED_VALUES = 7, 4
"""Assumed for each class before a language model proposes them: about what C2B's runs and ours gave."""


def most_answers(config: AuditConfig) -> int | None:
    """Returns an upper limit of the images that classifiers answer about, without reading any file; None where the
    classifier names the classes or a table has the images."""
    if config.of_all_classes:
        return None
    complete = with_defaults(config, None)
    return None if complete.images.table is not None else most_images(complete) * len(complete.specs)


def most_images(config: AuditConfig) -> int:
    """Returns an upper limit of the images that are drawn; a labelled table counts with all its rows, and a perturbed
    image with all its pictures.

    The config's `classes` must be named.
    """
    cells, per_cell = _cells(config), config.most_per_cell
    if config.images.table is not None:
        rows = len(table_opener(config.images.model_dump())())
        perturbed = 0 if config.perturb is None else len(config.classes) * config.perturb.images
        pictures = 0 if config.perturb is None else min(rows, perturbed) * config.perturb.pictures
        return pictures + (rows if per_cell is None or not config.attributes else min(rows, cells * per_cell))
    assert per_cell is not None
    total = 0
    for source in config.images.sources:
        pooled = source == "retrieve" and config.verification is not None and config.images.pool is not None
        # All images of a pool may be looked at until enough are accepted.
        looked_at = config.captions_per_cell * int(config.images.pool or 0) if pooled else 0
        total += cells * max(per_cell, looked_at)
    if config.budget is not None and config.verification is None:
        total = min(total, config.budget.images)
    return total


def _cells(config: AuditConfig) -> int:
    values = {normalise(name): len(listed) for name, listed in (config.attributes or {}).items()}
    proposed = 0 if config.language_model is None else ASSUMED_ATTRIBUTES * ASSUMED_VALUES
    pairs = sum(prod(values.get(normalise(name), ASSUMED_VALUES) for name in pair) for pair in config.intersections)
    return len(config.classes) * (sum(values.values()) + proposed + pairs)


# Estimates an audit's cost before it runs: how often each model is called, and for how long, from a short trial.


def estimate(config: FileOrFields | AuditConfig, via: str = AUTO) -> list[Cost]:
    """Returns the cost of an audit, line by line. Raises what reading its config and loading its models raises."""
    config = read_audit(config)
    check_specs(config)
    config = with_classes(config)
    check(config, via)
    if config.images.sources == ("labelled",):
        images, model_costs = _of_table(config)
        costs = [*model_costs, Cost("images to read", *images)]
    else:
        captions, note = _captions(config)
        images = _drawn(config, captions)
        rows = captions.num_rows
        costs = [Cost("captions", rows, rows, note=note), *_language_model(config, rows)]
        for source in config.images.sources:
            costs.append(_source(source, config, captions, images))
    if config.verification is not None:
        costs.append(_verified(config.verification.model, config, costs, images))
    pictures = _pictures(config)
    for name, spec in config.specs.items():
        costs.append(Cost(f"predictions of {name}", *images, classifications(spec)))
        if pictures:
            costs.append(Cost(f"predictions of {name}, perturbed", pictures, pictures, classifications(spec)))
    return costs


def _captions(config: AuditConfig) -> tuple[pa.Table, str]:
    """Returns the captions as the audit writes them, with stand-ins for what a language model has yet to propose, and a
    note."""
    attributes, note = dict(config.attributes or {}), ""
    if config.language_model is not None:
        values = [f"value {number + 1}" for number in range(ASSUMED_VALUES)]
        named_forms = {normalise(name) for name in attributes}
        pair_names = dict.fromkeys(
            name for pair in config.intersections for name in pair if normalise(name) not in named_forms
        )
        assumed_names = (f"attribute {number + 1}" for number in range(ASSUMED_ATTRIBUTES - len(pair_names)))
        attributes |= dict.fromkeys([*pair_names, *assumed_names], values)
        note = f"assuming {ASSUMED_ATTRIBUTES} attributes of {ASSUMED_VALUES} values a class from the language model"
    proposals, _ = propose(config.task, config.classes, None, attributes, config.seed)
    captions, _ = caption(config.task, proposals, None, config.captions_per_cell, config.seed, config.templates)
    of_pairs, _ = caption_pairs(pairs(proposals, config.intersections), captions, None, config.seed)
    return pa.concat_tables([captions, of_pairs]), note


def _language_model(config: AuditConfig, captions: int) -> list[Cost]:
    if config.language_model is None:
        return []
    requests = len(config.classes) + 1 + captions
    return [Cost(f"requests to {config.language_model}", requests, requests)]


def _drawn(config: AuditConfig, captions: pa.Table) -> tuple[int, int]:
    """Returns the images at the first look and at most, from all sources, as the audit's own functions grant them."""
    sources = len(config.images.sources)
    first = sources * sum(targets(captions, first_grant(captions, config), config).values())
    without_budget = config.model_copy(update={"budget": None})
    most = sources * sum(targets(captions, first_grant(captions, without_budget), without_budget).values())
    if config.budget is not None:
        most = max(first, min(most, config.budget.images))
    if config.confirm:
        most *= 2  # on as many fresh images, at most
    if config.screening is not None:
        most += sources * len(cells_of(captions)) * config.screening.fresh
    return first, most


def _source(source: str, config: AuditConfig, captions: pa.Table, images: tuple[int, int]) -> Cost:
    """Returns the cost of one source. All sources give the same share. All images of a pool may be looked at until
    enough are accepted."""
    least, most = (number // len(config.images.sources) for number in images)
    if source == "generate":
        return Cost("images to generate", least, most, generations(str(config.images.generator)))
    if config.images.selection == NEAREST or config.images.pool is None:
        return Cost("images to retrieve", least, most)
    most_looked_at = max(least, _pools(config, captions))
    return Cost(
        "images to retrieve", least, most_looked_at, note=f"at most the {config.images.pool} of each caption's pool"
    )


def _pools(config: AuditConfig, captions: pa.Table) -> int:
    """Returns the number of images in the pools of all captions; of a smaller index, all of its images once."""
    assert config.images.pool is not None
    rows = sum(len(captions_of_cell) for captions_of_cell in cells_of(captions).values()) * config.images.pool
    count = getattr(catalog.index(str(config.images.index)), "count", None)
    return rows if count is None else min(rows, int(count))


def _verified(spec: str, config: AuditConfig, costs: list[Cost], images: tuple[int, int]) -> Cost:
    """Returns the cost of verifying every fetched or generated image, once for each class that it was looked at for.

    Each class looks at its own pools, and pools may overlap.
    """
    of_pools = config.images.selection != NEAREST
    classes = {"images to retrieve": len(config.classes) if of_pools else 1, "images to generate": 1}
    most = sum(cost.most * classes.get(cost.what, 0) for cost in costs)
    note = "an image that several captions drew counts once for each class"
    return Cost("images to verify", images[0], most, answers(spec), note)


def _pictures(config: AuditConfig) -> int:
    """Returns the number of perturbed and unperturbed pictures that each classifier answers."""
    if config.perturb is None:
        return 0
    table = table_opener(config.images.model_dump())()
    return sum(map(len, perturbed_rows(config, table).values())) * config.perturb.pictures


def _of_table(config: AuditConfig) -> tuple[tuple[int, int], list[Cost]]:
    """Returns the images of a labelled table at the first look and at most, those of intersections included; and what
    it costs to measure and to look at images."""
    load = table_opener(config.images.model_dump())
    reopen(load)
    table = load()
    attributes = attributes_of(config, table)
    rows = attributes.image_classes.rows
    measuring_costs = [measurements(load, rows)] if attributes.to_measure else []
    if attributes.by_models:
        return (len(rows), len(rows)), [*measuring_costs, *_looked_at(config, len(rows))]
    if attributes.to_measure:
        return _to_draw(config, attributes, len(rows)), measuring_costs
    return _known_draws(config, table, attributes), []


def _looked_at(config: AuditConfig, rows: int) -> list[Cost]:
    """Returns the cost of what models say of all images of the classes."""
    images, costs = config.images, []
    if images.read is not None:
        costs.append(Cost("images to read values off", rows, rows, answers(images.read.model)))
    if images.words is not None:
        costs.append(Cost("images to describe", rows, rows, descriptions(images.words)))
    if images.slices is not None:
        costs.append(Cost("images to embed", rows, rows, embeddings(images.slices)))
    return costs


def _to_draw(config: AuditConfig, attributes: Attributes, rows: int) -> tuple[int, int]:
    """Returns the images at the first look and at most, before any of the `rows` is measured."""
    if config.budget is None:
        return rows, rows
    cells = len(config.classes) * len(attributes.to_measure) * len(LOW_TO_HIGH)
    return min(rows, config.budget.first * cells), min(rows, max(config.budget.first * cells, config.budget.images))


def _known_draws(config: AuditConfig, table: LabelledTable, attributes: Attributes) -> tuple[int, int]:
    limit, labels = Limit(config.images_per_caption, config.seed), attributes.labels
    proposals, captions, draws = labelled_rows(
        labels, table.revision, config.classes, attributes.named, limit, config.perturb is None
    )
    more_captions, pair_draws = labelled_pair_rows(
        labels, table.revision, pairs(proposals, config.intersections), limit
    )
    draws = RowDraws({**draws.rows, **pair_draws.rows}, table.revision)
    rows = len(draws.distinct())
    if config.budget is None:
        return rows, rows
    first = draws.first(first_grant(pa.concat_tables([captions, more_captions]), config)).num_rows
    return min(first, rows), min(rows, max(first, config.budget.images))
