"""What loading a model on a CPU changes about the process."""

from __future__ import annotations

import platform
import subprocess
import sys
from itertools import pairwise

import pytest

HELD = """
import pathlib, resource, torch
from concurrent.futures import ThreadPoolExecutor
from c2b_ray.models.catalog import parse
from c2b_ray.models.torch_runtime import device_of

def held(_):
    layers = [torch.ones(5_000_000) for _ in range(6)]
    layers.reverse()
    del layers
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1_000_000

torch.set_num_threads(1)
{setting}
with ThreadPoolExecutor(1) as pool:
    print(*({calls}))
"""


def held(setting: str, calls: str) -> list[int]:
    """Megabytes that a process holds after each of ten networks that made six layers of 20 MB and freed them."""
    command = [sys.executable, "-c", HELD.format(setting=setting, calls=calls)]
    return [int(mb) for mb in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize("calls", ["map(held, range(10))", "pool.map(held, range(10))"])
def test_memory_that_a_network_frees_is_there_for_the_next(calls: str) -> None:
    kept = held("device_of(parse('timm:resnet18?device=cpu'))", calls)
    assert all(after > before - 5 for before, after in pairwise(kept)), kept
    assert kept[-1] > held("", "map(held, range(1))")[-1] + 100
