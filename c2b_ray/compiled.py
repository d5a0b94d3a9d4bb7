"""Functions of arrays that numba compiles, once per machine where the result can be cached, else once per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from numba import njit

_CACHE = Path(__file__).parent / "__pycache__"
_LONGEST_COMPILATION_S = 60.0


def compiled(signature: Any = None) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator that compiles a function for `signature`, or for the types that it is called with. Calls of
    it do not hold Python's lock."""

    def decorate(function: Callable[..., Any]) -> Any:
        with _one_process_at_a_time():
            try:
                return njit(signature, cache=True, nogil=True)(function)
            except RuntimeError:  # neither the package's folder nor the user's own can be written to
                return njit(signature, nogil=True)(function)

    return decorate


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    """Lets processes that start together wait for the first one's result rather than all compile the same."""
    try:
        _CACHE.mkdir(exist_ok=True)
        lock = FileLock(_CACHE / "compiled.lock", timeout=_LONGEST_COMPILATION_S)
        lock.acquire()
    except (OSError, Timeout):  # a folder that cannot be written to, or a process that hangs
        yield
        return
    try:
        yield
    finally:
        lock.release()
