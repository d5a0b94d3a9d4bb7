"""What NVIDIA's driver says of this machine's GPUs, through its own library (NVML), without CUDA and any package.

It knows the library's C functions. Where there is no driver every answer is None or empty.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


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
        found = _ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(gpu)), ctypes.byref(handle))
    else:
        found = _ask("nvmlDeviceGetHandleByUUID", gpu.encode(), ctypes.byref(handle))
    return handle if found else None
