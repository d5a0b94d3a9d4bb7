"""Repeats requests to an object store that is busy, or whose connections break, until `C2B_S3_TIMEOUT` has passed.

The clients' own retries end after two or three seconds; a store that asks a thousand writers to slow down needs longer.
This module knows which refusals may pass, not what is read or written. The call must be repeatable, such as a read, or
a put of the same bytes.
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
    """Returns the result of `call`, which is repeated while the S3 store of `location` is busy. Raises its last error.

    `reached`: the store has answered before, so failures to connect are repeated, too. Otherwise they are errors at
    once, because the endpoint may be wrong.
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
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 — writers refused together retry apart
            if not passes(error, reached) or time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE_S)
