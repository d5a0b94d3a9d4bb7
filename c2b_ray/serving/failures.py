"""Carries our errors as data inside a text: Serve passes on only the traceback of what a replica's constructor raises.

It knows the exception tree and JSON, and nothing of models or of Serve.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from c2b_ray.errors import C2BError, ServiceError, again

_MARK = "c2b-ray error as data: "


class CannotStart(Exception):
    """Raised by a replica that cannot start; its message holds the cause as data."""


@contextmanager
def carried_in_text() -> Iterator[None]:
    """Wraps a replica's constructor: an error of ours leaves it in a form that `from_text` reads back whole."""
    try:
        yield
    except C2BError as error:
        raise CannotStart(to_text(error)) from error


def to_text(error: C2BError) -> str:
    """Returns one line: class, message and every field of the error."""
    return _MARK + json.dumps({"kind": type(error).__name__, "message": str(error), "fields": vars(error)}, default=str)


def from_text(text: str) -> C2BError | None:
    """Returns the last error that `to_text` wrote somewhere in `text`, with all its fields.

    Returns None where there is none, or where it was cut off. An error of a class that is not known here becomes a
    ServiceError.
    """
    _, mark, rest = text.rpartition(_MARK)
    if not mark:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    return again(_kinds().get(data["kind"], ServiceError), data["message"], data["fields"])


def _kinds() -> dict[str, type[C2BError]]:
    kinds: dict[str, type[C2BError]] = {}
    pending: list[type[C2BError]] = [C2BError]
    while pending:
        kind = pending.pop()
        kinds[kind.__name__] = kind
        pending += kind.__subclasses__()
    return kinds
