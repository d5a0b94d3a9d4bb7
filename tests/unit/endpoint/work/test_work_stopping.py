"""Orders to a job's process: obeyed at the next batch, and a commit that is granted."""

import threading

import pytest

from c2b_ray.endpoint.ledger.database import steady_now
from c2b_ray.endpoint.work.child import WorkLimit, WorkStopped


def test_an_order_ends_the_work_at_the_next_batch():
    leash = WorkLimit(steady_now() + 60, lambda message: None)
    leash.check()
    leash.order("yielded")
    with pytest.raises(WorkStopped) as stopped:
        leash.check()
    assert stopped.value.how == "yielded"


def test_a_cancellation_takes_the_place_of_a_yield_and_not_the_reverse():
    leash = WorkLimit(steady_now() + 60, lambda message: None)
    leash.order("yielded")
    leash.order("cancelled")
    leash.order("yielded")
    with pytest.raises(WorkStopped) as stopped:
        leash.check()
    assert stopped.value.how == "cancelled"


def test_no_except_clause_of_a_library_takes_it_for_an_error():
    assert not issubclass(WorkStopped, Exception)


def test_a_commit_waits_for_its_own_answer():
    asked = []
    leash = WorkLimit(steady_now() + 60, asked.append)
    threads = [threading.Thread(target=leash.ask, args=("x",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(asked) < 3:
        pass
    leash.answer(asked[1].number, granted=True)
    deadline = steady_now() + 5
    while sum(thread.is_alive() for thread in threads) > 2 and steady_now() < deadline:
        pass
    waiting = [thread.is_alive() for thread in threads]
    for message in asked:
        leash.answer(message.number, granted=True)
    for thread in threads:
        thread.join(5)
    assert sum(waiting) == 2
    assert not any(thread.is_alive() for thread in threads)
