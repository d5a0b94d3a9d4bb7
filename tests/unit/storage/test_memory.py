"""How many heaps the threads of a process take, in a process of its own: heaps stay for as long as it lives."""

import os
import subprocess
import sys

import pytest

THREADS = """
import ctypes, threading
from tempfile import NamedTemporaryFile
from c2b_ray.storage.ids import few_heaps

def heaps():
    libc = ctypes.CDLL("libc.so.6")
    libc.fopen.restype = ctypes.c_void_p
    with NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        return file.read().count(b"<heap nr=")

{first}
before, together, held = heaps(), threading.Barrier(8), []

def take():
    together.wait()
    held.append(bytearray(5000))  # too large for Python's own allocator
    together.wait()

threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(before, heaps())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's C library")
def test_threads_of_a_driver_share_two_heaps() -> None:
    before, after = heaps("few_heaps()")
    assert after <= max(2, before)
    before, after = heaps("")
    assert after >= before + 4  # else the test shows nothing


def heaps(first: str) -> list[int]:
    command = [sys.executable, "-c", THREADS.format(first=first)]
    clear = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    return [int(word) for word in subprocess.run(command, check=True, capture_output=True, env=clear).stdout.split()]
