"""The common rules of every section of a config file: no unknown keys, no `true` for a number, distinct names.

It knows no field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from c2b_ray.errors import nearest
from c2b_ray.names import folded, normalise


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses `true`, which pydantic would convert to 1, in all fields but those that may be a bool."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            raise ValueError(f"{str(value).lower()} is neither a number nor a text; quote it where a text is meant")
        return value


ALL = "all"
NAMES_OR_ALL = {"anyOf": [{"const": ALL}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
"""The JSON schema of a list of names, or the word for all there are."""


def names_or_all(given: Any, what: str) -> Any:
    """Returns a list of names as it is, and the word `all` as an empty list. Raises ValueError for an empty list and
    another word. `what`: one of the names, for the error."""
    if given == []:
        raise ValueError(f"name at least one {what}, or `{ALL}`")
    if isinstance(given, str) and given != ALL:
        raise ValueError(f"expected a list of names, or `{ALL}`, not {given[:100]!r}")
    return [] if given == ALL else given


def known_columns(columns: Mapping[str, str] | None, known: Sequence[str]) -> None:
    """Refuses a mapping of columns that names one which no table has; the message offers the nearest."""
    if unknown := [name for name in columns or () if name not in known]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(known)}; {nearest(unknown[0], known)}")


def distinct(names: list[str], noun: str, normal_form: Callable[[str], str] = normalise) -> None:
    first_spelling: dict[str, str] = {}
    for name in names:
        if normal_form(name) in first_spelling:
            earlier = first_spelling[normal_form(name)]
            hint = "" if folded(earlier) == folded(name) else f": {earlier!r} is compared as the same name"
            raise ValueError(f"{noun} {name!r} is given twice{hint}")
        first_spelling[normal_form(name)] = name
