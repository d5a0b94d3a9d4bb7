"""Turns pydantic's errors about a file into one error that names the field as the file does."""

from __future__ import annotations

import re
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from c2b_ray.config.audit import AuditConfig
from c2b_ray.errors import ConfigError, nearest

_OF_UNION = re.compile(r"str|constrained-\w+|(?:list|dict|literal|union|function-[\w-]+)\[.*\]", re.DOTALL)
"""What pydantic puts into a field's path for the alternatives of its type, such as `str` and `list[str]`."""
_NAMED = re.compile(r"([a-z_]+): ")


def first_problem(error: ValidationError, file: str | None, root: type[BaseModel] = AuditConfig) -> ConfigError:
    """Returns the first problem, unknown keys first: a misspelt `task` is reported as such, not as a missing `task`.
    `root`: the file's model."""
    problems = error.errors()
    problem = next((other for other in problems if other["type"] == "extra_forbidden"), problems[0])
    if (
        problem["type"] == "literal_error"
    ):  # "one name" and "a list of names" both fail: report the one that fits the value better
        same = [other for other in error.errors() if other["loc"][:2] == problem["loc"][:2]]
        problem = max(same, key=lambda other: len(other["loc"]))
    path = [str(part) for part in problem["loc"] if not _OF_UNION.fullmatch(str(part))]
    message = problem["msg"].removeprefix("Value error, ")
    if (named := _NAMED.match(message)) and named[1] in section_at(root, path).model_fields:
        # A check of a whole section, about one of its fields.
        path, message = [*path, named[1]], message[named.end() :]
    field = ".".join(path)
    if problem["type"] == "extra_forbidden":
        message = f"unknown key; {nearest(path[-1], section_at(root, path[:-1]).model_fields)}"
    elif problem["type"] == "model_type":
        message = "expected a mapping of its fields"
    elif problem["type"] == "literal_error" and isinstance(problem["input"], str):
        message += f", not {problem['input'][:100]!r}"
    more = sum(other["loc"][:2] != problem["loc"][:2] for other in error.errors())
    return ConfigError(field, message + (f" (and {more} more)" if more else ""), location=file)


def section_at(root: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """Returns the model of the section at `path`, as far as the fields are known."""
    for name in path:
        annotation: Any = root.model_fields[name].annotation if name in root.model_fields else None
        sections = [kind for kind in (annotation, *get_args(annotation)) if _is_model(kind)]
        if not sections:
            break
        root = sections[0]
    return root


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
