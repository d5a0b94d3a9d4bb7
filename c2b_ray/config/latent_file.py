"""Reads and checks a file of `c2b latent` once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.latent import LatentConfig
from c2b_ray.config.problems import first_problem
from c2b_ray.config.reading import located_path, located_spec, located_specs, refuse_keys_within
from c2b_ray.errors import ConfigError
from c2b_ray.filesystems.documents import FileOrFields, read_yaml


def read_latent_config(source: FileOrFields | LatentConfig, classifier: dict[str, str] | None = None) -> LatentConfig:
    """Returns the config of a run from a YAML file, a mapping of its fields, or a config.

    Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
    directory. `classifier` replaces that of the source. Raises ConfigError, which names the field.
    """
    instead = {} if classifier is None else {"classifier": classifier}
    if isinstance(source, LatentConfig):
        return _located(_validated({**source.model_dump(), **instead}, None), Path.cwd())
    if isinstance(source, dict):
        return _located(_validated({**source, **instead}, None), Path.cwd())
    if not isinstance(source, str | Path):
        raise ConfigError("", f"expected a file's path or a mapping of its fields, got {type(source).__name__}")
    data = read_yaml(source)
    if not isinstance(data, dict):
        what = "expected a mapping of fields such as generator, classifier and target"
        raise ConfigError("", what, location=str(source))
    return _located(_validated({**data, **instead}, str(source)), Path(source).parent)


def _validated(data: dict[str, Any], file: str | None) -> LatentConfig:
    refuse_keys_within(data, file)
    try:
        return LatentConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, LatentConfig) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply", location=file) from error


def _located(config: LatentConfig, base: Path) -> LatentConfig:
    return config.model_copy(
        update={
            "classifier": located_specs(config.classifier, base),
            "generator": located_specs(config.generator, base),
            "captioner": located_spec(config.captioner, base),
            "latents": located_path(config.latents, base),
            "hyperplanes": located_path(config.hyperplanes, base),
        }
    )
