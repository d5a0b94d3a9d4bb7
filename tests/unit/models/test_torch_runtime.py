"""What loading a model on a CPU changes about the process; precisions, and what reaches a device."""

from __future__ import annotations

import platform
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models import mobilenet_v2, vit_b_16
from torchvision.transforms._presets import ImageClassification

from c2b_ray.config.placement import Computing
from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import devices
from c2b_ray.models.batched_run import Runtime
from c2b_ray.models.catalog import parse
from c2b_ray.models.pixels.preprocess import batched
from c2b_ray.models.torch_runtime import TorchClassifier, placed, runtime_of
from c2b_ray.roles import Floats, Pixels

CPU = torch.device("cpu")
TRANSFORM = ImageClassification(crop_size=64, resize_size=72)
HELD = """
import os, pathlib, resource, torch
from concurrent.futures import ThreadPoolExecutor
from c2b_ray.models.catalog import parse
from c2b_ray.models.torch_runtime import device_of

def held(_):
    layers = [torch.ones(5_000_000) for _ in range(6)]
    layers.reverse()
    del layers
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1_000_000

torch.set_num_threads(1)
for calls in (lambda: map(held, range(4)), lambda: ThreadPoolExecutor(1).map(held, range(4))):
    if not (child := os.fork()):
        before = held(0)
        device_of(parse("timm:resnet18?device=cpu"))
        print(before, *calls(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.long
def test_memory_that_a_network_frees_is_there_for_the_next() -> None:
    """Megabytes that a process holds after each of five networks that made six layers of 20 MB and freed them.

    The runtime sets the process up after the first of them. The others run in the main thread, or in another.
    """
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, check=True)
    lines = [[int(mb) for mb in line.split()] for line in done.stdout.splitlines()]
    assert len(lines) == 2
    for freed, *kept in lines:
        assert all(after > before - 5 for before, after in pairwise(kept)), kept
        assert kept[-1] > freed + 100


def photographs(n: int = 6) -> list[Pixels]:
    random = np.random.default_rng(3)
    coarse = random.integers(0, 256, (n, 9, 12, 3), dtype=np.uint8)
    return [np.kron(image, np.ones((10, 10, 1), np.uint8)) for image in coarse]


def network() -> nn.Module:
    """Convolutions, one of them depthwise, whose normalisation has seen images, so that its statistics matter."""
    torch.manual_seed(0)

    def normalised(convolution: nn.Module) -> list[nn.Module]:
        return [convolution, nn.BatchNorm2d(8), nn.ReLU6()]

    layers = [
        *normalised(nn.Conv2d(3, 8, 3, stride=4, padding=1)),
        *normalised(nn.Conv2d(8, 8, 3, padding=1, groups=8)),
        *normalised(nn.Conv2d(8, 8, 1)),
    ]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 20)).train()
    with torch.no_grad():
        for _ in range(4):
            module(batched(TRANSFORM)(photographs(8)))
    return module


def answers(dtype: torch.dtype) -> Floats:
    labels = tuple(f"label_{i}" for i in range(20))
    classifier = TorchClassifier(network(), TRANSFORM, labels, "r", Runtime(CPU, 4, dtype))
    return classifier.logits(photographs(), [""] * 6)


class Failing(nn.Linear):
    """A linear layer that fails where it computes, as a device without memory or a broken library does."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not input.is_meta:
            raise RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")
        return super().forward(input)


@pytest.mark.parametrize(
    ("head", "error", "message"),
    [
        (Failing(32, 20), ServiceError, "failed on the cpu, and the size of the pictures is not why: .*cuDNN"),
        (nn.Linear(33, 20), WeightsError, "fails on pictures as they are prepared for it"),
    ],
)
def test_pictures_are_blamed_only_where_the_module_does_not_take_their_shape(
    head: nn.Module, error: type[Exception], message: str
) -> None:
    module = nn.Sequential(*list(network().children())[:-1], head)
    classifier = TorchClassifier(module, TRANSFORM, tuple("abcdefghijklmnopqrst"), "r", Runtime(CPU, 4))
    with pytest.raises(error, match=message):
        classifier.logits(photographs(), [""] * 6)


def test_half_precision_answers_as_float32_does_to_within_its_rounding() -> None:
    expected = answers(torch.float32)
    spread = float(expected.std())
    for dtype, allowed in ((torch.bfloat16, 0.1), (torch.float16, 0.02)):
        logits = answers(dtype)
        assert logits.dtype == np.float32
        assert 0 < float(np.abs(logits - expected).max()) < allowed * spread
        assert np.array_equal(logits.argmax(1), expected.argmax(1))


def test_statistics_of_batch_normalisation_stay_exact_in_half_precision() -> None:
    before = network()
    kept = {name: tensor.clone() for name, tensor in before.state_dict().items() if "running" in name}
    after = placed(before, Runtime(CPU, 4, torch.bfloat16), torch.channels_last)
    now = after.state_dict()
    assert kept
    assert all(torch.equal(now[name], tensor) for name, tensor in kept.items())
    assert after[0].weight.dtype == torch.bfloat16  # type: ignore[index]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [lambda: mobilenet_v2(num_classes=7), lambda: vit_b_16(num_classes=7)])
def test_a_device_gets_bytes_and_computes_in_its_precision(make: object, dtype: torch.dtype) -> None:
    """On the meta device, which runs every operation's types and shapes and computes nothing."""
    meta = torch.device("meta")
    with meta:
        module = make()  # type: ignore[operator]
    prepare = batched(ImageClassification(crop_size=224))
    stacked = prepare.stacked(photographs(2))
    assert (stacked.dtype, tuple(stacked.shape)) == (torch.uint8, (2, 224, 224, 3))  # 150 kB an image
    values = prepare.normalised(stacked.to(meta))
    assert (values.dtype, values.device) == (torch.float32, meta)
    assert values.is_contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        output = placed(module, Runtime(meta, 256, dtype), torch.channels_last)(values.to(dtype))
    assert (output.dtype, tuple(output.shape), output.device) == (dtype, (2, 7), meta)


def test_batch_and_precision_are_the_specs_else_the_placements_else_the_devices() -> None:
    assert runtime_of(parse("timm:x?device=cpu")) == Runtime(CPU, 8, torch.float32)
    with devices.assigned([], Computing("bf16")):
        assert runtime_of(parse("timm:x")) == Runtime(CPU, 8, torch.bfloat16)
        assert runtime_of(parse("timm:x?precision=fp16&batch=3")) == Runtime(CPU, 3, torch.float16)
    with pytest.raises(SpecError, match="no precision 'float16'"):
        runtime_of(parse("timm:x?precision=float16"))
