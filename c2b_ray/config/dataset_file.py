"""Reads and checks a dataset file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.dataset import DatasetConfig
from c2b_ray.config.label_map import read_label_map
from c2b_ray.config.problems import first_problem
from c2b_ray.config.reading import located_path, located_spec, located_specs, refuse_keys_within
from c2b_ray.errors import ConfigError
from c2b_ray.filesystems.documents import FileOrFields, read_yaml

PACKAGED = ("world", "imagenet")


def read_dataset_config(
    source: FileOrFields | DatasetConfig, classifier: dict[str, str] | None = None
) -> DatasetConfig:
    """Returns a dataset's config from a YAML file, a mapping of its fields, or a config.

    Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
    directory. `classifier` replaces that of the source. Raises ConfigError, which names the field.
    """
    instead = {} if classifier is None else {"classifier": classifier}
    if isinstance(source, DatasetConfig):
        return _located(source.model_copy(update=instead), Path.cwd())
    if isinstance(source, dict):
        return _located(_validated({**source, **instead}, None), Path.cwd())
    if not isinstance(source, str | Path):
        raise ConfigError("", f"expected a dataset file's path or a mapping of its fields, got {type(source).__name__}")
    data = read_yaml(source)
    if not isinstance(data, dict):
        what = "expected a mapping of fields such as captions, classifier and images"
        raise ConfigError("", what, location=str(source))
    return _located(_validated({**data, **instead}, str(source)), Path(source).parent)


def _validated(data: dict[str, Any], file: str | None) -> DatasetConfig:
    refuse_keys_within(data, file)
    try:
        return DatasetConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, DatasetConfig) from error


def _located(config: DatasetConfig, base: Path) -> DatasetConfig:
    changes: dict[str, Any] = {"classifier": located_specs(config.classifier, base)}
    if (captions := config.captions) is not None:
        of_captions = {
            **{name: located_path(getattr(captions, name), base) for name in ("run", "file", "images")},
            **{name: located_spec(getattr(captions, name), base) for name in ("language_model", "captioner")},
        }
        changes["captions"] = captions.model_copy(update=of_captions)
    images: dict[str, Any] = {"index": located_path(config.images.index, base)}
    if (generate := config.images.generate) is not None:
        images["generate"] = generate.model_copy(update={"model": located_specs(generate.model, base)})
    if (labelled := config.images.labelled) is not None:
        images["labelled"] = labelled.model_copy(update={"table": located_path(labelled.table, base)})
    changes["images"] = config.images.model_copy(update=images)
    if config.verify is not None:
        captioner = located_spec(config.verify.captioner, base)
        changes["verify"] = config.verify.model_copy(update={"captioner": captioner})
    if config.hierarchy is not None and config.hierarchy not in PACKAGED:
        changes["hierarchy"] = located_path(config.hierarchy, base)
    if isinstance(config.label_map, str):
        changes["label_map"] = read_label_map(located_path(config.label_map, base) or "", [])
    return config.model_copy(update=changes)
