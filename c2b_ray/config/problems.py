"""Turns pydantic's errors about a file into one error that names the fields as the file does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from c2b_ray.config.audit import AuditConfig
from c2b_ray.errors import ConfigError, nearest

_OF_UNION = re.compile(r"str|constrained-\w+|(?:list|dict|literal|union|function-[\w-]+)\[.*\]", re.DOTALL)
"""What pydantic puts into a field's path for the alternatives of its type, such as `str` and `list[str]`."""
_NAMED = re.compile(r"([a-z_]+): ")
MOST_TOLD = 20
Problem = Mapping[str, Any]
"""One of the problems that `ValidationError.errors` lists."""


def first_problem(error: ValidationError, file: str | None, root: type[BaseModel] = AuditConfig) -> ConfigError:
    """Returns the first problem, unknown keys first: a misspelt `task` is reported as such, not as a missing `task`.
    The others follow in its message, a line each. `root`: the file's model."""
    unknown_first = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problems = [_in_words(group, root) for group in _by_field(unknown_first)]
    (field, message), other_problems = problems[0], problems[1 : MOST_TOLD + 1]
    lines = [message, *(f"{name}: {words}" for name, words in other_problems)]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    return ConfigError(field, "\n".join(lines), location=file)


def _by_field(problems: Sequence[Problem]) -> list[list[Problem]]:
    """Returns the problems of each field, in their order. Where a field may be "one name" or "a list of names", both
    fail: they are one field's, as is a problem of a part of the value."""
    groups: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        path = tuple(_path(problem))
        path_of_group = next((group for group in groups if group[: len(path)] == path[: len(group)]), path)
        groups.setdefault(path_of_group, []).append(problem)
    return list(groups.values())


def _in_words(group: Sequence[Problem], root: type[BaseModel]) -> tuple[str, str]:
    """Returns the field of a group of problems and what is wrong with it."""
    problem = group[0]
    if problem["type"] == "literal_error":  # the alternative that fits the value better is further inside
        problem = max(group, key=lambda item: len(item["loc"]))
    path, message = _path(problem), problem["msg"].removeprefix("Value error, ")
    if (match := _NAMED.match(message)) and match[1] in section_at(root, path).model_fields:
        # A check of a whole section, about one of its fields.
        path, message = [*path, match[1]], message[match.end() :]
    if problem["type"] == "extra_forbidden":
        message = f"unknown key; {nearest(path[-1], section_at(root, path[:-1]).model_fields)}"
    elif problem["type"] == "model_type":
        message = "expected a mapping of its fields"
    elif problem["type"] == "literal_error" and isinstance(problem["input"], str):
        message += f", not {problem['input'][:100]!r}"
    return ".".join(path), message


def _path(problem: Problem) -> list[str]:
    return [str(part) for part in problem["loc"] if not _OF_UNION.fullmatch(str(part))]


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
