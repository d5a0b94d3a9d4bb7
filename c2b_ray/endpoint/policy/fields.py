"""What each field of each kind's config names: a model, a file, or nothing but words and numbers.

A field that is not in this table is refused, so a new one cannot name anything before somebody has thought about it. It
knows fields and what they mean, not what may be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel

from c2b_ray.errors import ConfigError


class Names(Enum):
    """What the value of a field names."""

    NOTHING = "words, numbers and choices, by which nothing is read"
    CLASSIFIER = "classifier"
    LANGUAGE_MODEL = "language_model"
    ENCODER = "encoder"
    GENERATOR = "image_generator"
    CAPTIONER = "captioner"
    INDEX = "index"
    TABLE = "a labelled table, or a folder of images"
    CAPTIONS = "a table of captions"
    RUN = "another run"
    HIERARCHY = "a packaged hierarchy, or a file or folder"
    LABEL_MAP = "a label map, or a file of one"


SPECS = (Names.CLASSIFIER, Names.LANGUAGE_MODEL, Names.ENCODER, Names.GENERATOR, Names.CAPTIONER, Names.INDEX)
Leaf = Callable[[Names, Any, str], Any]

_AUDIT = {
    "classifier": Names.CLASSIFIER,
    "language_model": Names.LANGUAGE_MODEL,
    "label_map": Names.LABEL_MAP,
    "images.index": Names.INDEX,
    "images.generator": Names.GENERATOR,
    "images.table": Names.TABLE,
    "verification.model": Names.CAPTIONER,
    "verification.calibration": Names.TABLE,
}
_AUDIT_WORDS = (
    "task", "classes", "attributes", "templates", "intersections", "images_per_caption", "captions_per_cell", "confirm",
    "seed", "tau", "alpha", "right", "budget.images", "budget.first", "images.source", "images.pool",
    "images.selection", "images.columns.image", "images.columns.target_class", "images.columns.key",
)  # fmt: skip
_FAILURES = {
    "classifier": Names.CLASSIFIER,
    "images.generate.model": Names.GENERATOR,
    "images.labelled.table": Names.TABLE,
    "hierarchy": Names.HIERARCHY,
    "label_map": Names.LABEL_MAP,
    "captioner": Names.CAPTIONER,
    "encoder": Names.ENCODER,
    "language_model": Names.LANGUAGE_MODEL,
    "verifier": Names.CAPTIONER,
    "generalise.generators": Names.GENERATOR,
    "generalise.index": Names.INDEX,
    "labelled": Names.TABLE,
}
_FAILURES_WORDS = (
    "labels", "images.labelled.columns", "rule", "confidence", "true_below", "targets", "prompt", "captions",
    "generalise.runs", "generalise.images", "budget.draws", "budget.discovery", "alpha", "seed",
)  # fmt: skip
_DATASET = {
    "captions.run": Names.RUN,
    "captions.file": Names.CAPTIONS,
    "captions.language_model": Names.LANGUAGE_MODEL,
    "captions.images": Names.TABLE,
    "captions.captioner": Names.CAPTIONER,
    "images.generate.model": Names.GENERATOR,
    "images.index": Names.INDEX,
    "images.labelled.table": Names.TABLE,
    "classifier": Names.CLASSIFIER,
    "hierarchy": Names.HIERARCHY,
    "label_map": Names.LABEL_MAP,
    "verify.captioner": Names.CAPTIONER,
}
_DATASET_WORDS = (
    "captions.labels", "captions.per_label", "captions.sentences", "images.labelled.columns", "images.labelled.by",
    "rule", "confidence", "true_below", "draws_per_caption", "cap_per_caption", "near_duplicates", "shard_draws",
    "batch", "seed",
)  # fmt: skip


def _table(named: Mapping[str, Names], words: tuple[str, ...]) -> dict[str, Names]:
    return {**named, **dict.fromkeys(words, Names.NOTHING)}


FIELDS: dict[str, dict[str, Names]] = {
    "c2b": _table(_AUDIT, _AUDIT_WORDS),
    "failures": _table(_FAILURES, _FAILURES_WORDS),
    "dataset": _table(_DATASET, _DATASET_WORDS),
    "question": _table({"run": Names.RUN}, ("sentence", "n", "classifier", "target_class", "target")),
}
"""Kind → dotted field → what it names. `question.classifier` is one of a run's names, by which nothing is loaded."""


def replaced(kind: str, config: BaseModel, raw: Mapping[str, Any], leaf: Leaf) -> dict[str, Any]:
    """`raw` with the value of each field that names something replaced by `leaf(names, value, field)`.

    `config` is what `raw` was validated to: values are taken from there, where spaces around them are gone. ConfigError
    for a field that is not classified.
    """
    return _section(FIELDS.get(kind, {}), config, raw, "", leaf)


def _section(
    known: Mapping[str, Names], config: BaseModel, raw: Mapping[str, Any], above: str, leaf: Leaf
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, written in raw.items():
        field, value = f"{above}{name}", getattr(config, name)
        if isinstance(value, BaseModel):
            inner = written.model_dump(exclude_unset=True) if isinstance(written, BaseModel) else written
            result[name] = _section(known, value, inner, f"{field}.", leaf)
        elif field not in known:
            raise ConfigError(field, "this endpoint does not take the field: what it names is not classified")
        elif known[field] is Names.NOTHING or value is None:
            result[name] = written
        else:
            result[name] = leaf(known[field], value, field)
    return result


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """The dotted name of every field of a config that is no section, in sections too."""
    for name, field in model.model_fields.items():
        sections = list(_sections(field.annotation))
        for section in sections:
            yield from fields_of(section, f"{above}{name}.")
        if not sections:
            yield f"{above}{name}"


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
