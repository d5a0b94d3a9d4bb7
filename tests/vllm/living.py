"""Which processes live below another, and what they call themselves."""

from __future__ import annotations

import time
from pathlib import Path


def descendants(parent: int) -> dict[int, str]:
    """The living processes below one, by id, each with what it calls itself."""
    children = [
        int(pid) for line in Path(f"/proc/{parent}/task").glob("*/children") for pid in line.read_text().split()
    ]
    return {pid: _name(pid) for pid in children} | {k: v for pid in children for k, v in descendants(pid).items()}


def still_there(processes: dict[int, str], wait_s: float = 20) -> list[str]:
    """The names of those that live after at most so many seconds, of which it waits as few as it can."""
    deadline = time.monotonic() + wait_s
    while living := [name for pid, name in processes.items() if name and _name(pid) == name]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return living


def _name(pid: int) -> str:
    """Nothing for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
