"""Reads and checks an audit file once, at the edge; its paths become absolute, and its defaults are filled in.

Paths in a file are relative to that file. `audit` defines what each field may hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.defaults import with_defaults
from c2b_ray.config.label_map import read_label_map
from c2b_ray.config.problems import first_problem
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.filesystems import refuse_keys
from c2b_ray.filesystems.documents import FileOrFields, read_yaml
from c2b_ray.filesystems.spec_paths import located


def read_audit(source: FileOrFields | AuditConfig, classifier: dict[str, str] | None = None) -> AuditConfig:
    """Returns a complete audit from a YAML file, a mapping of its fields, or a config.

    Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
    directory. A complete config is returned unchanged. `classifier` replaces that of the source. Raises ConfigError,
    which names the field.
    """
    instead = {} if classifier is None else {"classifier": classifier}
    if isinstance(source, AuditConfig):
        refuse_keys_within(source.model_dump(), None)
        return _completed(source.model_copy(update=instead), Path.cwd(), None)
    if isinstance(source, dict):
        return _completed(_validated({**source, **instead}, None), Path.cwd(), None)
    if not isinstance(source, str | Path):
        raise ConfigError("", f"expected an audit file's path or a mapping of its fields, found {_kind(source)}")
    try:
        data = read_yaml(source)
    except SourceError as error:
        error.args = (f"{error}; c2b audit --print-schema shows what an audit file holds",)
        raise
    if not isinstance(data, dict):
        what = f"expected a mapping of fields such as task and classes, found {_kind(data)}"
        raise ConfigError("", what, location=str(source))
    return _completed(_validated({**data, **instead}, str(source)), Path(source).parent, str(source))


def _kind(data: object) -> str:
    return "nothing" if data is None else f"a {type(data).__name__}"


def _validated(data: dict[str, Any], file: str | None) -> AuditConfig:
    refuse_keys_within(data, file)
    try:
        return AuditConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply", location=file) from error


def _completed(config: AuditConfig, base: Path, file: str | None) -> AuditConfig:
    """Returns the config with absolute paths, its label map read and all defaults filled in."""
    images = {
        "index": located_path(config.images.index, base),
        "table": located_path(config.images.table, base),
        "generator": located_spec(config.images.generator, base),
    }
    changes: dict[str, Any] = {
        "images": config.images.model_copy(update=images),
        "classifier": located_specs(config.classifier, base),
        "language_model": located_spec(config.language_model, base),
    }
    if (verification := config.verification) is not None:
        paths = {
            "model": located_spec(verification.model, base),
            "calibration": located_path(verification.calibration, base),
        }
        changes["verification"] = verification.model_copy(update=paths)
    if isinstance(config.label_map, str):
        changes["label_map"] = read_label_map(located_path(config.label_map, base) or "", config.classes)
    return with_defaults(config.model_copy(update=changes), file)


def located_specs(classifier: str | list[str] | dict[str, str], base: Path) -> str | list[str] | dict[str, str]:
    if isinstance(classifier, str):
        return located(classifier, base)
    if isinstance(classifier, list):
        return [located(spec, base) for spec in classifier]
    return {name: located(spec, base) for name, spec in classifier.items()}


def refuse_keys_within(value: object, file: str | None, field: str = "", depth: int = 0) -> None:
    """Refuses API keys and NUL characters before the fields are checked: errors about fields would repeat their
    values."""
    if isinstance(value, str):
        refuse_keys(value)
        if "\0" in value:
            raise ConfigError(field, f"{value[:100]!r} holds a NUL character", location=file)
    elif isinstance(value, dict | list) and depth < 8:
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            refuse_keys_within(item, file, f"{field}.{name}" if field else str(name), depth + 1)


def located_spec(spec: str | None, base: Path) -> str | None:
    return None if spec is None else located(spec, base)


def located_path(path: str | None, base: Path) -> str | None:
    if path is None or "://" in path or Path(path).is_absolute():
        return path
    if path.startswith("faiss:"):
        return located(path, base)
    return str((base / Path(path).expanduser()).resolve())
