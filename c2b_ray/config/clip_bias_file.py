"""Reads and checks a file of `c2b clip-bias` once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.clip_bias import ClipBiasConfig
from c2b_ray.config.problems import first_problem
from c2b_ray.config.reading import located_path, refuse_keys_within
from c2b_ray.errors import ConfigError
from c2b_ray.filesystems.documents import FileOrFields, read_yaml
from c2b_ray.filesystems.spec_paths import located


def read_clip_bias_config(source: FileOrFields | ClipBiasConfig) -> ClipBiasConfig:
    """Returns the config of a run from a YAML file, a mapping of its fields, or a config.

    Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
    directory. Raises ConfigError, which names the field.
    """
    if isinstance(source, ClipBiasConfig):
        return _located(source, Path.cwd())
    if isinstance(source, dict):
        return _located(_validated(source, None), Path.cwd())
    if not isinstance(source, str | Path):
        raise ConfigError("", f"expected the path of a file or a mapping of its fields, got {type(source).__name__}")
    data = read_yaml(source)
    if not isinstance(data, dict):
        raise ConfigError("", "expected a mapping of fields such as models and datasets", location=str(source))
    return _located(_validated(_with_texts(data, Path(source)), str(source)), Path(source).parent)


def _with_texts(data: dict[str, Any], file: Path) -> dict[str, Any]:
    """Reads the `texts` of a dataset from the file that they name, a text per line. A mapping may come from others, so
    it may not name a file."""
    datasets = data.get("datasets")
    if not isinstance(datasets, dict):
        return data
    read = {
        name: {**one, "texts": _lines(one["texts"], file, f"datasets.{name}.texts")}
        if isinstance(one, dict) and isinstance(one.get("texts"), str)
        else one
        for name, one in datasets.items()
    }
    return {**data, "datasets": read}


def _lines(path: str, file: Path, field: str) -> list[str]:
    try:
        lines = (file.parent / path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(
            field, f"{path!r} is neither a list of texts nor a file with one a line ({error})", location=str(file)
        ) from error
    return [line.strip() for line in lines if line.strip()]


def _validated(data: dict[str, Any], file: str | None) -> ClipBiasConfig:
    refuse_keys_within(data, file)
    try:
        return ClipBiasConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, ClipBiasConfig) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply", location=file) from error


def _located(config: ClipBiasConfig, base: Path) -> ClipBiasConfig:
    def paths(tables: dict[str, str] | None) -> dict[str, str] | None:
        return None if tables is None else {name: located_path(path, base) or "" for name, path in tables.items()}

    datasets = {
        name: one.model_copy(update={"table": located_path(one.table, base)}) for name, one in config.datasets.items()
    }
    downstream = {
        name: one.model_copy(update={"vqa": paths(one.vqa), "captions": paths(one.captions)})
        for name, one in config.downstream.items()
    }
    changes: dict[str, Any] = {
        "models": {name: located(spec, base) for name, spec in config.models.items()},
        "datasets": datasets,
        "downstream": downstream,
        "leakage": config.leakage.model_copy(update={"guesser": located(config.leakage.guesser, base)}),
    }
    if (spaces := config.spaces) is not None:
        both = {"before": paths(spaces.before), "after": paths(spaces.after)}
        changes["spaces"] = spaces.model_copy(update=both)
    return config.model_copy(update=changes)
