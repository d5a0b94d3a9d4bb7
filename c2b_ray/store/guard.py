"""Asks, before a file of a run is committed, whether this process may still commit.

By default nothing is checked: a lock or a lease on the directory keeps a second writer out. The shared endpoint knows
more: a job that another runner has taken over must not write one file more, even where it wakes up after an hour. It
sets a check here for the whole process, all its threads. Workers of Ray are other processes, and do not check: they
write parts into the folder of their driver, which the next writer moves away (`parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Question = Callable[[str], None]
"""Takes the location that is about to be written or removed; raises where this process may not."""

_question: Question | None = None


def ask(location: str | Path) -> None:
    """Raises what the question raises; nothing where none is set."""
    if _question is not None:
        _question(str(location))


@contextmanager
def guarded(question: Question) -> Iterator[None]:
    """Has every commit of this process ask `question` first, while the body runs."""
    global _question
    before, _question = _question, question
    try:
        yield
    finally:
        _question = before
