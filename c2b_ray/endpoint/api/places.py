"""Places for uploads: how many of one tenant a replica takes at once, and the threads that look into them.

What arrives lies on the disk before it counts as stored, and an archive takes minutes to unpack: a tenant that sends
many at once fills no disk with what its quota would refuse, and takes no thread that others' requests wait for.
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
    """Of one replica."""

    def __init__(self) -> None:
        self.threads = anyio.CapacityLimiter(_THREADS)
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, tenant_id: str) -> Iterator[None]:
        """Holds a place while the body runs. 429 where the tenant has all of its own."""
        with self._lock:
            if self._taken[tenant_id] >= OF_A_TENANT:
                detail = f"{OF_A_TENANT} uploads of this tenant arrive here already; send the next one after them"
                raise ProblemError(429, "too_many_uploads", detail, headers=retry_after(_WAIT_SECONDS))
            self._taken[tenant_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[tenant_id] -= 1
                if not self._taken[tenant_id]:
                    del self._taken[tenant_id]
