"""A process uses the GPUs that Ray assigned to it, however many it sees."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import faiss
import pytest

from c2b_ray.config.placement import Computing
from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models import devices
from c2b_ray.models.index.vectors import on_device


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    monkeypatch.delenv("RAY_RAYLET_PID", raising=False)
    with devices.assigned(()):
        monkeypatch.setattr(devices, "_current", None)
        yield
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("assigned", "available", "visible", "expected"),
    [
        (None, 4, None, [0, 1, 2, 3]),  # no Ray: all that is there
        (None, 0, None, []),
        ([], 8, None, []),  # Ray 2.60 hides none from an actor with num_gpus=0
        ([], 8, "0,1,2,3,4,5,6,7", []),
        (["3"], 1, "3", [0]),  # as Ray sets the variable: CUDA counts from 0 among what it names
        (["5", "7"], 2, "5,7", [0, 1]),
        (["2"], 8, None, [2]),  # RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES
        (["6"], 4, "4,5,6,7", [2]),  # the same on a node that was started with half of the machine's GPUs
        (["GPU-5ebe"], 2, "GPU-1a2b, GPU-5ebe", [1]),
        (["0"], 0, "0", []),  # the cluster only claims to have GPUs
    ],
)
def test_gpus_are_those_that_ray_assigned_as_cuda_counts_them(
    assigned: list[str] | None, available: int, visible: str | None, expected: list[int]
) -> None:
    assert devices.usable_gpus(assigned, available, visible) == expected


@pytest.mark.parametrize(("visible", "available"), [("0,1", 2), (None, 2), ("0,1,3", 2)])
def test_an_assigned_gpu_that_the_process_does_not_see_is_an_error(visible: str | None, available: int) -> None:
    """Any other would be another process's. Of "0,1,3" CUDA has left the last out: it stops at what is not there."""
    with pytest.raises(ServiceError, match="assigned the GPU 3"):
        devices.usable_gpus(["3"], available, visible)


def test_a_worker_that_was_assigned_nothing_takes_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.device(None, "timm:x", 8) == "cuda:0"  # a notebook
    with devices.assigned([]):
        assert devices.device(None, "timm:x", 8) == "cpu"
    monkeypatch.setenv("RAY_RAYLET_PID", "17")  # a task of the user's own, which called nothing of ours
    assert devices.device(None, "timm:x", 8) == "cpu"


def test_a_spec_cannot_take_what_ray_gave_to_others() -> None:
    with devices.assigned([2, 3]):
        assert devices.device("cuda", "timm:x", 8) == "cuda:2"
        assert devices.device("cuda:3", "timm:x", 8) == "cuda:3"
        assert devices.device("cpu", "timm:x", 8) == "cpu"
        with pytest.raises(SpecError, match="device=cuda:0, but Ray assigned cuda:2, cuda:3"):
            devices.device("cuda:0", "timm:x", 8)
    with devices.assigned([]), pytest.raises(SpecError, match="Ray assigned no GPU to this process; give it GPUs"):
        devices.device("cuda", "timm:x", 8)
    assert devices.device("cuda:0", "timm:x", 8) == "cuda:0"


def test_a_gpu_that_is_only_claimed_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with devices.assigned([0]), caplog.at_level(logging.WARNING):
        assert devices.device(None, "timm:x", 0) == "cpu"
    assert "sees none" in caplog.text


def test_the_precision_is_the_specs_else_the_placements() -> None:
    assert devices.precision(None, "timm:x") is None
    with devices.assigned([0], Computing("bf16")):
        assert (devices.precision(None, "timm:x"), devices.precision("fp16", "timm:x")) == ("bf16", "fp16")
    with devices.computing_in(Computing("bf16")):  # a driver describes what a stage will load
        assert devices.precision(None, "timm:x") == "bf16"
        with devices.computing_in(Computing()):
            assert devices.precision(None, "timm:x") == "bf16"
    assert devices.precision(None, "timm:x") is None
    with pytest.raises(SpecError, match="timm:x: no precision 'bf61'; did you mean 'bf16'"):
        devices.precision("bf61", "timm:x")
    with pytest.raises(SpecError, match="no precision 'half'"):
        devices.assign([], Computing("half"))


def test_an_index_and_a_graph_stay_off_gpus_that_ray_gave_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("c2b_ray.models.onnx_classifier")
    for number in range(4):
        (tmp_path / str(number)).mkdir()
    monkeypatch.setattr(onnx, "DRIVER", tmp_path)
    monkeypatch.setattr(onnx.onnxruntime, "get_available_providers", lambda: [onnx.CUDA, "CPUExecutionProvider"])
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 4)
    shard = faiss.IndexFlatIP(4)
    with devices.assigned([]):
        assert onnx.device_of(onnx.Spec("onnx:x", "onnx", "x")) == "cpu"
        assert on_device(shard, "flat", "auto") is shard
    with devices.assigned([3]):
        assert onnx.device_of(onnx.Spec("onnx:x", "onnx", "x")) == "cuda:3"
    assert onnx.device_of(onnx.Spec("onnx:x", "onnx", "x", {"device": "cuda:1"})) == "cuda:1"
