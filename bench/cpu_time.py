"""Measures seconds of CPU (user and system) of a command and of all processes that it starts, Ray's daemons included.

The command's environment holds a mark, which all its processes inherit, even where their parent changes. A process that
overwrites its environment, as Ray's workers do to set their title, counts where its parent has the mark. The watcher
reads /proc five times a second, so it misses the last moments of a process that ends. The command's last line is JSON
and says when (`time.time()`) each part of its work began and ended; `watched` returns the CPU of each part.
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
    """Returns for each part of the work its `seconds` and the CPU seconds of all processes in it (`cpu`)."""
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
    """Returns what one image takes, from the `images` that the part `all` has more than the part `few`."""
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
            name = f"{process.name} {fields[19]}"  # Linux reuses ids, so the start time belongs to the name
            known = name in self._ticks or fields[1] in self._marked
            if not known and self._mark not in (process / "environ").read_bytes():
                return
        except OSError:  # the process has ended, or belongs to another user
            return
        self._marked.add(process.name)
        self._ticks[name] = int(fields[11]) + int(fields[12])

    def spent(self, when: float) -> float:
        return self._spent[min(bisect_left(self._times, when), len(self._spent) - 1)]
