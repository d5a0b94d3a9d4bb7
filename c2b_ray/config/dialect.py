"""Reads what files of another audit call differently: `labels` for `classes`, sections for `source: labelled`.

Each audit has one name for each, which its guide and schema show and its runs keep, so that a run's id does not depend
on how its file said it. A field under another audit's name is read and logged once. The shared endpoint takes the
audit's own names alone: it checks what was submitted field by field.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

_log = logging.getLogger(__name__)
_SOURCES: dict[str, dict[str, str]] = {"labelled": {}, "generate": {"model": "generator"}}
"""Sources that both ways know: the names of fields in a section of its own → beside `source`."""


Fields = dict[str, Any]


def audit_words(fields: Fields) -> Fields:
    """Returns the fields of an audit file in the words of `c2b audit`."""
    return _with_images(_renamed(fields, "labels", "classes"), _beside_source)


def search_words(fields: Fields) -> Fields:
    """Returns the fields of a file in the words of `c2b failures`."""
    return _with_images(_renamed(fields, "classes", "labels"), _in_sections)


def dataset_words(fields: Fields) -> Fields:
    """Returns the fields of a file in the words of `c2b dataset build`."""
    return _with_images(fields, _in_sections)


def _with_images(fields: Fields, read: Callable[[Any], Any]) -> Fields:
    return fields | {"images": read(fields["images"])} if "images" in fields else fields


def _renamed(fields: Fields, other: str, name: str) -> Fields:
    """Returns the fields with the key `other` as `name`, if only `other` is there; else unchanged."""
    if other not in fields or name in fields:
        return fields
    _say(f"`{other}` is read as `{name}`, which is its name in this file")
    return {name if key == other else key: value for key, value in fields.items()}


def _beside_source(images: Any) -> Any:
    """Returns `{labelled: {table: T}}` as `{source: labelled, table: T}`; what is not of this form unchanged."""
    if not isinstance(images, Mapping) or len(images) != 1:
        return images
    [(source, section)] = images.items()
    if source not in _SOURCES or not isinstance(section, Mapping) or "source" in section:
        return images
    _say(f"`images: {{{source}: …}}` is read as `images: {{source: {source}, …}}`, as this file says it")
    return {"source": source, **{_SOURCES[source].get(key, key): value for key, value in section.items()}}


def _in_sections(images: Any) -> Any:
    """Returns `{source: labelled, table: T}` as `{labelled: {table: T}}`; what is not of this form unchanged."""
    if not isinstance(images, Mapping) or not isinstance(source := images.get("source"), str) or source not in _SOURCES:
        return images
    _say(f"`images: {{source: {source}, …}}` is read as `images: {{{source}: …}}`, as this file says it")
    names = {given_name: own_name for own_name, given_name in _SOURCES[source].items()}
    return {source: {names.get(key, key): value for key, value in images.items() if key != "source"}}


@cache
def _say(message: str) -> None:
    """Logs the message, once in a process: a file is read several times."""
    _log.warning(message)
