"""Measures seconds of CPU (user and system) of a command and of all processes that it starts, Ray's daemons included.

The command's environment holds a mark, which its processes inherit, whatever their parent becomes; for a process that
overwrote its environment, as Ray's workers do for their title, its parent's mark counts. /proc is read a few times a
second: the last moments of a process that ends are missed. The command's last line, as JSON, says when (`time.time()`)
each part of its work began and ended; `watched` returns the CPU of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import uuid
from bisect import bisect_left
from pathlib import Path

EVERY_S = 0.2
TICK = os.sysconf("SC_CLK_TCK")
MARK = "C2B_BENCH"

Stretch = dict[str, float]


def watched(command: list[str]) -> dict[str, Stretch]:
    """By name of stretch: its `seconds`, and the seconds of `cpu` of all processes in it."""
    mark = uuid.uuid4().hex
    watch = _Watch(mark)
    watch.start()
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, MARK: mark})
    watch.over.set()
    watch.join()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
    stretches = json.loads(done.stdout.splitlines()[-1])
    return {
        name: {"seconds": end - begin, "cpu": watch.spent(end) - watch.spent(begin)}
        for name, (begin, end) in stretches.items()
    }


def steady(work: dict[str, Stretch], images: int, what: str) -> float:
    """Of one image, in the images that the stretch `all` has beyond those of `few`."""
    return (work["all"][what] - work["few"][what]) / images


class _Watch(threading.Thread):
    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._mark = f"{MARK}={mark}".encode()
        self._marked: set[str] = set()
        self._ticks: dict[str, int] = {}
        self._times: list[float] = []
        self._spent: list[float] = []

    def run(self) -> None:
        while not self.over.wait(EVERY_S):
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    self._look(process)
            self._times.append(time.time())
            self._spent.append(sum(self._ticks.values()) / TICK)

    def _look(self, process: Path) -> None:
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            name = f"{process.name} {fields[19]}"  # numbers are used again: its start belongs to it
            known = name in self._ticks or fields[1] in self._marked
            if not known and self._mark not in (process / "environ").read_bytes():
                return
        except OSError:  # it has ended, or is another user's
            return
        self._marked.add(process.name)
        self._ticks[name] = int(fields[11]) + int(fields[12])

    def spent(self, when: float) -> float:
        return self._spent[min(bisect_left(self._times, when), len(self._spent) - 1)]
