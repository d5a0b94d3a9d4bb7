"""Counts the work of a build live, in each process that works on it. It knows only names and numbers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

DRAWS, KEPT, DROPPED = "draws", "kept", "dropped"
IMAGES, SECONDS = "images", "seconds"
BECAUSE = "because"
"""Names of counters: alone, or followed by a colon and what they count, such as `dropped:not_failed` or
`images:generate`. After `because:` stand a few reasons why there was no image."""


class Counters:
    """Sums by name. Several threads may add."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, sums: Mapping[str, float]) -> None:
        with self._lock:
            for name, value in sums.items():
                self._sums[name] += value  # type: ignore[assignment]

    def snapshot(self) -> dict[str, float]:
        with self._lock:
            return dict(self._sums)
