"""What Prometheus reads of a stage on Ray while it runs: its rows, and how busy those are that work for it.

The driver of the run sets them, for all processes of the stage together; Ray exports them beside its own metrics. Their
names are a contract with deployments/monitoring, which lists them as Ray exports them: prefixed with `ray_`. It knows
numbers, and nothing of the stage.
"""

from __future__ import annotations

from functools import cache

from ray.util.metrics import Counter, Gauge

from c2b_ray.engine.progress import BusyShares, Part

NAMES = ("c2b_stage_rows", "c2b_stage_busy")


class StageMeters:
    """The metrics of one stage."""

    def __init__(self, stage: str) -> None:
        self._stage, self._rows = stage, 0
        self._shown: set[Part] = set()

    def show(self, rows: int, busy: BusyShares | None) -> None:
        """Shows the rows answered so far, and shares of 0 to 1."""
        if rows > self._rows:  # never less: rows that a dead process had answered are answered again
            _rows().inc(rows - self._rows, {"stage": self._stage})
            self._rows = rows
        for part, share in (busy.shares if busy is not None else {}).items():
            _busy().set(share, {"stage": self._stage, "part": part})
            self._shown.add(part)

    def end(self, rows: int) -> None:
        """Shows all rows, and that nobody works any more."""
        self.show(rows, None)
        for part in self._shown:
            _busy().set(0.0, {"stage": self._stage, "part": part})


@cache
def _rows() -> Counter:
    return Counter(NAMES[0], "Rows that a stage has answered.", ("stage",))


@cache
def _busy() -> Gauge:
    words = "Share of their time in which those work that read, decode and answer for a stage, and its GPU."
    return Gauge(NAMES[1], words, ("stage", "part"))
