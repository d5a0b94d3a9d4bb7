"""Reads and checks a config file once, at the edge; its paths become absolute, and an audit's defaults are filled in.

Paths in a file are relative to that file. This module knows files; what a field may hold, and which fields are paths,
the config's class says (`named`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.classifiers import read_label_map
from c2b_ray.config.defaults import with_defaults
from c2b_ray.config.dialect import audit_words
from c2b_ray.config.hierarchy import PACKAGED
from c2b_ray.config.named import MODELS, Names, replaced_texts
from c2b_ray.config.problems import first_problem
from c2b_ray.config.strict import StrictModel
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage import refuse_keys
from c2b_ray.storage.confined import located
from c2b_ray.storage.manifest import FileOrFields, read_yaml

Config = TypeVar("Config", bound=StrictModel)


def _nothing_more(fields: dict[str, Any], file: Path) -> dict[str, Any]:
    return fields


def _as_written(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


@dataclass(frozen=True)
class ConfigFile(Generic[Config]):
    """A kind of config file. `command`: the command that takes it. `classes`: the field with the classes to which the
    label map of a file is cut; empty: it is kept whole. `completed`: reads what the fields of a file name instead of
    holding it. `worded`: reads what files of another kind call differently (`dialect`)."""

    model: type[Config]
    command: str
    classes: str = ""
    completed: Callable[[dict[str, Any], Path], dict[str, Any]] = _nothing_more
    worded: Callable[[dict[str, Any]], dict[str, Any]] = _as_written

    def read(self, source: FileOrFields | Config, classifier: str | dict[str, str] | None = None) -> Config:
        """Returns the config from a YAML file, a mapping of its fields, or a config.

        Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
        directory. `classifier` replaces that of the source. Raises ConfigError, which names the field.
        """
        instead = {} if classifier is None else {"classifier": classifier}
        if isinstance(source, self.model):
            refuse_keys_within(source.model_dump(), None)
            return self._located(source.model_copy(update=instead), Path.cwd())
        if isinstance(source, dict):
            return self._located(self._validated({**self.worded(source), **instead}, None), Path.cwd())
        if not isinstance(source, str | Path):
            raise ConfigError(
                "", f"expected the path of a file of {self.command}, or a mapping of its fields, found {_kind(source)}"
            )
        fields = self.completed(self.worded(self._fields(source)), Path(source))
        return self._located(self._validated({**fields, **instead}, str(source)), Path(source).parent)

    def fields(self, source: str | Path) -> dict[str, Any]:
        """Returns the fields of a YAML file as they are written, in this kind's own words, and with the texts that it
        names instead of holding them. They are not checked, and paths stay relative to the file."""
        return self.completed(self.worded(self._fields(source)), Path(source))

    def _fields(self, file: str | Path) -> dict[str, Any]:
        schema = f"{self.command} --print-schema shows what the file holds"
        try:
            fields = read_yaml(file)
        except SourceError as error:
            error.args = (f"{error}; {schema}",)
            raise
        if not isinstance(fields, dict):
            required = [name for name, field in self.model.model_fields.items() if field.is_required()]
            problem = (
                f"expected a mapping of fields such as {' and '.join(required[:2])}, found {_kind(fields)}; {schema}"
            )
            raise ConfigError("", problem, location=str(file))
        return fields

    def _validated(self, fields: dict[str, Any], file: str | None) -> Config:
        refuse_keys_within(fields, file)
        try:
            return self.model.model_validate(fields)
        except ValidationError as error:
            raise first_problem(error, file, self.model) from error
        except RecursionError as error:
            raise ConfigError("", "it is nested too deeply", location=file) from error

    def _located(self, config: Config, base: Path) -> Config:
        config = replaced_texts(config, lambda names, text: located_text(names, text, base))
        label_map = getattr(config, "label_map", None)
        if isinstance(label_map, str):
            return config.model_copy(update={"label_map": self.label_map(label_map, config)})
        return config

    def label_map(self, path: str, config: Config) -> dict[str, list[int | str]]:
        """Returns the label map in a file, cut to the classes of the config."""
        return read_label_map(path, getattr(config, self.classes) or [] if self.classes else [])


def _kind(data: object) -> str:
    return "nothing" if data is None else f"a {type(data).__name__}"


def located_text(names: Names, text: str, base: Path) -> str:
    """Returns a text of a config with each relative path in it made absolute, relative to `base`."""
    if names in MODELS:
        return located(text, base)
    return text if names is Names.HIERARCHY and text in PACKAGED else located_path(text, base)


def located_path(path: str, base: Path) -> str:
    if "://" in path or Path(path).is_absolute():
        return path
    if path.startswith("faiss:"):
        return located(path, base)
    return str((base / Path(path).expanduser()).resolve())


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


AUDIT_FILE = ConfigFile(AuditConfig, "c2b audit", classes="classes", worded=audit_words)


def read_audit(source: FileOrFields | AuditConfig, classifier: str | dict[str, str] | None = None) -> AuditConfig:
    """Returns a complete audit, its defaults filled in, as `ConfigFile.read` does. A complete config is returned
    unchanged."""
    file = None if isinstance(source, AuditConfig | dict) else str(source)
    return with_defaults(AUDIT_FILE.read(source, classifier), file)
