"""Machine code that is compiled once per machine and loaded without numba."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from c2b_ray.compiled import Held, Room, kernel

KERNELS = """
from numba import types
from c2b_ray.compiled import compilable

LINES = types.Array(types.uint8, 2, "C", readonly=True)
TOTALS = types.Array(types.int64, 1, "C")


@compilable(LINES, types.int64, TOTALS)
def sums_of_lines(lines, factor, totals):
    for y in range(len(lines)):
        totals[y] = 0
        for x in range(lines.shape[1]):
            totals[y] += lines[y, x] * factor


@compilable(LINES)
def joined(lines):
    lines.reshape(2 * len(lines), -1)[0, 0]
"""

USE = """
import sys, numpy as np
from c2b_ray.compiled import kernel
totals = np.empty(2, np.int64)
kernel("kernels", "sums_of_lines")(np.full((2, 5), 200, np.uint8), {factor}, totals)
print(totals.tolist(), "numba" in sys.modules)
"""


@pytest.fixture
def used(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Calls a kernel in a process of its own, whose cache is below the test's folder; returns what it prints."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    package = Path(__file__).parents[2] / "c2b_ray"
    writable = tmp_path / "copy" / "c2b_ray"
    writable.mkdir(parents=True)
    for module in ("__init__", "compiled"):  # a package of its own, so that nothing is kept in the tested one
        text = (package / f"{module}.py").read_text() if module == "compiled" else ""
        (writable / f"{module}.py").write_text(text)

    def use(factor: int = 1, code: str = USE) -> str:
        path = os.pathsep.join([str(tmp_path), str(writable.parent)])
        env = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        command = [sys.executable, "-c", code.format(factor=factor)]
        ended = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
        return ended.stdout.strip() or ended.stderr.strip().splitlines()[-1]

    return use


@pytest.mark.long
def test_it_is_compiled_once_and_again_where_the_source_changed_or_the_file_is_damaged(used, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert used() == "[1000, 1000] True"
    assert used(3) == "[3000, 3000] False"
    (kept,) = (tmp_path / "copy/c2b_ray/__pycache__").glob("kernels.sums_of_lines.*.o")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert used() == "[1000, 1000] True"
    assert used() == "[1000, 1000] False"
    (tmp_path / "kernels.py").write_text(KERNELS.replace("* factor", "* factor + 1"))
    assert used() == "[1005, 1005] True"


@pytest.mark.long
def test_it_is_kept_in_the_users_cache_where_the_package_cannot_be_written_to(used, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "copy/c2b_ray/__pycache__").write_text("no folder")
    assert used() == "[1000, 1000] True"
    assert used() == "[1000, 1000] False"
    assert list((tmp_path / "cache/c2b-ray").glob("*.o"))


@pytest.mark.long
def test_it_works_where_nothing_can_be_kept(used, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "copy/c2b_ray/__pycache__").write_text("no folder")
    (tmp_path / "cache").write_text("no folder")
    assert used() == used() == "[1000, 1000] True"
    (tmp_path / "cache").unlink()
    assert used() == "[1000, 1000] True"
    (kept,) = (tmp_path / "cache/c2b-ray").glob("*.o")
    if os.geteuid() == 0:  # a file of somebody else is not run
        os.chown(kept, 12345, 12345)
        assert used() == "[1000, 1000] True"


@pytest.mark.long
def test_a_function_that_calls_numbas_runtime_is_refused(used) -> None:  # type: ignore[no-untyped-def]
    said = used(code='from c2b_ray.compiled import kernel; kernel("kernels", "joined")')
    assert said.endswith(
        "kernels.joined calls numba_attempt_nocopy_reshape: it must work in the arrays that it is given"
    )


def test_a_kernel_takes_the_arrays_that_it_was_declared_with_in_one_piece() -> None:
    mark_of = kernel("c2b_ray.steps.area_sums", "mark_of")
    lines = np.full((16, 24), 7, np.uint8)
    room = np.empty(24, np.uint16), np.empty((8, 24), np.int64), np.empty((8, 8, 3), np.int64)
    rest = (*room, np.empty((8, 9, 3), np.int64), result := np.empty(200, np.uint8))
    mark_of(lines, 16, 8, *rest)
    assert result[:8].max() == 0
    assert set(result[8:]) == {7}
    with pytest.raises(AssertionError, match="in one piece"):
        mark_of(lines[:, ::2], 16, 4, *rest)
    with pytest.raises(TypeError, match="mark_of takes uint8 of 2 dimensions, not float32 of 2"):
        mark_of(lines.astype(np.float32), 16, 8, *rest)


def test_a_thread_keeps_the_arrays_that_it_worked_in_last() -> None:
    room = Room(lambda size: (np.empty(size),))
    (first,) = room(3)
    assert isinstance(first, Held)
    assert room(3)[0] is first
    assert room(2**20)[0].array.shape == (2**20,)
    large = room(2**21)[0]
    assert room(2**21)[0] is not large
