"""What loading a model on a CPU changes about the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from c2b_ray.models.catalog import parse
from c2b_ray.models.torch_runtime import device_of
{setting}
torch.set_num_threads(1)
layers = [torch.ones(5_000_000) for _ in range(4)]
del layers
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    layers = [torch.ones(5_000_000) for _ in range(4)]
    del layers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(setting: str) -> int:
    """Pages that 20 networks of 4 arrays of 20 MB, one after the other, get anew from the kernel."""
    command = [sys.executable, "-c", FAULTS.format(setting=setting)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_a_layer_frees_is_there_for_the_next() -> None:
    kept = faults("device_of(parse('timm:resnet18?device=cpu'))")
    assert kept < 40_000 < faults("")
