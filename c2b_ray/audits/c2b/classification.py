"""The classifiers of an audit: what each is asked, which can be asked that, and their answers to the drawn images.

It loads no classifier: their descriptions suffice, and they answer where their stage runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from c2b_ray.audits.c2b.run import CLASSIFIER, C2BRun
from c2b_ray.audits.kit import models as classifiers
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.config.audit import OF_CLASS
from c2b_ray.engine.images import AuditedClassifier, ImageStages, OnProgress, Selection, prediction_ids, selected
from c2b_ray.engine.progress import Progress
from c2b_ray.errors import Argument, ConfigError
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.roles import Description
from c2b_ray.steps.classify import NAME_LABELS, Classification, Described, classification, is_unnamed
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.labels import class_names_in, one_class_each
from c2b_ray.storage.labelled import table_opener
from c2b_ray.storage.parts import Digests, absent, digests, opened, repeats

# What an audit can ask of classifiers that give each label on its own, and of images that show several.


_NEED_ONE_ANSWER = {
    "perturb": "compares the one answer to a picture with the one before",
    "label_errors": "looks for answers that contradict the one label of an image",
    "images.read": "corrects accuracies of images of one class",
    "images.words": "looks for words of images that are right or wrong as a whole",
    "images.slices": "looks for clusters of images that are right or wrong as a whole",
}
_SIGMOID = "add ?head=sigmoid to its spec if its outputs are sigmoids"


def check_heads(config: AuditConfig, known: Mapping[str, Description]) -> None:
    """Raises ConfigError where the classifiers' labels, the images' classes and the config do not go together.

    `known`: the classifiers that can be described, by name. It reads the table's header, and loads no model.
    """
    heads = {name: one.head for name, one in known.items()}
    each = [name for name, head in heads.items() if head == "sigmoid"]
    table = None if config.images.table is None else table_opener(config.images.model_dump())()
    if each and len(each) < len(heads):
        other = next(name for name in heads if name not in each)
        raise ConfigError(
            "classifier",
            f"{each[0]} gives each label on its own, and the labels of {other} exclude each other: their answers are "
            "not of one kind. Audit them in two runs",
        )
    if table is not None and table.has_several and heads and not each and not one_class_each(table.labels):
        name = next(iter(heads))
        raise ConfigError(
            "images.table",
            f"its images may show several classes, and the labels of {name} exclude each other; {_SIGMOID}, or give a "
            "table with one class for each image",
        )
    if each:
        _check_each(config, each[0])
    elif heads and config.metric not in OF_CLASS and len(config.classes) == 1:
        raise ConfigError(
            "metric", f"{config.metric} needs images of other classes too; name two classes or more, or `all`"
        )


def _check_each(config: AuditConfig, name: str) -> None:
    settings = {"perturb": config.perturb, "label_errors": config.label_errors}
    settings |= {f"images.{field}": getattr(config.images, field) for field in ("read", "words", "slices")}
    for field, value in settings.items():
        if value is not None:
            raise ConfigError(
                field, f"it {_NEED_ONE_ANSWER[field]}, and {name} gives each label on its own; leave it out"
            )
    if config.images.sources != ("labelled",):
        raise ConfigError(
            "images.source",
            f"{name} gives each label on its own, and what else retrieved and generated images show is not known; use "
            "source: labelled",
        )
    if config.images_per_caption is not None and config.metric not in OF_CLASS:
        raise ConfigError(
            "images_per_caption",
            f"{config.metric} depends on how frequent a label is, which a part of the images of each cell changes; "
            "leave it out",
        )


def audited_classifiers(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> list[AuditedClassifier]:
    """Returns the classifiers of an audit and notes them in its run. Raises ConfigError where one has no label for a
    class."""
    audited = []
    described = {name: models.describe("classifier", spec) for name, spec in config.specs.items()}
    check_heads(config, described)
    for name, spec in config.specs.items():
        description = described[name]
        question = question_of(config, name, description)
        run.update({"models": {f"{CLASSIFIER}{name}": model_row(spec, description)}})
        warn_of_assumptions(steps, name, description)
        audited.append(AuditedClassifier(models.classifier(spec), question, description.shape, description.takes_files))
    if rule := next((one.question.rule for one in audited if one.question.rule), None):
        run.update({"rule": rule})
    return audited


def question_of(config: AuditConfig, name: str, known: Described) -> Classification:
    """Returns what a classifier of the audit is asked. Raises ConfigError as `classification` does."""
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    each = getattr(known, "head", "softmax") == "sigmoid"
    keeps = config.keeps_probabilities or each
    return classification(
        name, known, config.classes, label_map, config.right, "classes", keeps, config.threshold, several=True
    )


def classifying(config: AuditConfig) -> str:
    """Returns the name of the step in which the classifiers answer."""
    return f"classify: {', '.join(config.specs)}"


def classify(
    classifiers: Sequence[AuditedClassifier], run: C2BRun, models: Backend, on_progress: OnProgress, source: Load | None
) -> None:
    """Writes the missing predictions of all images that the run has drawn. `source`: of those whose bytes it does not
    hold."""
    images = selected(run.location("images"), partial(_drawn, run))
    state = _state(run, classifiers, images)
    if state == "whole":  # answered while they were fetched: a stage would read all ids twice more to find nothing
        total = images.total * len(classifiers)
        on_progress(Progress(0, 0, total, total, 0.0))
        return
    if state == "lacking":
        run.begin_writing()
    ImageStages(models.runner).classify(images, classifiers, run.location("predictions"), on_progress, source)


def _drawn(run: C2BRun) -> Iterator[Digests]:
    """Yields the digests of the images that are answered, some at a time. Images that were looked at but not drawn are
    left out."""
    for name in ("draws", "confirmation", "perturbed_images", "labelled_images"):
        for table in run.each(name, ["image_id"]):
            yield digests(table["image_id"])


def _state(
    run: C2BRun, classifiers: Sequence[AuditedClassifier], images: Selection
) -> Literal["lacking", "repeating", "whole"]:
    """Returns whether predictions are missing, or some are there twice, as after a kill."""
    if not run.has("predictions"):
        return "lacking"
    done = opened(run.location("predictions")).census("prediction_id").ids
    if any(absent(some, done).any() for some in prediction_ids([one.question for one in classifiers], images)):
        return "lacking"
    return "repeating" if repeats(done).any() else "whole"


# Lists the classifiers of a run, and resolves the names by which a user chooses among them.


def classifiers_of(run: C2BRun) -> list[str]:
    """Returns the specs that a run has predictions of, in the order of its audit's config."""
    # Scores keep that order; parts of predictions come in the order of their file names, which are random.
    scored = run.read("scores", ["classifier"])
    rows = scored if scored.num_rows else run.read("perturbations", ["classifier"])
    rows = rows if rows.num_rows else run.predictions
    return list(rows["classifier"].unique().to_pylist())


def one_of(run: C2BRun, name: str | None, option: Argument) -> str:
    """As `kit.models.one_of`."""
    return classifiers.one_of(classifiers_of(run), name, option, run.path)


def two_of(run: C2BRun, name_a: str | None, name_b: str | None) -> tuple[str, str]:
    """As `kit.models.two_of`."""
    return classifiers.two_of(classifiers_of(run), name_a, name_b, run.path)


# The classes of an audit with `classes: all`: those of its label map, or the classifier's labels.


def with_classes(config: AuditConfig) -> AuditConfig:
    """Returns the config with its classes named.

    Raises ConfigError where several classifiers have different labels, or where two labels have the same spelling, so
    that no caption could tell them apart.
    """
    if not config.of_all_classes:
        return config
    if isinstance(config.label_map, dict):
        return _named(config, list(config.label_map), "the keys of `label_map`")
    specs = list(config.specs.values())
    labels = [list(catalog.described("classifier", spec).labels) for spec in specs]
    for spec, other_labels in zip(specs[1:], labels[1:], strict=True):
        if set(other_labels) != set(labels[0]):
            raise ConfigError(
                "classes", f"all: {specs[0]} and {spec} have different labels; list the classes, or give `label_map`"
            )
    return _named(config, labels[0], f"the labels of {specs[0]}")


def _named(config: AuditConfig, classes: Sequence[str], owner: str) -> AuditConfig:
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        spellings[normalise(name)].append(name)
    for key, names in spellings.items():
        if not key:
            raise ConfigError("classes", f"all: {owner} hold an empty name; list the classes that are meant")
        if len(names) > 1:
            listed = " and ".join(map(repr, names[:2]))
            raise ConfigError(
                "classes",
                f"all: of {owner}, {listed} are the same name, so that nothing tells their images apart; list the "
                "classes that are meant, or give `label_map`, which may tell labels of one name apart by index",
            )
    if config.images.table is not None:
        classes = _shown(config, classes, owner)
    if config.right == "among_classes" and len(classes) < 2:
        raise ConfigError("right", f"among_classes needs two classes or more, and {owner} hold one")
    return config.model_copy(update={"classes": list(classes)})


def _shown(config: AuditConfig, classes: Sequence[str], owner: str) -> list[str]:
    """Returns the classes that a labelled table has images of: it may show a part of a large label space."""
    table = table_opener(config.images.model_dump())()
    classes_in_table = {normalise(name) for name in class_names_in(table.labels)}
    classes_shown = [name for name in classes if normalise(name) in classes_in_table]
    if not classes_shown:
        hint = f"; {NAME_LABELS}" if is_unnamed(classes) else ""
        raise ConfigError(
            "classes", f"all: no row of {config.images.table} has one of {owner} as its target_class{hint}"
        )
    return classes_shown
