"""Clocks: one that cannot be set, and a watch on one that can, such as the database's.

Leases are written by the database's clock, which all processes share. Where somebody sets it, leases of living holders
seem to have passed; a `ClockWatch` tells for how long it has run like the clock that cannot be set. It knows no lease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_EVER_S = 1e12
STEP_S = 1.0
"""Seconds by which a clock that was not set may differ from one reading to the next."""


def now() -> float:
    """Returns the seconds of a clock that cannot be set and that runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockWatch:
    """Watches a clock that may be set. It is safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: tuple[float, float] | None = None
        self._set_at = float("-inf")

    def read(self, clock: Callable[[], float]) -> float:
        """Reads the clock and returns its seconds. A reading that takes long says little, and is not compared."""
        read_from = now()
        seconds = clock()
        read_until = now()
        if read_until - read_from <= STEP_S:
            with self._lock:
                earlier_ahead, self._ahead = self._ahead, (seconds - read_until, seconds - read_from)
                low, high = self._ahead
                if earlier_ahead is not None and (low > earlier_ahead[1] + STEP_S or high < earlier_ahead[0] - STEP_S):
                    self._set_at = read_until
        return seconds

    @property
    def steady_s(self) -> float:
        """Seconds since the clock was last seen to have been set; thousands of years if it never was."""
        return min(_EVER_S, now() - self._set_at)
