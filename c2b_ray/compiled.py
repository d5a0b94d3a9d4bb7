"""Functions of arrays that numba compiles, once per machine where the result can be cached, else once per process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(signature: Any = None) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator that compiles a function for `signature`, or for the types that it is called with. Calls of
    it do not hold Python's lock."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:  # neither the package's folder nor the user's own can be written to
            return njit(signature, nogil=True)(function)

    return decorate
