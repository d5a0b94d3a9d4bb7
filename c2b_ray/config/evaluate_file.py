"""Reads and checks an evaluation file once, at the edge; its paths become absolute, relative to that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.evaluate import EvaluateConfig
from c2b_ray.config.named import Names, names_by_field
from c2b_ray.config.problems import section_at
from c2b_ray.config.reading import ConfigFile, located_path, located_text
from c2b_ray.filesystems.documents import FileOrFields

_FILE = ConfigFile(EvaluateConfig, "c2b evaluate", classes="classes")


def read_evaluate_config(source: FileOrFields | EvaluateConfig) -> EvaluateConfig:
    """Returns the config of an evaluation, the paths of its methods absolute too; see `ConfigFile.read`."""
    config = _FILE.read(source)
    base = Path(source).parent if isinstance(source, str | Path) else Path.cwd()
    methods = {
        name: located_path(method, base) if isinstance(method, str) else located_audit(method, base)
        for name, method in config.methods.items()
    }
    return config.model_copy(update={"methods": methods})


def located_audit(fields: dict[str, Any], base: Path) -> dict[str, Any]:
    """Returns an audit's fields with the paths in them absolute. The fields are checked when the audit is read."""
    return _located(fields, AuditConfig, base)


def _located(fields: dict[str, Any], section: type[BaseModel], base: Path) -> dict[str, Any]:
    known = names_by_field(section)
    result = dict(fields)
    for name, value in fields.items():
        names = known.get(name, Names.NOTHING)
        if isinstance(value, str) and names is not None and names is not Names.NOTHING:
            result[name] = located_text(names, value, base)
        elif isinstance(value, dict) and names is None:
            result[name] = _located(value, section_at(section, [name]), base)
    return result
