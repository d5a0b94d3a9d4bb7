"""The sums of levels over strips of a picture, compiled. Compiling takes a second, once per machine where the result
can be cached, else once per process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

_LEVELS = types.Array(types.uint8, 2, "C", readonly=True)
_SHARES = types.Array(types.int64, 2, "C", readonly=True)


def _compiled(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:  # neither the package's folder nor the user's own can be written to
            return njit(signature, nogil=True)(function)

    return decorate


@_compiled((_LEVELS, _SHARES))
def strip_sums(lines: Any, shares: Any) -> Any:
    """Returns the sums of lines of levels, uint8 (lines, levels), by whole-number shares (strips, lines): int64
    (strips, levels)."""
    strips = np.zeros((shares.shape[0], lines.shape[1]), np.int64)
    total = np.empty(lines.shape[1], np.int32)
    for strip in range(shares.shape[0]):
        total[:] = 0
        for row in range(lines.shape[0]):
            share = np.int32(shares[strip, row])
            if share == 0:
                continue
            line = lines[row]
            for at in range(len(total)):
                total[at] += np.int32(line[at]) * share
        for at in range(len(total)):
            strips[strip, at] = total[at]
    return strips
