"""What a listener is told: never less than before, never more than there is, and never the end of another thread."""

import pytest

from c2b_ray.engine.progress import Progress, ProgressCounter


def test_rows_that_were_answered_are_told_before_they_are_written_and_once():
    seen: list[Progress] = []
    teller = ProgressCounter(seen.append, resumed=7, total=100)
    teller.tell()
    teller.answered(0, 30)
    teller.answered(0, 30)  # nothing new: nothing to tell
    teller.wrote(32, 2)
    teller.answered(32, 10)
    teller.answered(32, 4)  # a process has died, and with it six rows that it had answered
    teller.answered(32, 90)  # counted while a part was on its way
    teller.wrote(61, 0)
    assert [(p.rows, p.errors, p.answered) for p in seen] == [
        (0, 0, 0), (0, 0, 30), (32, 2, 32), (32, 2, 42), (32, 2, 93), (93, 2, 93),
    ]  # fmt: skip
    assert {p.resumed for p in seen} == {7}
    assert seen[-1].done == seen[-1].total == 100
    assert seen[1].rows_per_second > 0


def test_what_a_listener_raises_in_another_thread_ends_the_stage_at_the_next_part():
    def listener(progress: Progress) -> None:
        if progress.answered == 5:
            raise KeyError("a bug of the listener")

    teller = ProgressCounter(listener, resumed=0, total=None)
    teller.answered(0, 5)
    teller.answered(0, 6)
    with pytest.raises(KeyError, match="a bug of the listener"):
        teller.wrote(8, 0)
