"""Limits uploads: how many of one tenant a replica receives at the same time, and the threads that check them.

Received files are on disk before they count as stored, and unpacking an archive takes minutes. With the limits, a
tenant that sends many at once cannot fill the disk beyond its quota, or take the threads that other requests need.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from c2b_ray.endpoint.api.problems import ProblemError, retry_after

OF_A_TENANT = 4
_THREADS = 4
_WAIT_SECONDS = 5


class Places:
    """The places for uploads of one replica."""

    def __init__(self) -> None:
        self.threads = anyio.CapacityLimiter(_THREADS)
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, tenant_id: str) -> Iterator[None]:
        """Holds a place during the block. Raises 429 if the tenant already uses all of its places."""
        with self._lock:
            if self._taken[tenant_id] >= OF_A_TENANT:
                detail = f"{OF_A_TENANT} uploads of this tenant are in progress; wait for one of them to end"
                raise ProblemError(429, "too_many_uploads", detail, headers=retry_after(_WAIT_SECONDS))
            self._taken[tenant_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[tenant_id] -= 1
                if not self._taken[tenant_id]:
                    del self._taken[tenant_id]
