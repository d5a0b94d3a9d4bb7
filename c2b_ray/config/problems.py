"""What pydantic says of a wrong audit file, as one error that names the field in the file's own words."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from c2b_ray.config.audit import AuditConfig, Budget
from c2b_ray.config.images import Columns, Images
from c2b_ray.config.verification import Verification
from c2b_ray.errors import ConfigError, nearest

_NESTED: dict[str, type[BaseModel]] = {
    "images": Images,
    "images.columns": Columns,
    "verification": Verification,
    "budget": Budget,
}


def first_problem(error: ValidationError, file: str | None) -> ConfigError:
    """Unknown keys first: a misspelt `task` is named as that, not as a `task` that is missing."""
    problems = error.errors()
    problem = next((found for found in problems if found["type"] == "extra_forbidden"), problems[0])
    if problem["type"] == "literal_error":  # one name or a list of them: of the two complaints, the nearer one
        same = [other for other in error.errors() if other["loc"][:2] == problem["loc"][:2]]
        problem = max(same, key=lambda other: len(other["loc"]))
    path = [
        str(part)
        for part in problem["loc"]
        if not str(part).startswith(("str", "list[", "dict[", "constrained", "literal["))
    ]
    field = ".".join(path)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        model = _NESTED.get(".".join(path[:-1]), AuditConfig)
        message = f"unknown key; {nearest(path[-1], model.model_fields)}"
    elif problem["type"] == "literal_error" and isinstance(problem["input"], str):
        message += f", not {problem['input'][:100]!r}"
    more = sum(other["loc"][:2] != problem["loc"][:2] for other in error.errors())
    return ConfigError(field, message + (f" (and {more} more)" if more else ""), location=file)
