"""Reads and checks a prompts file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.problems import first_problem
from c2b_ray.config.prompts import PromptsConfig
from c2b_ray.config.reading import located_path, located_spec, refuse_keys_within
from c2b_ray.errors import ConfigError
from c2b_ray.filesystems.documents import FileOrFields, read_yaml
from c2b_ray.filesystems.spec_paths import located


def read_prompts_config(source: FileOrFields | PromptsConfig) -> PromptsConfig:
    """Returns the config of a run from a YAML file, a mapping of its fields, or a config.

    Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
    directory. Raises ConfigError, which names the field.
    """
    if isinstance(source, PromptsConfig):
        return _located(source, Path.cwd())
    if isinstance(source, dict):
        return _located(_validated(source, None), Path.cwd())
    if not isinstance(source, str | Path):
        raise ConfigError("", f"expected a prompts file's path or a mapping of its fields, got {type(source).__name__}")
    data = read_yaml(source)
    if not isinstance(data, dict):
        what = "expected a mapping of fields such as subjects, attributes and generators"
        raise ConfigError("", what, location=str(source))
    return _located(_validated(data, str(source)), Path(source).parent)


def _validated(data: dict[str, Any], file: str | None) -> PromptsConfig:
    refuse_keys_within(data, file)
    try:
        return PromptsConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, PromptsConfig) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply", location=file) from error


def _located(config: PromptsConfig, base: Path) -> PromptsConfig:
    specs = ("language_model", "judge", "reader", "encoder")
    changes: dict[str, Any] = {name: located_spec(getattr(config, name), base) for name in specs}
    changes["generators"] = {name: located(spec, base) for name, spec in config.generators.items()}
    heads = {"teacher": located_spec(config.heads.teacher, base), "files": located_path(config.heads.files, base)}
    changes["heads"] = config.heads.model_copy(update=heads)
    return config.model_copy(update=changes)
