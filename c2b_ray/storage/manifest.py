"""A run's manifest, typed and versioned: `run.json`.

It knows the fields and the readable formats, not the path of the file or the meaning of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from c2b_ray.errors import RunError
from c2b_ray.storage.documents import parse_json

FORMAT = 4
"""1: finished runs did not list their tables. 2: there were no columns that say why an answer is right. 3: captions did
not name their kind."""


C2B = "c2b"
"""The kind of runs whose manifests name none, which are old."""


class _Record(BaseModel):
    # Keep fields that other releases of the same format add.
    model_config = ConfigDict(extra="allow", frozen=True)


class Model(_Record):
    """A model of a run: its spec, and the revision of its weights once it is loaded."""

    spec: str | None = None
    revision: str | None = None


class TableRecord(_Record):
    """A table of a finished run: its file's bytes and, up to a size, their hash; or its parts, name → bytes."""

    rows: int = Field(ge=0)
    bytes: int | None = None
    sha256: str | None = None
    parts: dict[str, int] | None = None


class Headline(_Record):
    """A finished run's result in one line, and how many findings each classifier has, by its name in the run."""

    text: str = ""
    findings: dict[str, int] = Field(default_factory=dict)


class Manifest(_Record):
    """A run's settings, models and course. `tables` is set if `status` is finished, and so is `headline`, except in
    runs of older releases."""

    format: Literal[4] = 4
    kind: str = C2B
    run_id: str = Field(min_length=1)
    status: Literal["running", "finished", "failed"]
    created: str
    config: dict[str, Any]
    finished: str | None = None
    failure: str | None = None
    via: str | None = None
    models: dict[str, Model | list[Model]] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    tables: dict[str, TableRecord] | None = None
    headline: Headline | None = None

    @property
    def has_results(self) -> bool:
        """Whether the run came to its end, so that its results may be read."""
        return self.status == "finished"

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields that are set, as JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)


def kind_name(data: bytes, location: str) -> str:
    """Returns the kind that a manifest names. Raises RunError if `data` is no manifest, or has a format that this
    release cannot read."""
    try:
        value = parse_json(data)
    except ValueError as error:
        raise RunError(f"{location} is not JSON: {error}", run=location) from error
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise RunError(f"{location}: not a manifest of a run (it names no format)", run=location)
    if value["format"] > FORMAT:
        raise RunError(
            f"{location}: a run of format {value['format']}, made by a later release; this one reads format {FORMAT}: "
            "install the newer c2b-ray to read it",
            run=location,
        )
    if value["format"] < FORMAT:
        raise RunError(
            f"{location}: a run of format {value['format']}, made by an earlier release; this one reads format "
            f"{FORMAT}: run it again, with another --out",
            run=location,
        )
    return str(value.get("kind", C2B))


def parse(data: bytes, location: str, model: type[Manifest], command: str) -> Manifest:
    """Returns the manifest of a run of `command`. Raises RunError like `kind_name`, or for a wrong field."""
    kind_name(data, location)
    return checked(parse_json(data), location, model, command)


def checked(value: dict[str, Any], location: str, model: type[Manifest], command: str) -> Manifest:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise RunError(
            f"{location}: {field}: {problem['msg']}; it is damaged: run its {command} again", run=location
        ) from error


def merged(manifest: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the manifest with `changes`. Nested mappings are merged one level deep."""
    result = dict(manifest)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = {**result[key], **value} if nested else value
    return result


UNNAMED = (
    "; a function in memory is taken for another one each time: c2b_ray.InMemory(model, labels, revision=...) says "
    "that it is the same"
)


def unnamed(config: Mapping[str, Any]) -> str:
    """Returns what to do where a config's classifier may only seem to be another one; empty where it cannot."""
    return UNNAMED if "in-memory:" in str(config.get("classifier")) else ""


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Returns the names of the settings in which two configs differ, for people."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(sorted(keys)) or "models or version"
