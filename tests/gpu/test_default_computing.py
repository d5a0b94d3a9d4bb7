"""What a classifier does on a GPU without being asked, and when it is asked to compile or its memory runs out."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_model
from torch import nn
from torchvision.transforms._presets import ImageClassification

from c2b_ray.models import catalog, devices
from c2b_ray.models.batched_run import Runtime
from c2b_ray.models.devices import GpuMeter
from c2b_ray.models.torch_runtime import TorchClassifier
from c2b_ray.roles import Pixels
from c2b_ray.world import render, sample

GPU = torch.device("cuda:0")


def pictures(n: int) -> list[Pixels]:
    return [render(scene) for scene in sample(n, 7)]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "resnet.safetensors"
    save_model(timm.create_model("resnet18", num_classes=50), str(file))
    return f"timm:resnet18?weights={file}"


def test_the_default_is_said_and_part_of_the_revision(spec: str) -> None:
    known, loaded = catalog.describe("classifier", spec), catalog.classifier(spec)
    stated = catalog.classifier(f"{spec}&precision={devices.ON_A_GPU}")
    assert known is not None
    assert known.revision == loaded.revision == stated.revision
    assert known.of_device  # another process may have no GPU
    assert known.revision != catalog.classifier(f"{spec}&device=cpu").revision
    assert [(fact.value, fact.source) for fact in known.facts if fact.name == "precision"] == [
        (devices.ON_A_GPU, "default on a GPU")
    ]


def test_compiled_answers_are_the_same_to_within_rounding(spec: str) -> None:
    images = pictures(21)  # two batches, the last one padded
    keys = [""] * len(images)
    expected = catalog.classifier(f"{spec}&precision=fp16&batch=16").logits(images, keys)
    compiled = catalog.classifier(f"{spec}&precision=fp16&batch=16&compile=true")
    answer = compiled.logits(images, keys)
    assert np.abs(answer - expected).max() < 0.1 * expected.std()
    began = time.perf_counter()
    compiled.logits(images[:3], keys[:3])  # another number of images compiles nothing
    assert time.perf_counter() - began < 2


def test_a_batch_that_is_too_large_for_the_memory_is_halved(caplog: pytest.LogCaptureFixture) -> None:
    """Of real memory: a limit on this process, which a batch of 64 passes."""
    module = nn.Sequential(nn.Upsample(scale_factor=16), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = pictures(64)
    labels = ("r", "g", "b")
    expected = TorchClassifier(module, ImageClassification(crop_size=224), labels, "", Runtime(GPU, 4)).logits(
        images, [""] * 64
    )
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(GPU).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 4e9 / total), GPU)  # a batch of 64 takes 9.9 GB
    try:
        runtime = Runtime(GPU, 64)
        answer = TorchClassifier(module, ImageClassification(crop_size=224), labels, "", runtime).logits(
            images, [""] * 64
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, GPU)
    np.testing.assert_allclose(answer, expected, atol=1e-3)
    assert runtime.rows < 64
    assert "has no memory for a batch of 64" in caplog.text


def test_answers_that_overflow_half_precision_are_given_in_float32() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2, bias=False))
    with torch.no_grad():
        module[1].weight[0], module[1].weight[1] = 60.0, 0.001  # type: ignore[operator]
    transform = ImageClassification(crop_size=32, resize_size=32, mean=(0.0,) * 3, std=(1.0,) * 3)
    images = [np.full((32, 32, 3), level, np.uint8) for level in (0, 255, 3)]
    classifier = TorchClassifier(module, transform, ("large", "small"), "", Runtime(GPU, 2, torch.float16))
    answers = classifier.logits(images, [""] * 3)
    np.testing.assert_allclose(answers[:, 0], [0, 60 * 3072, 60 * 3072 * 3 / 255], rtol=2e-3)


def test_the_meter_sees_a_busy_gpu() -> None:
    large = torch.ones(8192, 8192, device=GPU)
    with GpuMeter() as meter:
        for _ in range(60):
            for _ in range(20):
                large = large @ large * 1e-9
            torch.cuda.synchronize()
    assert meter.mean is not None
    assert meter.mean > 0.3


def test_a_process_from_which_the_gpu_is_hidden_says_so() -> None:
    lines = (
        "from c2b_ray.models.catalog import parse",
        "from c2b_ray.models.torch_runtime import device_of",
        "print(device_of(parse('timm:x')))",
    )
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=hidden, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "cpu"
    assert "CUDA_VISIBLE_DEVICES= hides them" in done.stderr
