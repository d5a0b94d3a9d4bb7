"""Requests to an object store that is busy, or whose connections break, sent again until `C2B_S3_TIMEOUT` has passed.

The clients' own retries end after two or three seconds: a store that asks a thousand writers to slow down says so for
longer. It knows which refusals pass by themselves, not what is read or written; the call must be one that can be
repeated, as a read, or a put of the same bytes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from c2b_ray.filesystems import passes, s3

T = TypeVar("T")
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0


def patiently(location: str | Path, call: Callable[[], T], reached: bool = False) -> T:
    """What `call` returns, called again while the S3 store of `location` is busy; its last error where it stays so.

    `reached`: the store has answered before, so that one that cannot be reached will be back. Without it, a wrong
    endpoint is an error at once.
    """
    if not str(location).startswith(s3.SCHEME):
        return call()
    deadline = time.monotonic() + s3.timeout()
    pause = FIRST_PAUSE_S
    refusals: tuple[type[Exception], ...] = (OSError, *s3.refusals())
    while True:
        try:
            return call()
        except refusals as error:
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 — writers that were refused together come apart
            if not passes(error, reached) or time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE_S)
