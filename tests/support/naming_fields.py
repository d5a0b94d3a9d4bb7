"""All fields of a config, those of its sections included, with what their texts name; and fields with free text."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from c2b_ray.config.named import Name, Names, names_by_field


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, Names | None, Any]]:
    """Yields (field, what it names, type); the fields of a section follow its name: `methods.index`."""
    hints = typing.get_type_hints(model, include_extras=True)
    for name, names in names_by_field(model).items():
        sections = list(_sections(hints[name]))
        for section in sections:
            yield from fields_of(section, f"{above}{name}.")
        if not sections:
            yield f"{above}{name}", names, hints[name]


def is_free_text(hint: Any) -> bool:
    """Whether a type holds texts that are neither names of at most 200 letters nor choices."""
    if typing.get_origin(hint) is typing.Literal:
        return False
    if typing.get_origin(hint) is typing.Annotated:
        return hint.__metadata__ != Name.__metadata__ and is_free_text(hint.__origin__)
    return hint in (str, Any) or any(is_free_text(part) for part in typing.get_args(hint))


def _sections(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in typing.get_args(hint):
        yield from _sections(part)
