"""What replicas do alike, on an event loop of the test's own. No cluster is started."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from c2b_ray.errors import ConfigError, ServiceError
from c2b_ray.serving import replica
from c2b_ray.serving.replica import Hands, apply_settings, can_be_probed, refuse_other_model


class Batched:
    def set_max_batch_size(self, size: int) -> None:
        self.size = size

    def set_batch_wait_timeout_s(self, wait: float) -> None:
        self.wait = wait


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


def test_health_is_tested_when_idle_and_taken_at_its_word_when_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def sick() -> None:
        raise ServiceError("NaN")

    async def check() -> None:
        hands = Hands("D")
        with pytest.raises(ServiceError, match="NaN"):
            await hands.check(sick)
        go = threading.Event()
        work = asyncio.create_task(hands.run(go.wait))
        await asyncio.sleep(0.05)
        await hands.check(sick)
        monkeypatch.setattr(replica, "STUCK_AFTER_S", 0.01)
        with pytest.raises(ServiceError, match="has been running"):
            await hands.check(sick)
        go.set()
        await work
        hands.close()

    asyncio.run(check())


def test_settings_reach_every_batched_method() -> None:
    methods = Batched(), Batched()
    apply_settings({"max_batch_size": 4, "batch_wait_timeout_s": 0.5}, *methods)
    assert [(m.size, m.wait) for m in methods] == [(4, 0.5)] * 2


@pytest.mark.parametrize("config", [{"max_batch": 4}, {"max_batch_size": 0}])
def test_settings_that_are_wrong_are_named(config: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"user_config.{next(iter(config))}"):
        apply_settings(config, Batched())


def test_another_model_is_refused() -> None:
    refuse_other_model("D", "hf:a", "hf:a")
    with pytest.raises(ServiceError, match="serves 'hf:a', and was asked for 'hf:b'"):
        refuse_other_model("D", "hf:a", "hf:b")


def test_no_made_up_questions_for_urls_scripts_and_tables() -> None:
    assert can_be_probed("timm:resnet50")
    assert not any(can_be_probed(spec) for spec in ("openai:http://h/v1#m", "scripted:a.json", "table:t.csv"))
