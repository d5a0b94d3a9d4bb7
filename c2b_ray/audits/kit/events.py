"""What an audit tells while it runs: which step, how far, how long. It knows nothing of who listens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from c2b_ray.pipelines.progress import Progress


@dataclass(frozen=True)
class Event:
    """A step begins, moves, or ends. `seconds` since it began; `progress` where the step counts rows.

    A `warning` is no step: `step` says what people should know of the result.
    """

    step: str
    kind: Literal["begin", "progress", "end", "warning"]
    seconds: float = 0.0
    progress: Progress | None = None


Listener = Callable[[Event], None]


class Steps:
    """Times the steps of an audit and tells a listener."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[Progress], None]]:
        """Runs the body as step `name`; yields the callback that takes the body's progress."""
        began = time.monotonic()
        self._tell(Event(name, "begin"))
        yield lambda progress: self._tell(Event(name, "progress", time.monotonic() - began, progress))
        took = time.monotonic() - began
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)  # a step may come again
        self._tell(Event(name, "end", round(took, 3)))

    def warn(self, what: str) -> None:
        self._tell(Event(what, "warning"))

    def _tell(self, event: Event) -> None:
        if self._listener is not None:
            self._listener(event)
