"""The threads of a replica, on an event loop of the test's own. No cluster is started."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.serving import batching as hands_module
from c2b_ray.serving.batching import Hands


def test_the_loop_stays_free_while_the_model_works() -> None:
    async def both() -> bool:
        hands, go = Hands("D"), threading.Event()
        work = asyncio.create_task(hands.run(go.wait, 20))
        await asyncio.sleep(0.01)
        go.set()  # which a loop that waits for the model never comes to
        there = await work
        hands.close()
        return there

    assert asyncio.run(both())


def test_calls_are_made_one_at_a_time_and_counted() -> None:
    at_once, most = 0, 0

    def call() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.01)
        at_once -= 1

    async def many() -> dict[str, object]:
        hands = Hands("D")
        await asyncio.gather(*(hands.run_batch(call, rows) for rows in (3, 1, 2)))
        hands.close()
        return hands.statistics()

    assert asyncio.run(many()) == {"batches": [3, 1, 2], "running": 0}
    assert most == 1


def test_a_model_that_loads_keeps_no_other_from_answering() -> None:
    async def both() -> str:
        hands, loaded = Hands("D"), threading.Event()
        loading = asyncio.create_task(hands.load(loaded.wait, 20))
        answer = await asyncio.wait_for(hands.run(lambda: "answered"), 10)
        assert not loading.done()
        loaded.set()
        assert await loading
        hands.close()
        return answer

    assert asyncio.run(both()) == "answered"


def sick() -> None:
    raise ServiceError("NaN")


def test_health_is_tested_when_idle_and_taken_at_its_word_when_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        hands = Hands("D")
        with pytest.raises(ServiceError, match="NaN"):
            await hands.check(sick)
        await hands.check(lambda: None)  # sound again
        go = threading.Event()
        work = asyncio.create_task(hands.run(go.wait))
        await asyncio.sleep(0.05)
        await hands.check(sick, every_s=0.0)
        monkeypatch.setattr(hands_module, "STUCK_AFTER_S", 0.01)
        with pytest.raises(ServiceError, match="has been running"):
            await hands.check(sick)
        go.set()
        await work
        hands.close()

    asyncio.run(check())


def test_after_a_failed_call_a_busy_model_is_tested_too() -> None:
    """As on a GPU whose context is lost: every call fails, and a queue of them is never idle."""

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    async def check() -> None:
        hands = Hands("D")
        with pytest.raises(RuntimeError):
            await hands.run(broken)
        waiting = [asyncio.create_task(hands.run(time.sleep, 0.01)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="CUDA error"):
            await hands.check(broken)
        await asyncio.gather(*waiting)
        hands.close()

    asyncio.run(check())


def test_an_answer_is_a_sign_of_health_for_a_while_and_a_wrong_question_none_of_illness() -> None:
    def misspelt() -> None:
        raise SpecError("names nothing")

    async def check() -> None:
        hands = Hands("D")
        await hands.run(lambda: None)
        with pytest.raises(SpecError):
            await hands.run(misspelt)
        await hands.check(sick, every_s=60.0)
        with pytest.raises(ServiceError, match="NaN"):
            await hands.check(sick, every_s=0.0)
        hands.close()

    asyncio.run(check())
