"""Lists the fields of a config that can name something: a spec, a path, or a text of unlimited length."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from c2b_ray.config.clip_bias import Path as PathText
from c2b_ray.config.strict import SpecText


def naming(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yields the fields' names, with their sections': `methods.index`."""
    for name, hint in typing.get_type_hints(model, include_extras=True).items():
        if name in model.model_fields:
            for section in _sections(hint):
                yield from naming(section, f"{above}{name}.")
            if _names_something(hint):
                yield f"{above}{name}"


def _sections(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in typing.get_args(hint):
        yield from _sections(part)


def _names_something(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return False
    if typing.get_origin(hint) is typing.Annotated:
        marks = [*SpecText.__metadata__, *PathText.__metadata__]
        marked = any(mark is of for mark in hint.__metadata__ for of in marks)
        return marked or (hint.__origin__ is not str and _names_something(hint.__origin__))
    return hint is str or any(_names_something(part) for part in typing.get_args(hint))
