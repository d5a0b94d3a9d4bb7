"""Checks, before a file of a run is committed, whether this process may still commit.

By default nothing is checked: a lock or a lease on the directory keeps other writers out. The shared endpoint knows
more: a process whose job another runner has taken over must not write another file, even if it wakes up after an hour.
It sets a check here for all threads of the process. Ray's workers are other processes and do not check: they write
parts into the folder of their driver, which the next writer moves away (`parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Question = Callable[[str], None]
"""A check of a location that is about to be written or removed; raises if this process may not."""

_question: Question | None = None


def ask(location: str | Path) -> None:
    """Calls the check, if there is one, and raises what it raises."""
    if _question is not None:
        _question(str(location))


@contextmanager
def guarded(question: Question) -> Iterator[None]:
    """Makes every commit of this process call `question` first, during the block."""
    global _question
    before, _question = _question, question
    try:
        yield
    finally:
        _question = before
