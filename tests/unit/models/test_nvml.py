"""What NVIDIA's library is asked, by a library of the same C interface that is compiled here; and without any."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from c2b_ray.models import devices, nvml
from c2b_ray.models.devices import GpuMeter, first_gpu, why_unused

SOURCE = """
typedef struct { unsigned int gpu, memory; } use;
static int gpus[2] = {37, 80}, others = 0;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = 2; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12020; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **h) { if (i > 1) return 2; *h = &gpus[i]; return 0; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) { if (u[4] != 'b') return 6; *h = &gpus[1]; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, use *u) { u->gpu = *(int *)h; u->memory = 1; return others; }
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } process;
int nvmlDeviceGetName(void *h, char *name, unsigned int n) {
  const char *s = "Toy GPU"; while ((*name++ = *s++)); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->total = 1000; m->used = *(int *)h; m->free = 900; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned int *n, process *p) {
  if (*(int *)h == 80) { *n = 0; return 0; }
  p[0].pid = 42; p[1].pid = 7; *n = 2; return 0; }
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "nvml.so", tmp_path / "nvml.c"], check=True)
    library = ctypes.CDLL(str(tmp_path / "nvml.so"))
    monkeypatch.setattr(nvml, "_library", lambda: library)
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    nvml._handle.cache_clear()
    yield
    nvml._handle.cache_clear()


@pytest.mark.usefixtures("driver")
def test_the_driver_says_how_busy_a_gpu_is() -> None:
    assert nvml.count() == 2
    assert nvml.cuda_of_driver() == (12, 2)
    assert [nvml.busy(gpu) for gpu in ("0", "1", "7", "GPU-b", "GPU-c")] == [0.37, 0.8, None, 0.8, None]


@pytest.mark.usefixtures("driver")
def test_the_driver_says_what_uses_a_gpu() -> None:
    assert nvml.state("0") == nvml.GpuState("Toy GPU", 1000, 37, (7, 42))
    assert nvml.state("1") == nvml.GpuState("Toy GPU", 1000, 80, ())
    assert nvml.state("7") is None


@pytest.mark.usefixtures("driver")
def test_the_meter_samples_the_gpu_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with devices.assigned(["1"]), GpuMeter(every=0.01) as meter:
        deadline = time.monotonic() + 10
        while meter.mean is None and time.monotonic() < deadline:
            time.sleep(0.01)
    assert (meter.now, meter.mean) == (0.8, pytest.approx(0.8))
    monkeypatch.setattr(devices, "_current", None)
    assert first_gpu() == "0"
    monkeypatch.setenv(devices.VISIBLE, "GPU-b,0")
    assert first_gpu() == "GPU-b"
    monkeypatch.setenv(devices.VISIBLE, "")
    assert first_gpu() is None
    with devices.assigned([]):
        assert first_gpu() is None


def test_without_a_driver_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_library", lambda: None)
    nvml._handle.cache_clear()
    with GpuMeter("0") as meter:
        assert (meter.now, meter.mean) == (None, None)
    assert (nvml.count(), nvml.cuda_of_driver(), why_unused(None, 0)) == (0, None, None)
    nvml._handle.cache_clear()


@pytest.mark.usefixtures("driver")
def test_a_gpu_that_is_there_and_not_used_is_said_with_the_way_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_current", None)
    monkeypatch.delenv("RAY_RAYLET_PID", raising=False)
    there = "this machine has 2 GPUs, but "
    assert why_unused(None, 0) == f"{there}this PyTorch is built for CPUs: install its CUDA build (docs/install.md)"
    old = why_unused("13.0", 0)
    assert old is not None
    assert old.startswith(f"{there}the driver knows CUDA up to 12.2 and this PyTorch is built for 13.0: update the")
    assert "which device=cpu leaves idle" in str(why_unused("12.1", 2))
    assert "PyTorch cannot use them" in str(why_unused("12.1", 0))
    monkeypatch.setenv(devices.VISIBLE, "-1")
    assert f"{devices.VISIBLE}=-1 hides them" in str(why_unused("12.1", 0))
    with devices.assigned([]):
        assert "write `gpus: 1` for this stage" in str(why_unused("12.1", 2))
