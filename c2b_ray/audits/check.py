"""Checks a config before its run: loads each model once, and lets the classifiers answer three pictures.

It raises what the run itself would refuse, and otherwise tells what was read from where, what the classifiers see in
pictures of known classes, and what will be left out. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from c2b_ray.audits.c2b.classification import question_of, with_classes
from c2b_ray.audits.c2b.estimate import check as check_audit
from c2b_ray.audits.c2b.labelled import remarks
from c2b_ray.audits.c2b.verification.calibration import uncalibrated_of
from c2b_ray.audits.dataset.config import DatasetConfig, read_dataset_config
from c2b_ray.audits.dataset.models import truths_of
from c2b_ray.audits.dataset.plan import size_of
from c2b_ray.audits.failures.config import FailuresConfig, read_failures_config
from c2b_ray.audits.failures.estimate import checked as check_failures
from c2b_ray.audits.kit.backend import AUTO, check_via
from c2b_ray.audits.kit.models import check_specs, named_models
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.roles import Description, ModelFact, Pixels
from c2b_ray.steps.classify import SAME, Classes, Classification, class_probabilities, classification
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.labels import TARGET
from c2b_ray.storage.labelled import JOINT, LabelledTable, labels_in, table_opener
from c2b_ray.storage.manifest import read_yaml

PICTURES, TOP = 3, 3
_TRIED = 30
"""Rows that are tried until three have a picture that can be read."""

Configs = AuditConfig | FailuresConfig | DatasetConfig


@dataclass(frozen=True)
class Picture:
    """`classes`: what it shows, where that is known."""

    name: str
    classes: tuple[str, ...]
    pixels: Pixels = field(repr=False, compare=False)

    @property
    def of_class(self) -> str:
        return JOINT.join(self.classes)


@dataclass(frozen=True)
class Answer:
    """A classifier's likeliest labels for a picture, with probabilities. `right`: whether the answer stands for the
    picture's class; None where that class is not known.

    Of labels each on its own, `top` has each one's own probability, also of those that stand for what the picture
    shows; `given` are those that reach the threshold of their class, `below` those that do not: the others stand for no
    class. `right`: whether every class that the picture shows is given. Both are None of labels that exclude each
    other.
    """

    picture: str
    of_class: str
    top: tuple[tuple[str, float], ...]
    right: bool | None
    given: tuple[str, ...] | None = None
    below: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CheckedModel:
    """`field`: of the config; `labels`: of a classifier."""

    field: str
    role: str
    spec: str
    revision: str
    labels: tuple[str, ...]
    facts: tuple[ModelFact, ...]
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """`pictures`: where the pictures come from, in words. `left_out`: remarks on what the run will not use, and why."""

    models: tuple[CheckedModel, ...]
    pictures: str
    left_out: tuple[str, ...]


def check(file: str, via: str = AUTO) -> CheckResult:
    """Checks an audit file, or a file of `c2b failures` or `c2b dataset build`, told by its fields.

    Raises InputError for all that the run itself would refuse, and where a model does not load or answer.
    """
    check_via(via)
    config, classes = _read(file, via)
    pictures, source = _pictures(config, classes)
    classifiers = set(config.specs.values())
    models = []
    for where, role, spec in _models(config):
        if role == "classifier" and spec in classifiers:
            models.append(_classifier(where, spec, pictures, config, classes))
        else:
            description = catalog.description_of(catalog.load(role, spec))
            models.append(CheckedModel(where, role, spec, description.revision, description.labels, description.facts))
    left_out = []
    if isinstance(config, AuditConfig):
        left_out = remarks(config) if config.images.table is not None else uncalibrated_of(config)
    return CheckResult(tuple(models), source, tuple(left_out))


def _read(file: str, via: str) -> tuple[Configs, Sequence[str]]:
    """Returns the config, checked as its run checks it first, and its classes."""
    fields = read_yaml(file)
    if not isinstance(fields, Mapping):
        raise ConfigError("", "expected a mapping of fields, as c2b audit --print-schema shows", location=file)
    if "labels" in fields and "classes" not in fields:
        failures = check_failures(read_failures_config(file), via)
        return failures, list(failures.labels)
    if "captions" in fields or "draws_per_caption" in fields:
        dataset = read_dataset_config(file)
        check_specs(dataset)
        return dataset, size_of(dataset)[2]
    audit = read_audit(file)
    check_specs(audit)
    audit = with_classes(audit)
    check_audit(audit, via)
    return audit, list(audit.classes)


def _models(config: BaseModel) -> list[tuple[str, str, str]]:
    """Returns (field, role, spec) of each model that can be loaded, each spec once."""
    once: dict[tuple[str, str], str] = {}
    for where, role, spec in named_models(config):
        once.setdefault((role, spec), where)
    return [(where, role, spec) for (role, spec), where in once.items()]


def _pictures(config: Configs, classes: Sequence[str]) -> tuple[list[Picture], str]:
    """Returns three pictures and where they come from: the labelled table, the index, or the embedded world."""
    table = _table_of(config)
    if table is not None:
        targets = table.labels[TARGET].to_pylist()
        shown = [labels_in(one) if table.has_several else [one or ""] for one in targets]
        readable = _readable(table, _spread(shown, classes), shown)
        if not readable:
            raise SourceError(
                f"{table.location}: none of {_TRIED} images of the classes could be read; c2b audit needs some"
            )
        return readable, f"images of {table.location}"
    index = config.images.index if not isinstance(config, FailuresConfig) else None
    if index is not None:
        image_index = catalog.index(index)
        count = int(getattr(image_index, "count", 0) or _TRIED)
        rows = np.random.default_rng(0).permutation(count)[:_TRIED].tolist()
        return _readable(image_index, rows, None), f"images of the index {index}, whose classes are not known"
    from c2b_ray.world.render import render
    from c2b_ray.world.scenes import sample

    scenes = [
        Picture(f"scene {i + 1}", (scene.target_class,), render(scene)) for i, scene in enumerate(sample(PICTURES, 0))
    ]
    return scenes, "scenes of the embedded world, because the run makes its own images"


def _table_of(config: Configs) -> LabelledTable | None:
    if isinstance(config, AuditConfig):
        if config.images.table is None:
            return None
        return table_opener(config.images.model_dump())()
    labelled = config.images.labelled
    return None if labelled is None else LabelledTable(labelled.table, "images.labelled.table", labelled.columns)


def _spread(shown: Sequence[Sequence[str]], classes: Sequence[str]) -> list[int]:
    """Returns rows of the classes in turn, at random within each. `shown`: the classes of each row."""
    order = np.random.default_rng(0).permutation(len(shown)).tolist()
    groups: dict[str, list[int]] = {normalise(name): [] for name in classes}
    for row in order:
        for name in shown[row]:
            group = groups.get(normalise(name))
            if group is not None and len(group) < _TRIED:
                group.append(row)
    turns = [group[turn] for turn in range(_TRIED) for group in groups.values() if turn < len(group)]
    return list(dict.fromkeys(turns))[:_TRIED]


def _readable(source: Any, rows: Sequence[int], shown: Sequence[Sequence[str]] | None) -> list[Picture]:
    """Returns the first three of these rows whose pictures can be read. `shown`: as for `_spread`."""
    fetched = source.fetch(list(rows))
    keys, data = fetched["key"].to_pylist(), fetched["bytes"].to_pylist()
    pixels, _ = decode_batch([content or b"" for content in data])
    pictures = [
        Picture(str(key), () if shown is None else tuple(shown[row]), image)
        for row, key, image in zip(rows, keys, pixels, strict=True)
        if image is not None
    ]
    return pictures[:PICTURES]


def _classifier(
    where: str, spec: str, pictures: Sequence[Picture], config: Configs, classes: Sequence[str]
) -> CheckedModel:
    model = catalog.classifier(spec)
    description = catalog.description_of(model)
    question = _question(spec, description, config, classes)
    logits = np.asarray(
        model.logits([picture.pixels for picture in pictures], [picture.name for picture in pictures]), np.float64
    )
    answer = _answer_of_each if question.head == "sigmoid" else _answer
    answers = tuple(answer(picture, row, question) for picture, row in zip(pictures, logits, strict=True))
    return CheckedModel(where, "classifier", spec, description.revision, description.labels, description.facts, answers)


def _question(spec: str, description: Description, config: Configs, classes: Sequence[str]) -> Classification:
    """Returns what the run asks the classifier. Raises ConfigError where the run would refuse it."""
    if isinstance(config, AuditConfig):
        return question_of(config, spec, description)
    if isinstance(config, DatasetConfig):
        truths_of(config, spec, description, classes)
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    return classification(spec, description, classes, label_map)


def _answer(picture: Picture, row: NDArray[np.float64], question: Classification) -> Answer:
    total = np.logaddexp.reduce(row)
    best = np.argsort(-row, kind="stable")[:TOP].tolist()
    (answer,) = question.answers(row[None])
    if question.cut is not None and answer is not None and question.labels[best[0]] != answer.label:
        best.reverse()  # the less likely of two labels is the answer, because it reaches its threshold
    top = tuple((question.labels[i], float(np.exp(row[i] - total))) for i in best)
    groups = _groups_of(picture, question)
    return Answer(picture.name, picture.of_class, top, best[0] in groups[0] if groups else None)


def _answer_of_each(picture: Picture, row: NDArray[np.float64], question: Classification) -> Answer:
    labels, groups = question.labels, _groups_of(picture, question)
    each = Classes(labels, tuple((i,) for i in range(len(labels))))
    probabilities = class_probabilities(row[None], each, "sigmoid")[0]
    least = {label: question.thresholds[number] - SAME for label, number in question.class_labels.of_label.items()}
    likeliest = np.argsort(-row, kind="stable").tolist()
    listed = [i for rank, i in enumerate(likeliest) if rank < TOP or any(i in group for group in groups)]
    return Answer(
        picture.name,
        picture.of_class,
        tuple((labels[i], float(probabilities[i])) for i in listed),
        all(any(probabilities[i] >= least[i] for i in group) for group in groups) if groups else None,
        tuple(labels[i] for i in listed if i in least and probabilities[i] >= least[i]),
        tuple(labels[i] for i in listed if i in least and not probabilities[i] >= least[i]),
    )


def _groups_of(picture: Picture, question: Classification) -> list[tuple[int, ...]]:
    """Returns the labels that stand for each class that the picture shows."""
    shown = set(map(normalise, picture.classes))
    groups = zip(question.classes, question.labels_of_class, strict=True)
    return [group for name, group in groups if normalise(name) in shown]
