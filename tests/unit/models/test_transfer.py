"""Batches that are prepared ahead: the same ones, in order, one ahead at most. A CPU stands for the GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from c2b_ray.models.batched_run import Transfer

CPU = torch.device("cpu")


def of(part: int) -> torch.Tensor:
    return torch.full((3,), part)


@pytest.mark.parametrize("overlap", [None, True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_batches_come_in_the_order_of_their_parts(overlap: bool | None, count: int) -> None:
    batches = list(Transfer(CPU, overlap)(of, range(count)))
    assert [batch.tolist() for batch in batches] == [[part] * 3 for part in range(count)]


def test_the_next_batch_is_made_while_one_is_used_and_no_further_one() -> None:
    made: list[int] = []
    second = threading.Event()

    def prepare(part: int) -> torch.Tensor:
        made.append(part)
        if part == 1:
            second.set()
        return of(part)

    batches = Transfer(CPU, overlap=True)(prepare, range(9))
    next(batches)
    assert second.wait(20), "nothing was made while the first batch was in use"
    time.sleep(0.05)
    assert made == [0, 1]  # two batches in memory, however many there are
    assert [int(batch[0]) for batch in batches] == list(range(1, 9))


@pytest.mark.parametrize("overlap", [True, False])
def test_what_goes_wrong_with_a_batch_is_raised_in_its_turn(overlap: bool) -> None:
    def prepare(part: int) -> torch.Tensor:
        if part == 2:
            raise ValueError("batch 2")
        return of(part)

    batches = Transfer(CPU, overlap)(prepare, range(9))
    assert [int(next(batches)[0]) for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="batch 2"):
        next(batches)


def test_a_caller_that_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    batches: Iterator[torch.Tensor] = Transfer(CPU, overlap=True)(of, range(9))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
