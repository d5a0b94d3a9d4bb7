"""Threads that read files: they are used again, end when nothing is read, and one that hangs holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from c2b_ray.errors import SourceError
from c2b_ray.storage import folders
from c2b_ray.storage.folders import Readers


def reading() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name == "read"}


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_batches_are_read_by_one_thread_which_ends_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "SLOW_S", 60.0)  # a busy machine is no slow disk
    monkeypatch.setattr(folders, "IDLE_S", 60.0)
    before, readers, by = reading(), Readers(), set()
    for start in range(0, 100, 10):
        items = list(range(start, start + 10))
        assert readers.map(lambda item: (by.add(threading.get_ident()), -item)[1], items, str) == [-i for i in items]
        wait_for(lambda: len(readers._idle) == 1)
    assert len(by) == 1
    monkeypatch.setattr(folders, "IDLE_S", 0.01)
    assert readers.map(abs, [-2], str) == [2]  # by the same thread, which then waits anew
    wait_for(lambda: not by & reading())
    assert not readers._idle
    assert readers.map(abs, [-1], str) == [1]  # another thread begins
    wait_for(lambda: reading() <= before)


def test_threads_that_share_it_get_their_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "IDLE_S", 0.001)  # threads end while others ask for them
    readers = Readers()

    def ask(first: int) -> list[int]:
        time.sleep(first % 3 / 1000)
        return readers.map(lambda item: item * item, range(first, first + 5), str)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(400)))
    assert found == [[item * item for item in range(first, first + 5)] for first in range(400)]


def test_a_thread_that_hangs_stays_away_and_the_next_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C2B_READ_TIMEOUT", "1")
    readers, back = Readers(), threading.Event()
    with pytest.raises(SourceError, match=r"^away: no answer for 1 seconds"):
        readers.map(lambda name: back.wait(30), ["away"], str)
    assert readers.map(len, ["here", "there"], str) == [4, 5]
    back.set()


def test_an_exception_ends_the_batch_and_not_the_thread() -> None:
    readers = Readers()
    with pytest.raises(ZeroDivisionError):
        readers.map(lambda item: 1 // item, [1, 0, 1], str)
    assert readers.map(lambda item: 1 // item, [1], str) == [1]
