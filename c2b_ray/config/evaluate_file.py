"""Reads and checks an evaluation file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from c2b_ray.config.evaluate import EvaluateConfig
from c2b_ray.config.label_map import read_label_map
from c2b_ray.config.problems import first_problem
from c2b_ray.config.reading import located_path, located_spec, located_specs, refuse_keys_within
from c2b_ray.errors import ConfigError
from c2b_ray.filesystems.documents import FileOrFields, read_yaml

_MODELS = (("b2t", ("captioner", "encoder")), ("vqa", ("model",)), ("retrieval", ("encoder",)))


def read_evaluate_config(source: FileOrFields | EvaluateConfig) -> EvaluateConfig:
    """Returns the config of an evaluation from a YAML file, a mapping of its fields, or a config.

    Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
    directory. Raises ConfigError, which names the field.
    """
    if isinstance(source, EvaluateConfig):
        return _located(source, Path.cwd())
    if isinstance(source, dict):
        return _located(_validated(source, None), Path.cwd())
    if not isinstance(source, str | Path):
        raise ConfigError(
            "", f"expected an evaluation file's path or a mapping of its fields, got {type(source).__name__}"
        )
    data = read_yaml(source)
    if not isinstance(data, dict):
        what = "expected a mapping of fields such as classifier, truth and methods"
        raise ConfigError("", what, location=str(source))
    return _located(_validated(data, str(source)), Path(source).parent)


def _validated(data: dict[str, Any], file: str | None) -> EvaluateConfig:
    refuse_keys_within(data, file)
    try:
        return EvaluateConfig.model_validate(data)
    except ValidationError as error:
        raise first_problem(error, file, EvaluateConfig) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply", location=file) from error


def _located(config: EvaluateConfig, base: Path) -> EvaluateConfig:
    changes: dict[str, Any] = {
        "classifier": located_specs(config.classifier, base),
        "sentence_encoder": located_spec(config.sentence_encoder, base),
        "truth": config.truth.model_copy(update=_truth(config, base)),
        "methods": {
            name: located_path(method, base) if isinstance(method, str) else located_audit(method, base)
            for name, method in config.methods.items()
        },
    }
    for section, fields in _MODELS:
        if (held := getattr(config, section)) is not None:
            specs = {name: located_spec(getattr(held, name), base) for name in fields}
            changes[section] = held.model_copy(update=specs)
    if isinstance(config.label_map, str):
        path = located_path(config.label_map, base) or ""
        changes["label_map"] = read_label_map(path, config.classes or [])
    return config.model_copy(update=changes)


def _truth(config: EvaluateConfig, base: Path) -> dict[str, Any]:
    truth = config.truth
    changes: dict[str, Any] = {"table": located_path(truth.table, base)}
    if truth.celeba is not None:
        changes["celeba"] = truth.celeba.model_copy(update={"folder": located_path(truth.celeba.folder, base)})
    if (annotated := truth.imagenet_x) is not None:
        paths = {name: located_path(getattr(annotated, name), base) for name in ("annotations", "folder")}
        changes["imagenet_x"] = annotated.model_copy(update=paths)
    return changes


def located_audit(fields: dict[str, Any], base: Path) -> dict[str, Any]:
    """Returns an audit's fields with the paths in them absolute. The fields are checked when the audit is read."""
    result = dict(fields)
    _locate(result, "language_model", located_spec, base)
    for section, located in (
        ("images", (("index", located_path), ("table", located_path), ("generator", located_spec))),
        ("verification", (("model", located_spec), ("calibration", located_path))),
    ):
        if isinstance(result.get(section), dict):
            result[section] = dict(result[section])
            for name, locate in located:
                _locate(result[section], name, locate, base)
    return result


def _locate(fields: dict[str, Any], name: str, locate: Any, base: Path) -> None:
    if isinstance(fields.get(name), str):
        fields[name] = locate(fields[name], base)
