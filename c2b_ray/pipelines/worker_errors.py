"""Carries exceptions from Ray Data's workers to the driver, as they were raised.

It knows how Ray wraps exceptions, not what is raised. Ray 2.60 adds advice on retries to the text of an exception from
a map function, and replaces one whose constructor takes more than its message by a wall of text. So the exception
travels as bytes inside `Carried`, and the driver unpacks it.
"""

from __future__ import annotations

import functools
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import ray.exceptions

from c2b_ray.errors import C2BError, ServiceError

P = ParamSpec("P")
T = TypeVar("T")


class Carried(Exception):
    """Carries a pickled exception. `advice`: what Ray appends to the arguments of an exception that it passes on."""

    def __init__(self, payload: bytes, *advice: object) -> None:
        super().__init__(payload, *advice)
        self.payload = payload


def carried(function: Callable[P, T]) -> Callable[P, T]:
    """Wraps `function` so that its exceptions reach the driver as they were raised."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise Carried(_packed(error)) from None

    return call


def carried_rows(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Wraps a generator function as `carried` wraps a function."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except Exception as error:
            raise Carried(_packed(error)) from None

    return call


def as_raised(error: ray.exceptions.RayError) -> Exception:
    """Returns the exception that a worker raised; a ServiceError for what happened to Ray itself."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Carried):
        return _unpacked(cause.payload)
    if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):  # of the source's own workers
        cause.add_note(str(error))
        return cause
    first_line = str(error).strip().partition("\n")[0]
    return ServiceError(f"Ray stopped the stage: {first_line}; what is written is kept, run again to go on")


def _packed(error: Exception) -> bytes:
    """Pickles type, arguments and attributes, which works also for exceptions whose constructor takes other
    arguments."""
    trace = "".join(traceback.format_exception(error))
    if not isinstance(error, C2BError):  # a bug: where it was raised is what is wanted
        error.add_note("In a worker of Ray:\n" + trace)
    try:
        data = pickle.dumps((type(error), error.args, vars(error)))
        _unpacked(data)
    except Exception:  # of a class, or with a value, that cannot leave its process
        return pickle.dumps((RuntimeError, (trace,), {}))
    return data


def _unpacked(data: bytes) -> Exception:
    kind, args, attributes = pickle.loads(data)  # noqa: S301  # written by our own worker
    error: Exception = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(attributes)
    return error
