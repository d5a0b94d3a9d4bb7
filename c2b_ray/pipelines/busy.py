"""What a stage waits for while it runs: how busy are those that read, those that prepare, and those that answer.

A share of 1 for one of them, and less for the others, says what to get more of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Part = Literal["reading", "decoding", "model"]
LIMITS = 0.9
"""From this share of its time on, a part is what the others wait for."""


@dataclass(frozen=True)
class Busy:
    """Shares of a stage's time so far, 0 to 1: of the thread that reads rows, of the processes that decode, and of the
    threads that answer with the model, from the first prepared rows on."""

    reading: float
    decoding: float
    model: float

    def record(self) -> dict[str, float]:
        """Returns the entry in a run's manifest."""
        return {name: round(share, 3) for name, share in vars(self).items()}

    @property
    def limit(self) -> Part | None:
        """The part that the others wait for; None where none is busy all the time."""
        shares: dict[Part, float] = {"reading": self.reading, "decoding": self.decoding, "model": self.model}
        part = max(shares, key=lambda name: shares[name])
        return part if shares[part] >= LIMITS else None


class BusyClock:
    """Adds up the time that each part works, from any thread. `workers`: how many of each part work at once."""

    def __init__(self, decoders: int, threads: int) -> None:
        self._workers: dict[Part, int] = {"reading": 1, "decoding": decoders, "model": threads}
        self._spent: dict[Part, float] = dict.fromkeys(self._workers, 0.0)
        self._began: dict[Part, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def at_work(self, part: Part) -> Iterator[None]:
        began = time.monotonic()
        with self._lock:
            self._began.setdefault(part, began)
        try:
            yield
        finally:
            with self._lock:
                self._spent[part] += time.monotonic() - began

    def busy(self) -> Busy:
        now = time.monotonic()
        with self._lock:
            return Busy(**{part: self._share(part, now) for part in self._workers})

    def _share(self, part: Part, now: float) -> float:
        began = self._began.get(part, now)
        return min(1.0, self._spent[part] / max(self._workers[part] * (now - began), 1e-9))
