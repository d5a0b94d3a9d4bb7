"""Reads YAML, JSON and CSV files strictly, duplicate keys and malformed documents being errors, and a run's manifest.

Of the files it knows no fields: errors are InputErrors that name the file, and the line where there is one.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import stat
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from c2b_ray.errors import ConfigError, RunError, SourceError

LARGEST = 64 * 2**20
"""The most bytes of a document; a label map of a million classes has half as many."""

FileOrFields = str | Path | dict[str, Any]
"""The path of a YAML file, or its fields by name."""


class StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a mapping with duplicate keys instead of keeping the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            # Compare keys as written: `1` and `"1"` differ in Python, but not for a person who reads the file.
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is given twice", key.start_mark
                    )
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> Any:
    """Returns the content of a YAML file. Raises SourceError if there is no such file, ConfigError if it is not
    YAML."""
    text = read_text(path, "YAML")
    try:
        return yaml.load(text, StrictLoader)  # noqa: S506 — a safe loader
    except RecursionError as error:
        raise _no_document(path, "YAML", "it is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-02-31
        raise _no_document(path, "YAML", " ".join(str(error).split())) from error


def read_json(path: str | Path) -> Any:
    """Returns the content of a JSON file. Raises SourceError if there is no such file, ConfigError if it is not
    JSON."""
    try:
        return parse_json(read_text(path, "JSON"))
    except ValueError as error:
        raise _no_document(path, "JSON", str(error)) from error


def parse_json(text: str | bytes) -> Any:
    """Does what `json.loads` does, and also raises ValueError for duplicate keys and deep nesting."""
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is given twice")
        result[key] = value
    return result


def read_text(path: str | Path, kind: str) -> str:
    """Returns a text file without its byte order mark. `kind`: the expected format, for errors. Raises SourceError if
    it is missing, ConfigError if it is a directory, a device or not text."""
    try:
        # Checked before opening: a pipe would block, and /dev/zero has no end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _no_document(path, kind, "it is a directory or a device; name a file")
        with open(path, "rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise _no_document(path, kind, f"it is larger than {LARGEST} bytes")
        return data.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise SourceError(f"{path}: no such file", location=str(path)) from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}", location=str(path)) from error
    except UnicodeDecodeError as error:
        raise _no_document(path, kind, f"it is not text in UTF-8 ({error.reason} at byte {error.start})") from error
    except ValueError as error:  # NUL in the name
        raise SourceError(f"{str(path)!r} is not a path: {error}", location=str(path)) from error


def read_table(path: str | Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Returns the rows of a CSV file with these columns in its header; cells lose the spaces around them.

    Raises SourceError if there is no such file. ConfigError names a line with too many or too few cells.
    """
    reader = csv.reader(io.StringIO(read_text(path, "CSV"), newline=""), strict=True)
    header: list[str] | None = None
    rows: list[dict[str, str]] = []
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            if header is None:
                header = cells
                if missing := [name for name in columns if name not in header]:
                    raise _no_document(path, "CSV", f"its header has no column {missing[0]!r}: {', '.join(header)}")
            elif len(cells) != len(header):
                problem = f"line {reader.line_num} has {len(cells)} cells, the header {len(header)}"
                raise _no_document(path, "CSV", problem)
            else:
                rows.append(dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise _no_document(path, "CSV", f"line {reader.line_num}: {error}") from error
    if header is None:
        raise _no_document(path, "CSV", "it is empty")
    return rows


def read_lines(path: str | Path, kind: str) -> list[str]:
    """Returns the lines of a text file. `kind`: the expected format, for errors. Raises the errors of `read_yaml`."""
    return read_text(path, kind).splitlines()


def _no_document(path: str | Path, kind: str, problem: str) -> ConfigError:
    return ConfigError("", f"not a {kind} file: {problem}", location=str(path))


# A run's manifest, typed and versioned: `run.json`.


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


def stored_config(fields: Mapping[str, Any], model: type[BaseModel], location: str, command: str) -> BaseModel:
    """Returns the config of a run of `command` from the `fields` of its manifest.

    The config was validated when the run began. So each field is read as its type says, and the rules between fields
    are not applied: they may refuse today what an earlier release allowed. What the manifest lacks has the field's
    default, or none where there is none; what `model` does not know is left out. Raises RunError for a value that a
    field cannot have.
    """
    readers = _field_readers(model)
    values = {}
    for name in readers.keys() & fields.keys():
        try:
            values[name] = _read_field(readers[name], fields[name])
        except ValidationError as error:
            problem = error.errors()[0]
            field = ".".join(map(str, ("config", name, *problem["loc"])))
            raise RunError(
                f"{location}: {field}: {problem['msg']}; another release made the run, or it is damaged: run its "
                f"{command} again, with another --out",
                run=location,
            ) from error
    return model.model_construct(**values)


def _read_field(reader: TypeAdapter[Any], value: Any) -> Any:
    """Reads a value without those fields of its sections that this release does not know."""
    try:
        return reader.validate_python(value)
    except ValidationError as error:
        unknown = [problem["loc"] for problem in error.errors() if problem["type"] == "extra_forbidden"]
        if len(unknown) < error.error_count():
            raise
        value = copy.deepcopy(value)
        for *path, last in unknown:
            section = reduce(lambda inner, key: inner[key], path, value)
            del section[last]
        return reader.validate_python(value)


@cache
def _field_readers(model: type[BaseModel]) -> dict[str, TypeAdapter[Any]]:
    kinds: dict[str, Any] = {name: Annotated[one.annotation, one] for name, one in model.model_fields.items()}
    return {name: TypeAdapter(kind) for name, kind in kinds.items()}


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
