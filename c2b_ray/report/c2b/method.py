"""How the run was made: settings, models, versions, counts and times, as rows of words, and how to make it again.

Reads the manifest, any part of which may be absent; hides credentials and places. Knows nothing of scores or pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from c2b_ray.report.kit import words
from c2b_ray.report.kit.redact import clean, cleaned

Row = tuple[str, str]
_RIGHT = {
    "top1": "the likeliest of all the classifier's labels stands for the class (right: top1)",
    "top5": "one of the five likeliest of all its labels stands for the class (right: top5)",
    "among_classes": "the class is the likeliest of the audit's classes alone, whatever other labels are likelier "
    "(right: among_classes)",
}
_ROLES = {
    "language_model": "Language model",
    "encoder": "Encoder",
    "index": "Index",
    "classifier": "Classifier",
    "table": "Labelled table",
    "classifiers": "Classifier",
}
_COUNTS = {
    "proposals": "Attributes proposed",
    "rejected": "Replies rejected",
    "captions": "Captions",
    "draws": "Draws",
    "images": "Images",
    "image_errors": "Images that could not be had",
    "predictions": "Predictions",
    "prediction_errors": "Predictions that failed",
}


@dataclass(frozen=True)
class Model:
    role: str
    spec: str
    revision: str


@dataclass(frozen=True)
class Method:
    """Rows of (name, value); `audit_file` and `command` make the run again."""

    settings: tuple[Row, ...]
    models: tuple[Model, ...]
    counts: tuple[Row, ...]
    seconds: tuple[Row, ...]
    versions: tuple[Row, ...]
    audit_file: str
    command: str
    shortened: bool  # places or credentials were taken out of the audit file


def method(manifest: Mapping[str, Any]) -> Method:
    config = mapping(manifest.get("config"))
    config = {name: value for name, value in config.items() if value is not None}
    shown = cleaned(config)
    return Method(
        settings=tuple(_settings(manifest, config)),
        models=tuple(_models(mapping(cleaned(manifest.get("models"))))),
        counts=tuple(_counts(mapping(manifest.get("counts")))),
        seconds=tuple(_seconds(mapping(manifest.get("seconds")))),
        versions=tuple((clean(str(name)), clean(str(v))) for name, v in mapping(manifest.get("versions")).items()),
        audit_file=yaml.safe_dump(shown, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)
        if shown
        else "",
        command=_command(manifest),
        shortened=shown != config,
    )


def right_line(config: Mapping[str, Any]) -> str:
    """When an answer counts as right, in a sentence; empty where the config does not say."""
    rule = _RIGHT.get(str(config.get("right")))
    return f"An answer is right when {rule}." if rule else ""


def mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def number(value: Any, default: float) -> float:
    """The value where it is a number, else the default."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _settings(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Row]:
    source = mapping(config.get("images")).get("source")
    kinds = {
        "retrieve": "retrieved by caption from an index",
        "generate": "made from each caption",
        "labelled": "labelled, from a table",
    }
    named_source = " and ".join(kinds.get(str(one), str(one)) for one in _several(source))
    named = {
        "Task": config.get("task"),
        "An answer is right when": _RIGHT.get(str(config.get("right"))),
        "Images": named_source or None,
        "Images per caption": config.get("images_per_caption"),
        "Captions per cell": config.get("captions_per_cell"),
        "Seed": config.get("seed"),
        "τ, smallest |φ| that counts": config.get("tau"),
        "α, false discovery rate": config.get("alpha"),
        "Run": manifest.get("run_id"),
    }
    for name, value in named.items():
        if value is not None:
            yield name, clean(words.decimal(value) if isinstance(value, float) else str(value))
    for name, key in (("Started", "created"), ("Finished", "finished")):
        if manifest.get(key):
            yield name, words.moment(str(manifest[key]))


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _models(models: Mapping[str, Any]) -> Iterator[Model]:
    for role, value in models.items():
        kind = role.split(" ", 1)[0]  # the manifest keys classifiers as "classifier SPEC"
        name = _ROLES.get(kind, kind.replace("_", " ").capitalize())
        for spec, entry in _entries(value):
            if spec == words.UNKNOWN and not entry.get("revision"):
                continue
            revision = entry.get("revision")
            yield Model(name, spec, words.UNKNOWN if revision is None else str(revision))


def _entries(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(spec, entry) of one model, a list of models, or models by name, whichever the manifest holds."""
    if isinstance(value, str):
        yield value, {}
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _entries(item)
    elif isinstance(value, Mapping) and ("spec" in value or "revision" in value):
        yield str(value.get("spec") or words.UNKNOWN), value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            entry = item if isinstance(item, Mapping) else {"revision": item}
            yield str(entry.get("spec") or name), entry


def _counts(counts: Mapping[str, Any]) -> Iterator[Row]:
    for name, value in counts.items():
        if isinstance(value, int | float):
            yield _COUNTS.get(name, name.replace("_", " ").capitalize()), words.count(int(value))


def _seconds(seconds: Mapping[str, Any]) -> Iterator[Row]:
    known = {str(step): float(value) for step, value in seconds.items() if isinstance(value, int | float)}
    for step, value in known.items():
        yield clean(step).capitalize(), words.duration(value)
    if len(known) > 1:
        yield "Together", words.duration(sum(known.values()))


def _command(manifest: Mapping[str, Any]) -> str:
    command = manifest.get("command")
    return clean(command) if isinstance(command, str) and command else "c2b audit audit.yaml --out RUN"
