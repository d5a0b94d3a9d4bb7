"""What a process may use of its machine, without a library of models."""

from __future__ import annotations

import logging
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from c2b_ray.engine import machine
from c2b_ray.models import devices


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


def test_cores_and_memory_are_those_of_the_nearest_limit_of_control_groups(tmp_path: Path) -> None:
    """Version 2: a pod of one and a half cores, whose container has no limit of its own."""
    own = tmp_path / "own"
    own.write_text("0::/pod/container\n")
    container = tmp_path / "groups" / "pod" / "container"
    container.mkdir(parents=True)
    (container / "cpu.max").write_text("max 100000\n")
    (container / "memory.max").write_text("max\n")
    (container.parent / "cpu.max").write_text("150000 100000\n")
    (container.parent / "memory.max").write_text("1048576\n")
    assert machine.cpu_quota(tmp_path / "groups", own) == 1.5
    assert machine.memory_bytes(tmp_path / "groups", own) == 2**20


def test_control_groups_of_the_first_version_count_too(tmp_path: Path) -> None:
    """The container sees its group as the root, under a name that is the host's."""
    own = tmp_path / "own"
    own.write_text("5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n")
    for controller, name, value in (
        ("cpu,cpuacct", "cpu.cfs_quota_us", "300000"),
        ("cpu,cpuacct", "cpu.cfs_period_us", "100000"),
        ("memory", "memory.limit_in_bytes", "2097152"),
    ):
        (tmp_path / controller).mkdir(exist_ok=True)
        (tmp_path / controller / name).write_text(value)
    assert machine.cpu_quota(tmp_path, own) == 3
    assert machine.memory_bytes(tmp_path, own) == 2**21


def test_without_limits_the_machine_is_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.write_text("4:cpu:/\n")
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert machine.cpu_quota(tmp_path, own) is None
    assert machine.cpu_quota(tmp_path, tmp_path / "absent") is None  # macOS
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(machine, "cpu_quota", lambda: 2.5)
    assert machine.cores() == 3
    monkeypatch.setattr(machine, "cpu_quota", lambda: 0.2)
    assert machine.cores() == 1
    monkeypatch.setattr(machine, "cpu_quota", lambda: None)
    assert machine.cores() == 8
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.cores() == os.cpu_count()
