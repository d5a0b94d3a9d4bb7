"""What loading a model on a CPU changes about the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

RESIDENT = """
import pathlib, resource, torch
from c2b_ray.models.catalog import parse
from c2b_ray.models.torch_runtime import device_of
{setting}
torch.set_num_threads(1)
def pages():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1])
before = pages()
layers = [torch.ones(10_000_000) for _ in range(4)]
del layers
print((pages() - before) * resource.getpagesize() // 1_000_000)
"""


def kept(setting: str) -> int:
    """Megabytes that a process still holds of four arrays of 40 MB after it freed them.

    Arrays over 32 MB, because what glibc does with smaller ones depends on what was freed before.
    """
    command = [sys.executable, "-c", RESIDENT.format(setting=setting)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_a_layer_frees_is_there_for_the_next() -> None:
    assert kept("") < 80 < kept("device_of(parse('timm:resnet18?device=cpu'))")
