"""What NVIDIA's driver says of this machine's GPUs, through its own library (NVML), without CUDA and any package.

It knows the library's C functions. Where there is no driver every answer is None or empty.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

_NAME = 96  # bytes of NVML_DEVICE_NAME_V2_BUFFER_SIZE
_MOST_PROCESSES = 256


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t, of the third version of the question. `used`: all bits set where the driver does not know."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True)
class GpuState:
    """A GPU now. `total`, `used`: bytes of its memory, None where the driver does not say. `pids`: the processes that
    compute on it, as far as the driver shows them to this one: those of other containers have other numbers."""

    name: str
    total: int | None
    used: int | None
    pids: tuple[int, ...]


def count() -> int:
    """Returns how many GPUs the driver knows, whether or not this process may use them."""
    number = ctypes.c_uint()
    return int(number.value) if _ask("nvmlDeviceGetCount_v2", ctypes.byref(number)) else 0


def cuda_of_driver() -> tuple[int, int] | None:
    """Returns the newest version of CUDA that the driver supports, such as (13, 0)."""
    version = ctypes.c_int()
    if not _ask("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


def busy(gpu: str) -> float | None:
    """Returns the share of the driver's last sampling period in which the GPU ran a kernel, 0 to 1.

    `gpu`: as in CUDA_VISIBLE_DEVICES, a number or "GPU-…".
    """
    handle, sample = _handle(gpu), _Utilization()
    if handle is None or not _ask("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(sample)):
        return None
    return float(sample.gpu) / 100


def state(gpu: str) -> GpuState | None:
    """Returns what the driver says of a GPU, named as for `busy`; None if it knows none of that name."""
    handle = _handle(gpu)
    if handle is None:
        return None
    name, memory = ctypes.create_string_buffer(_NAME), _Memory()
    processes, number = (_Process * _MOST_PROCESSES)(), ctypes.c_uint(_MOST_PROCESSES)
    has_name = _ask("nvmlDeviceGetName", handle, name, ctypes.c_uint(_NAME))
    has_memory = _ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    has_processes = _ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(number), processes)
    return GpuState(
        name.value.decode("utf-8", "replace") if has_name else "GPU",
        int(memory.total) if has_memory else None,
        int(memory.used) if has_memory else None,
        tuple(sorted(int(process.pid) for process in processes[: number.value])) if has_processes else (),
    )


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _ask(name: str, *arguments: Any) -> bool:
    function = getattr(_library(), name, None)  # an old driver lacks some
    return function is not None and function(*arguments) == 0


@cache
def _handle(gpu: str) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    if gpu.isdigit():
        is_found = _ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(gpu)), ctypes.byref(handle))
    else:
        is_found = _ask("nvmlDeviceGetHandleByUUID", gpu.encode(), ctypes.byref(handle))
    return handle if is_found else None
