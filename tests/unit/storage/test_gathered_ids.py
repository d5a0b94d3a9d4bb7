"""Ids of many rows: sorted on the disk, outside the heap, in few heaps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.storage import parts as memory
from c2b_ray.storage.parts import DIGEST, FIRST_BYTES, HELD_BYTES, Count, Digests, OnDisk, RecordBuffer, writing


def records(count: int, seed: int = 0) -> Digests:
    return np.frombuffer(np.random.default_rng(seed).bytes(12 * count), DIGEST)


def sorted_on_disk(whole: Digests, folder: Path) -> tuple[list[Digests], int]:
    """The records in order, and the most bytes of them that were in memory."""
    with OnDisk(DIGEST, str(folder)) as gathered:
        for start in range(0, len(whole), 1024):
            gathered.add(whole[start : start + 1024])
        shares = list(gathered.in_order())
    assert os.listdir(folder) == []
    return shares, gathered.most_bytes


def test_a_million_records_take_no_more_memory_than_a_tenth_of_them(tmp_path: Path) -> None:
    few, many = records(100_000), records(1_000_000)
    _, of_few = sorted_on_disk(few, tmp_path)
    shares, of_many = sorted_on_disk(many, tmp_path)
    assert of_many <= 1.05 * of_few
    assert of_many < 3 * HELD_BYTES < many.nbytes / 3
    assert max(share.nbytes for share in shares) < HELD_BYTES
    assert np.array_equal(np.concatenate(shares), np.sort(many))


@pytest.mark.parametrize("held", [1, 100, HELD_BYTES])
def test_equal_records_come_together_also_from_stretches_far_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(memory, "HELD_BYTES", held)
    edges = np.array(
        [b"\0" * 11 + b"\1", b"\0" * 12, b"\xff" * 12, b"\x80" + b"\0" * 11, b"\x7f" + b"\xff" * 11], DIGEST
    )
    with OnDisk(DIGEST, str(tmp_path)) as gathered:
        for some in (edges, edges[::-1], records(50)):
            gathered.add(some)
        shares = list(gathered.in_order())
    assert np.array_equal(np.concatenate(shares), np.sort(np.concatenate([edges, edges, records(50)])))
    repeated = [record for share in shares for record in share.tolist() if share.tolist().count(record) == 2]
    assert len(repeated) == 2 * len(edges)


def test_nothing_gathered_is_nothing_in_order(tmp_path: Path) -> None:
    with OnDisk(DIGEST, str(tmp_path)) as gathered:
        assert [len(share) for share in gathered.in_order()] == [0] * 256


@pytest.mark.parametrize("held", [24, HELD_BYTES])
def test_parts_are_counted_as_a_census_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(memory, "HELD_BYTES", held)
    with writing(str(tmp_path)) as parts:
        assert parts.count("id") == Count(0, 0, False)
        for ids in (["a", "b", "c"], ["d", "e"], ["f"]):
            parts.write(pa.table({"id": ids, "error": ["bad", *[None] * (len(ids) - 1)]}), "id")
        assert parts.count("id") == Count(6, 3, False)
        parts.write(pa.table({"id": ["g", "b"], "error": pa.nulls(2, pa.string())}), "id")
        assert parts.count("id") == Count(8, 3, True)
        assert parts.drop_repeats("id") == Count(7, 3, False)
        assert parts.census("id").errors == 3
        assert len(parts.census("id").ids) == 7
        assert os.listdir(f"{parts.path}/{parts.run}") == ["writer"]


def test_records_beyond_the_first_bytes_are_all_kept_and_can_be_sorted_in_place():
    rows = np.random.default_rng(0).bytes(12 * 200_000)
    records = np.frombuffer(rows.replace(b"\0", b"\1"), "S12")
    assert records.nbytes > 2 * FIRST_BYTES
    gathered = RecordBuffer("S12")
    for start in range(0, len(records), 7_000):
        gathered.add(records[start : start + 7_000])
    whole = gathered.whole()
    assert whole.tolist() == records.tolist()
    whole.sort()
    assert whole.tolist() == sorted(records.tolist())
    assert len(RecordBuffer("S12").whole()) == 0


THREADS = """
import ctypes, threading
from tempfile import NamedTemporaryFile
from c2b_ray.storage.parts import few_heaps

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
