"""Requests gathered into batches, and the threads of a replica, on an event loop of the test's own."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from c2b_ray.errors import ConfigError, ServiceError, SpecError
from c2b_ray.serving import batching
from c2b_ray.serving.batching import BatchSettings, CachedSettings, ModelThreads, RequestBatcher, settings_of


class Model:
    """Doubles; notes its batches and how many ran at once. `gate` holds it back until it is set."""

    def __init__(self, settings: BatchSettings, at_once: int = 1) -> None:
        self.batches: list[list[int]] = []
        self.most = self.running = 0
        self.gate = asyncio.Event()
        self.fills: list[float] = []
        self.gather: RequestBatcher[int, int] = RequestBatcher(
            self.answer, lambda: settings, at_once, self.fills.append
        )

    async def answer(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        self.running += 1
        self.most = max(self.most, self.running)
        await self.gate.wait()
        self.running -= 1
        if -1 in items:
            raise ServiceError("NaN")
        return [2 * item for item in items]


def test_a_batch_is_filled_by_rows_and_not_by_requests() -> None:
    async def many() -> None:
        model = Model(BatchSettings(max_batch_size=64, batch_wait_timeout_s=10))
        model.gate.set()
        replies = [asyncio.create_task(model.gather.ask(item, 32)) for item in range(6)]
        assert await asyncio.gather(*replies) == [0, 2, 4, 6, 8, 10]
        assert model.batches == [[0, 1], [2, 3], [4, 5]]
        assert model.fills == [1.0, 1.0, 1.0]

    asyncio.run(many())


def test_what_waits_while_the_model_works_is_one_batch() -> None:
    async def many() -> None:
        model = Model(BatchSettings(max_batch_size=50, batch_wait_timeout_s=0), at_once=2)
        replies = [asyncio.create_task(model.gather.ask(item)) for item in range(12)]
        await asyncio.sleep(0.01)
        model.gate.set()
        await asyncio.gather(*replies)
        assert model.most == 2
        assert model.batches == [[0], [1], list(range(2, 12))]

    asyncio.run(many())


def test_one_request_larger_than_a_batch_is_answered_alone() -> None:
    async def three() -> None:
        model = Model(BatchSettings(max_batch_size=10, batch_wait_timeout_s=0.01))
        model.gate.set()
        replies = [asyncio.create_task(model.gather.ask(item, rows)) for item, rows in ((1, 4), (2, 99), (3, 4))]
        assert await asyncio.gather(*replies) == [2, 4, 6]
        assert model.batches == [[1], [2], [3]]

    asyncio.run(three())


def test_a_batch_that_does_not_fill_waits_no_longer_than_it_may() -> None:
    async def one() -> float:
        model = Model(BatchSettings(max_batch_size=10, batch_wait_timeout_s=0.2))
        model.gate.set()
        began = time.monotonic()
        assert await model.gather.ask(1) == 2
        return time.monotonic() - began

    assert 0.19 < asyncio.run(one()) < 2


def test_an_error_is_that_of_its_batch_alone_and_a_caller_that_left_is_left_out() -> None:
    async def some() -> None:
        model = Model(BatchSettings(max_batch_size=2, batch_wait_timeout_s=0.01))
        first = [asyncio.create_task(model.gather.ask(item)) for item in (-1, 1)]
        gone, last = (asyncio.create_task(model.gather.ask(item)) for item in (5, 7))
        await asyncio.sleep(0.01)
        gone.cancel()
        model.gate.set()
        results = await asyncio.gather(*first, return_exceptions=True)
        assert [str(error) for error in results] == ["NaN", "NaN"]
        assert await last == 14
        assert model.batches[1:] == [[7]]

    asyncio.run(some())


@pytest.mark.parametrize("config", [{"max_batch": 4}, {"max_batch_size": 0}])
def test_settings_that_are_wrong_are_named(config: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"user_config\.{next(iter(config))}"):
        settings_of(config, BatchSettings)


def test_only_what_keeps_answers_takes_their_size() -> None:
    assert settings_of({"answers_mb": 5}, CachedSettings).answers_mb == 5
    with pytest.raises(ConfigError, match=r"user_config\.answers_mb"):
        settings_of({"answers_mb": 5}, BatchSettings)


def test_the_loop_stays_free_while_the_model_works() -> None:
    async def both() -> bool:
        model_threads, go = ModelThreads("D"), threading.Event()
        work = asyncio.create_task(model_threads.run(go.wait, 20))
        await asyncio.sleep(0.01)
        go.set()  # which a loop that waits for the model never comes to
        there = await work
        model_threads.close()
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
        model_threads = ModelThreads("D")
        await asyncio.gather(*(model_threads.run_batch(call, rows) for rows in (3, 1, 2)))
        model_threads.close()
        return model_threads.statistics()

    assert asyncio.run(many()) == {"batches": [3, 1, 2], "running": 0}
    assert most == 1


def test_a_model_that_loads_keeps_no_other_from_answering() -> None:
    async def both() -> str:
        model_threads, loaded = ModelThreads("D"), threading.Event()
        loading = asyncio.create_task(model_threads.load(loaded.wait, 20))
        answer = await asyncio.wait_for(model_threads.run(lambda: "answered"), 10)
        assert not loading.done()
        loaded.set()
        assert await loading
        model_threads.close()
        return answer

    assert asyncio.run(both()) == "answered"


def sick() -> None:
    raise ServiceError("NaN")


def test_health_is_tested_when_idle_and_taken_at_its_word_when_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        model_threads = ModelThreads("D")
        with pytest.raises(ServiceError, match="NaN"):
            await model_threads.check(sick)
        await model_threads.check(lambda: None)  # sound again
        go = threading.Event()
        work = asyncio.create_task(model_threads.run(go.wait))
        await asyncio.sleep(0.05)
        await model_threads.check(sick, every_s=0.0)
        monkeypatch.setattr(batching, "STUCK_AFTER_S", 0.01)
        with pytest.raises(ServiceError, match="has been running"):
            await model_threads.check(sick)
        go.set()
        await work
        model_threads.close()

    asyncio.run(check())


def test_after_a_failed_call_a_busy_model_is_tested_too() -> None:
    """As on a GPU whose context is lost: every call fails, and a queue of them is never idle."""

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    async def check() -> None:
        model_threads = ModelThreads("D")
        with pytest.raises(RuntimeError):
            await model_threads.run(broken)
        waiting = [asyncio.create_task(model_threads.run(time.sleep, 0.01)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="CUDA error"):
            await model_threads.check(broken)
        await asyncio.gather(*waiting)
        model_threads.close()

    asyncio.run(check())


def test_an_answer_is_a_sign_of_health_for_a_while_and_a_wrong_question_none_of_illness() -> None:
    def misspelt() -> None:
        raise SpecError("names nothing")

    async def check() -> None:
        model_threads = ModelThreads("D")
        await model_threads.run(lambda: None)
        with pytest.raises(SpecError):
            await model_threads.run(misspelt)
        await model_threads.check(sick, every_s=60.0)
        with pytest.raises(ServiceError, match="NaN"):
            await model_threads.check(sick, every_s=0.0)
        model_threads.close()

    asyncio.run(check())
