"""A short-lived cache of tenants' rows in the ledger, which each request would otherwise read again.

It caches tenants and their quotas, never their use.
"""

from __future__ import annotations

import threading
import time

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import tenants
from c2b_ray.endpoint.ledger.database import Database

OPERATORS = "operators"
"""The tenant whose admin keys administer the whole endpoint; other admin keys administer only their tenant."""
_MOST = 10_000


class Remembered:
    """The cache. It is safe to use from several threads."""

    def __init__(self, db: Database, defaults: Quotas, seconds: float) -> None:
        self._db, self._defaults, self._seconds = db, defaults, seconds
        self._known: dict[str, tuple[Quotas, bool, float]] = {}
        self._renewing: dict[str, float] = {}
        self._lock = threading.Lock()

    def limits(self, tenant_id: str) -> Quotas:
        return self._of(tenant_id)[0]

    def operates(self, tenant_id: str) -> bool:
        """Returns whether the tenant is that of the operators."""
        return self._of(tenant_id)[1]

    def forget(self) -> None:
        with self._lock:
            self._known.clear()
            self._renewing.clear()

    def _renews(self, tenant_id: str, until: float, now: float) -> bool:
        """Returns whether this thread should read the row again. One thread does so in the second half of the cached
        time; otherwise all threads would at its end."""
        if until - now > self._seconds / 2:
            return False
        with self._lock:
            first = self._renewing.get(tenant_id) != until
            self._renewing[tenant_id] = until
        return first

    def _of(self, tenant_id: str) -> tuple[Quotas, bool, float]:
        known = self._known.get(tenant_id)
        now = time.monotonic()
        if known is None or now >= known[2] or self._renews(tenant_id, known[2], now):
            tenant = tenants.get(self._db, tenant_id)
            limits = self._defaults if tenant is None else tenant.limits(self._defaults)
            known = limits, tenant is not None and tenant.name == OPERATORS, now + self._seconds
            with self._lock:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[tenant_id] = known
        return known
