"""Describes the models of a dataset before any of them is loaded: their revisions, labels, and problems."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.commands.dataset.naming import name_in_rows, names_in_rows
from c2b_ray.config.dataset import DatasetConfig
from c2b_ray.config.hierarchy import read_hierarchy
from c2b_ray.errors import ConfigError
from c2b_ray.pipelines.shards.crew import CrewThere, GeneratorThere, IndexThere, JudgeThere, TableThere, VerifierThere
from c2b_ray.roles import Description
from c2b_ray.steps.discovery.hierarchy import Hierarchy
from c2b_ray.steps.discovery.rules import Truth, check_rule, needs_parents
from c2b_ray.steps.predict import classification
from c2b_ray.steps.search import check_encoder
from c2b_ray.store.labelled import LabelledTable

TABLE_FIELD = "images.labelled.table"


def crew_of(config: DatasetConfig, labels: Sequence[str], models: Backend) -> CrewThere:
    """Returns the models of a dataset. Raises ConfigError, which names what does not fit: a label that a classifier or
    the hierarchy lacks, a rule without a hierarchy."""
    specs = config.specs
    judges = tuple(
        _judge(config, (name, spec), labels, models)
        for name, spec in zip(names_in_rows(list(specs)), specs.values(), strict=True)
    )
    verifier = None
    if config.verify is not None:
        spec = config.verify.captioner
        revision = models.describe("captioner", spec).revision
        verifier = VerifierThere(name_in_rows(spec), revision, tuple(labels), models.captioner(spec))
    return CrewThere(_sources(config, models), judges, verifier, config.rule, config.confidence, config.true_below)


def _sources(config: DatasetConfig, models: Backend) -> tuple[GeneratorThere | IndexThere | TableThere, ...]:
    images = config.images
    if images.labelled is not None:
        opened = partial(open_table, images.labelled.table, dict(images.labelled.columns or {}))
        return (TableThere(name_in_rows(images.labelled.table), opened().revision, opened),)
    sources: list[GeneratorThere | IndexThere | TableThere] = [
        GeneratorThere(name, models.describe("image_generator", spec).revision, models.image_generator(spec))
        for name, spec in zip(names_in_rows(images.generators), images.generators, strict=True)
    ]
    if images.index is not None:
        known = models.describe("index", images.index)
        check_encoder(models.describe("encoder", known.encoder), known)
        encoder, index = models.encoder(known.encoder), models.index(images.index)
        sources.append(IndexThere(name_in_rows(images.index), known.revision, index, encoder, config.draws_per_caption))
    return tuple(sources)


def open_table(location: str, columns: dict[str, str]) -> LabelledTable:
    return LabelledTable(location, TABLE_FIELD, columns)


def _judge(config: DatasetConfig, named: tuple[str, str], labels: Sequence[str], models: Backend) -> JudgeThere:
    name, spec = named
    known = models.describe("classifier", spec)
    truths = truths_of(config, name, known, labels)
    return JudgeThere(name, known.revision, known.labels, truths, models.classifier(spec))


def truths_of(config: DatasetConfig, name: str, known: Description, labels: Sequence[str]) -> dict[str, Truth]:
    """Returns each label's truth in a classifier's label space.

    Raises ConfigError where the classifier lacks a label, or where the rule could never fail.
    """
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    field = "captions" if config.images.labelled is None else TABLE_FIELD
    groups = classification(name, known, labels, label_map, field=field).labels_of_class
    hierarchy = None
    if config.hierarchy is not None and needs_parents(config.rule):  # other rules may name one that lacks labels
        hierarchy = Hierarchy(read_hierarchy(config.hierarchy), known.labels)
    truths = {}
    for label, outputs in zip(labels, groups, strict=True):
        members = np.zeros(len(known.labels), bool)
        members[list(outputs)] = True
        truths[label] = Truth(members, None if hierarchy is None else hierarchy.kin(outputs))
        check_rule(config.rule, truths[label], label)
    if not truths:
        raise ConfigError("captions", f"no caption has a label that {name} could be asked about")
    return truths
