"""Reads and checks a failures file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.failures import FailuresConfig
from c2b_ray.config.label_map import read_label_map
from c2b_ray.config.problems import first_problem
from c2b_ray.config.reading import located_path, located_spec, located_specs, refuse_keys_within
from c2b_ray.errors import ConfigError
from c2b_ray.filesystems.documents import FileOrFields, read_yaml

_PACKAGED = ("world", "imagenet")


def read_failures_config(
    source: FileOrFields | FailuresConfig, classifier: dict[str, str] | None = None
) -> FailuresConfig:
    """Returns the config of a run from a YAML file, a mapping of its fields, or a config.

    Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
    directory. `classifier` replaces that of the source. Raises ConfigError, which names the field.
    """
    instead = {} if classifier is None else {"classifier": classifier}
    if isinstance(source, FailuresConfig):
        return _located(source.model_copy(update=instead), Path.cwd())
    if isinstance(source, dict):
        return _located(_validated({**source, **instead}, None), Path.cwd())
    if not isinstance(source, str | Path):
        raise ConfigError(
            "", f"expected a failures file's path or a mapping of its fields, got {type(source).__name__}"
        )
    data = read_yaml(source)
    if not isinstance(data, dict):
        what = "expected a mapping of fields such as labels, classifier and images"
        raise ConfigError("", what, location=str(source))
    return _located(_validated({**data, **instead}, str(source)), Path(source).parent)


def _validated(data: dict[str, Any], file: str | None) -> FailuresConfig:
    refuse_keys_within(data, file)
    try:
        return FailuresConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, FailuresConfig) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply", location=file) from error


def _located(config: FailuresConfig, base: Path) -> FailuresConfig:
    changes: dict[str, Any] = {"classifier": located_specs(config.classifier, base)}
    for name in ("captioner", "encoder", "language_model", "verifier"):
        changes[name] = located_spec(getattr(config, name), base)
    images = config.images
    if images.generate is not None:
        model = located_spec(images.generate.model, base)
        images = images.model_copy(update={"generate": images.generate.model_copy(update={"model": model})})
    if images.labelled is not None:
        table = located_path(images.labelled.table, base)
        images = images.model_copy(update={"labelled": images.labelled.model_copy(update={"table": table})})
    changes["images"] = images
    if (generalise := config.generalise) is not None:
        generators = [located_spec(spec, base) for spec in generalise.generators]
        index = located_path(generalise.index, base)
        changes["generalise"] = generalise.model_copy(update={"generators": generators, "index": index})
    changes["labelled"] = located_path(config.labelled, base)
    if config.hierarchy is not None and config.hierarchy not in _PACKAGED:
        changes["hierarchy"] = located_path(config.hierarchy, base)
    if isinstance(config.label_map, str):
        changes["label_map"] = read_label_map(located_path(config.label_map, base) or "", config.labels)
    return config.model_copy(update=changes)
