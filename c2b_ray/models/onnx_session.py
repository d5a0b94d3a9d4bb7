"""A session of onnxruntime for a graph: its threads, and the device on which it actually runs.

It knows neither the inputs nor the outputs of a graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime

from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import devices
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import positive

THREADS = 2
CUDA = "CUDAExecutionProvider"
DRIVER = Path("/proc/driver/nvidia/gpus")
"""A folder with an entry for each GPU; onnxruntime itself only tells what it was built for."""


def session_of(spec: Spec, path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = positive(spec, "threads", THREADS)
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # its warnings about unused initialisers go to stderr otherwise
    device = device_of(spec)
    provider = {"cpu": "CPUExecutionProvider", "cuda": CUDA}.get(device.partition(":")[0])
    if provider not in onnxruntime.get_available_providers():
        raise SpecError(f"{spec.text}: this onnxruntime has no device {device!r}; device=cpu always works")
    # float32 is float32: by default CUDA would round its factors to 10 bits.
    settings = {"device_id": device.partition(":")[2] or "0", "use_tf32": "0"} if provider == CUDA else {}
    if provider == CUDA:
        onnxruntime.preload_dlls()  # libraries of CUDA that came with pip, which the dynamic linker does not find
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[(provider, settings)])
    except Exception as error:  # onnxruntime's exceptions share no base class
        raise WeightsError(f"{path}: onnxruntime cannot load it: {error}") from error
    if session.get_providers()[0] != provider:  # onnxruntime takes the CPU instead, and says so on stderr alone
        raise ServiceError(
            f"{spec.text}: onnxruntime does not start on {device}: CUDA's libraries or the driver are absent, or of "
            "another version (pip install 'onnxruntime-gpu[cuda,cudnn]'); device=cpu always works"
        )
    return session


def device_of(spec: Spec) -> str:
    """Returns `cpu` or `cuda:N`: the spec's device, else the GPU that this process may use where onnxruntime is built
    for GPUs."""
    built = has_cuda()
    return devices.device(spec.options.get("device"), spec.text, len(list(DRIVER.glob("*"))) if built else 0)


def has_cuda() -> bool:
    """Returns whether onnxruntime is built for GPUs."""
    return CUDA in onnxruntime.get_available_providers()
