"""A run's manifest, typed and versioned: `run.json`.

It knows which fields there are and which formats can be read, not where the file lies nor what the tables mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from c2b_ray.errors import RunError
from c2b_ray.filesystems.documents import parse_json

FORMAT = 4
"""1 and 2: before finished runs listed their tables, and before the columns that say why an answer is right. 3: before
captions named their kind."""


C2B = "c2b"
"""The kind of runs from before manifests named one."""


class _Record(BaseModel):
    # What is added by a release of the same format is kept by those that do not know it.
    model_config = ConfigDict(extra="allow", frozen=True)


class Model(_Record):
    """A model of a run: its spec, and the revision of its weights once it was loaded."""

    spec: str | None = None
    revision: str | None = None


class TableRecord(_Record):
    """A table of a finished run: its file's bytes and, up to a size, their hash; or its parts, name → bytes."""

    rows: int = Field(ge=0)
    bytes: int | None = None
    sha256: str | None = None
    parts: dict[str, int] | None = None


class Manifest(_Record):
    """A run's settings, models, and how it went. `tables` is set where `status` is finished."""

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

    def as_dict(self) -> dict[str, Any]:
        """Only what is set, as JSON has it."""
        return self.model_dump(mode="json", exclude_unset=True)


def kind_name(data: bytes, location: str) -> str:
    """The kind that a manifest names. RunError where `data` is no manifest, or one of a format that this release does
    not read."""
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
            f"{FORMAT}: make the run anew, into another --out",
            run=location,
        )
    return str(value.get("kind", C2B))


def parse(data: bytes, location: str, model: type[Manifest], command: str) -> Manifest:
    """The manifest of a run that `command` makes. RunError as `kind_name`, or where a field is wrong."""
    kind_name(data, location)
    return checked(parse_json(data), location, model, command)


def checked(value: dict[str, Any], location: str, model: type[Manifest], command: str) -> Manifest:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        raise RunError(
            f"{location}: {field}: {problem['msg']}; it is damaged: run its {command} anew", run=location
        ) from error


def merged(manifest: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """With `changes`; nested mappings are merged one level deep."""
    result = dict(manifest)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = {**result[key], **value} if nested else value
    return result


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The settings in which two configs differ, for people."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(sorted(keys)) or "models or version"
