"""A watch tells whether a clock was set, however long its readings take."""

from __future__ import annotations

import pytest

from c2b_ray.endpoint.ledger import database
from c2b_ray.endpoint.ledger.database import ClockWatch


@pytest.fixture
def time(monkeypatch):
    """The seconds of the clock that cannot be set."""
    passed = [1000.0]
    monkeypatch.setattr(database, "steady_now", lambda: passed[0])
    return passed


def read(watch, time, ahead, seconds=0.0):
    """Reads a clock that is `ahead` of the other; the reading takes `seconds`, half of them on the way back."""

    def clock():
        time[0] += seconds / 2
        answer = time[0] + ahead
        time[0] += seconds / 2
        return answer

    return watch.read(clock)


def test_a_clock_that_runs_was_never_set(time):
    watch = ClockWatch()
    assert watch.steady_s > 1e9
    for _ in range(5):
        time[0] += 8 * 3600  # a night in which the machine sleeps, too
        assert read(watch, time, 500.0) == time[0] + 500
    assert watch.steady_s > 1e9


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 5.0])
def test_a_clock_that_was_set_is_steady_since_then(time, jump):
    watch = ClockWatch()
    read(watch, time, 0.0)
    time[0] += 1
    read(watch, time, jump)
    assert watch.steady_s == 0
    time[0] += 30
    read(watch, time, jump)
    assert watch.steady_s == 30


def test_readings_that_take_long_are_no_jumps(time):
    watch = ClockWatch()
    for seconds in (0.0, 0.9, 40.0, 0.0, 0.9):
        read(watch, time, 0.0, seconds)
    assert watch.steady_s > 1e9
