"""What a process may use of its machine, without a library of models."""

from __future__ import annotations

import logging
import os
import shutil
from collections import namedtuple

import pytest

from c2b_ray.models import devices
from c2b_ray.pipelines import machine


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["null", "nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(8))]
    monkeypatch.setattr(os, "listdir", lambda path: names)
    monkeypatch.delenv(devices.VISIBLE, raising=False)


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, 8), ("", 0), ("-1", 0), ("0,3", 2), ("GPU-a,GPU-b,-1,GPU-c", 2)]
)
@pytest.mark.usefixtures("eight")
def test_gpus_are_those_that_cuda_would_show(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: int
) -> None:
    if visible is not None:
        monkeypatch.setenv(devices.VISIBLE, visible)
    assert machine.gpus() == expected


@pytest.mark.usefixtures("eight")
def test_a_driver_of_ray_has_none() -> None:
    with devices.assigned(()):
        assert machine.gpus() == 0


def shared(monkeypatch: pytest.MonkeyPatch, free_mb: int) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, free_mb * 2**20))


@pytest.mark.usefixtures("eight")
def test_the_object_store_fits_into_shared_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    shared(monkeypatch, 10**6)
    assert machine.object_store_mb() == min(8 * 4096, memory // 8)
    shared(monkeypatch, 1000)
    assert machine.object_store_mb() == 900
    assert not caplog.records
    shared(monkeypatch, 64)  # a container's
    with caplog.at_level(logging.WARNING):
        machine.object_store_mb()
    assert "/dev/shm has 64 MB free" in caplog.text
    assert "--via here" in caplog.text


def test_without_a_gpu_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: 0)
    assert machine.object_store_mb() == 512
