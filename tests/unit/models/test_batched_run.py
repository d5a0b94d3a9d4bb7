"""Batches: prepared ahead, halved where memory runs out, padded where a module is compiled, answered in float32."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.transforms._presets import ImageClassification

from c2b_ray.errors import ServiceError, WeightsError
from c2b_ray.models.batched_run import Runtime, Transfer, run
from c2b_ray.models.pixels.preprocess import batched
from c2b_ray.models.torch_runtime import TorchClassifier, placed
from c2b_ray.roles import Pixels

CPU = torch.device("cpu")
PREPARE = batched(ImageClassification(crop_size=8, resize_size=8, mean=(0.0,) * 3, std=(1.0,) * 3))


def images(n: int) -> list[Pixels]:
    return [np.full((8, 8, 3), i, np.uint8) for i in range(n)]


class Small(nn.Module):
    """A module whose device has no memory for more rows than `room`."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.seen = room, list[int]()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(values))
        if len(values) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return values.mean(dim=(2, 3)) * 255


def test_a_batch_without_memory_is_halved_and_so_are_the_next(caplog: pytest.LogCaptureFixture) -> None:
    module, runtime = Small(room=5), Runtime(CPU, 16)
    with caplog.at_level(logging.WARNING):
        answers = run(module, images(37), PREPARE, runtime)
    np.testing.assert_allclose(answers[:, 0], np.arange(37), atol=1e-4)
    assert module.seen[:3] == [16, 8, 4]
    assert all(rows <= 4 for rows in module.seen[3:])
    module.seen.clear()
    run(module, images(9), PREPARE, runtime)  # the model's next call knows it
    assert max(module.seen) == 4
    assert [record.getMessage() for record in caplog.records] == [
        "cpu has no memory for a batch of 16: batches of 8 from here on",
        "cpu has no memory for a batch of 8: batches of 4 from here on",
    ]


def test_one_row_without_memory_is_an_error_that_says_so() -> None:
    with pytest.raises(ServiceError, match=r"no memory for a batch of one row: CUDA out of memory"):
        run(Small(room=0), images(4), PREPARE, Runtime(CPU, 4))


def test_a_compiled_module_sees_one_size_of_batch() -> None:
    module = Small(room=100)
    answers = run(module, images(11), PREPARE, Runtime(CPU, 8, compiled=True))
    assert module.seen == [8, 8]
    np.testing.assert_allclose(answers[:, 0], np.arange(11), atol=1e-4)


def linear(large: float) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2, bias=False))
    with torch.no_grad():
        module[1].weight[0], module[1].weight[1] = large, 0.001  # type: ignore[operator]
    return module


def test_answers_beyond_half_precision_are_given_in_float32(caplog: pytest.LogCaptureFixture) -> None:
    transform = ImageClassification(crop_size=8, resize_size=8, mean=(0.0,) * 3, std=(1.0,) * 3)
    classifier = TorchClassifier(linear(1000.0), transform, ("a", "b"), "", Runtime(CPU, 2, torch.float16))
    pictures = [np.full((8, 8, 3), level, np.uint8) for level in (0, 255, 3)]
    answers = classifier.logits(pictures, [""] * 3)
    np.testing.assert_allclose(answers[:, 0], [0, 192_000, 192_000 * 3 / 255], rtol=2e-3)
    assert "overflow float16" in caplog.text
    blocks = np.stack(pictures)
    np.testing.assert_allclose(classifier.logits_of_shaped(blocks), answers)


def test_weights_beyond_half_precision_are_refused() -> None:
    with pytest.raises(WeightsError, match=r"1\.weight has values that float16 cannot hold .* precision=bf16"):
        placed(linear(70_000.0), Runtime(CPU, 2, torch.float16), torch.preserve_format)


@pytest.mark.long
def test_compiled_code_answers_as_the_module_does() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )
    transform = ImageClassification(crop_size=16, resize_size=16)
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 256, (20, 24, 3), dtype=np.uint8) for _ in range(5)]
    labels = tuple("abcde")
    expected = TorchClassifier(module, transform, labels, "", Runtime(CPU, 4)).logits(pictures, [""] * 5)
    compiled = TorchClassifier(module, transform, labels, "", Runtime(CPU, 4, compiled=True))
    np.testing.assert_allclose(compiled.logits(pictures, [""] * 5), expected, atol=1e-5)


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
