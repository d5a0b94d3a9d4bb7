"""Requests gathered into batches, on an event loop of the test's own. No cluster is started."""

from __future__ import annotations

import asyncio
import time

import pytest

from c2b_ray.errors import ConfigError, ServiceError
from c2b_ray.serving.batching import BatchSettings, CachedSettings, Gather, settings_of


class Model:
    """Doubles; notes its batches and how many ran at once. `gate` holds it back until it is set."""

    def __init__(self, settings: BatchSettings, at_once: int = 1) -> None:
        self.batches: list[list[int]] = []
        self.most = self.running = 0
        self.gate = asyncio.Event()
        self.fills: list[float] = []
        self.gather: Gather[int, int] = Gather(self.answer, lambda: settings, at_once, self.fills.append)

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
