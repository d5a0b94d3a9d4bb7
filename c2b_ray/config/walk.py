"""Walks the fields of a config as they were written, and replaces those that name a model or a file.

Unlike `named.replaced_texts`, which changes a config, it keeps the form in which fields were written: a config that is
sent to an endpoint, or stored there, says nothing but what its author said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.named import Names, names_by_field
from c2b_ray.config.problems import first_problem
from c2b_ray.errors import ConfigError

FILLED_IN = {"classifier": "world:clip"}
"""The fields of an audit that an evaluation fills in, with placeholders for the check of a method's fields."""
Leaf = Callable[[Names, Any, str], Any]


def replaced(config: BaseModel, raw: Mapping[str, Any], leaf: Leaf) -> dict[str, Any]:
    """Returns `raw` with the value of each field that names something replaced by `leaf(names, value, field)`.

    `config` is `raw` after validation; values are taken from it, because validation strips spaces. Raises ConfigError
    for a field whose type does not say what it names.
    """
    return _section(config, raw, "", leaf)


def _section(config: BaseModel, raw: Mapping[str, Any], above: str, leaf: Leaf) -> dict[str, Any]:
    """Does `replaced` for a section. `above`: the prefix of its fields' names in messages."""
    known = names_by_field(type(config))
    result: dict[str, Any] = {}
    for name, written in raw.items():
        shown, value, names = f"{above}{name}", getattr(config, name), known[name]
        if isinstance(value, BaseModel):
            inner = written.model_dump(exclude_unset=True) if isinstance(written, BaseModel) else written
            result[name] = _section(value, inner, f"{shown}.", leaf)
        elif isinstance(value, dict) and _has_sections(value.values()):
            result[name] = {key: _inner(one, f"{shown}.{key}", leaf) for key, one in value.items()}
        elif isinstance(value, list) and _has_sections(value):
            result[name] = [_inner(one, f"{shown}.{at}", leaf) for at, one in enumerate(value)]
        elif value is None or value == [] or value == {}:  # an omitted section, for one
            result[name] = written
        elif names is None:
            raise ConfigError(shown, "this endpoint does not accept the field, because its meaning is not classified")
        elif names is Names.NOTHING:
            result[name] = written
        elif names is Names.METHODS:
            result[name] = {key: _method(one, f"{shown}.{key}", leaf) for key, one in value.items()}
        else:
            result[name] = leaf(names, value, shown)
    return result


def _has_sections(values: Iterable[Any]) -> bool:
    return any(isinstance(one, BaseModel) for one in values)


def _inner(config: Any, shown: str, leaf: Leaf) -> dict[str, Any]:
    """Returns one of several sections, as validated, because the submitted form may be shorter."""
    if not isinstance(config, BaseModel):
        raise ConfigError(shown, "expected a section, like the others in this list or mapping")
    return _section(config, config.model_dump(exclude_unset=True), f"{shown}.", leaf)


def _method(written: Any, shown: str, leaf: Leaf) -> Any:
    """Returns a method of an evaluation: a finished audit, or an audit's fields.

    The fields that the evaluation fills in have placeholder values while the others are checked.
    """
    if not isinstance(written, Mapping):
        return leaf(Names.RUN, written, shown)
    if taken := [name for name in FILLED_IN if name in written]:
        raise ConfigError(shown, f"{', '.join(taken)} is set by the evaluation; remove it here")
    try:
        audit = AuditConfig.model_validate({"task": "-", "classes": ["-"], **written, **FILLED_IN})
    except ValidationError as error:
        problem = first_problem(error, None, AuditConfig)
        message = str(problem).removeprefix(f"{problem.field}: " if problem.field else "")
        raise ConfigError(f"{shown}.{problem.field}".rstrip("."), message) from error
    return _section(audit, written, f"{shown}.", leaf)
