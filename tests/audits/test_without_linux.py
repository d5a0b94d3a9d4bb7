"""Audits need nothing that Linux alone has: they run where Python lacks these functions, as on macOS.

A process in which they are gone stands for macOS, where no test of ours has run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from PIL import Image

from c2b_ray.world import render, sample

LINUX_ONLY = (
    "memfd_create",
    "posix_fadvise",
    "sched_getaffinity",
    "sched_setaffinity",
    "preadv",
    "pwritev",
    "pidfd_open",
)
CLASSES = ("bus", "bird")


def without_linux(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in which `os` lacks LINUX_ONLY, in its worker processes as well."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"import os\nfor name in {LINUX_ONLY!r}:\n    if hasattr(os, name):\n        delattr(os, name)\n"
    )
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    own = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *command], env=own, capture_output=True, text=True, timeout=300)


def test_an_audit_of_a_folder_runs(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for name in CLASSES:
        (photos / name).mkdir(parents=True)
        for number, scene in enumerate(sample(40, 100_000, target_class=name)):
            Image.fromarray(render(scene)).save(photos / name / f"{number:03}.png")
    gone = without_linux(tmp_path / "site", "-c", "import os; print(hasattr(os, 'posix_fadvise'))")
    assert gone.stdout == "False\n"
    own = ("-m", "c2b_ray")
    audited = without_linux(
        tmp_path / "site",
        *own,
        "audit",
        str(photos),
        "--classifier",
        "world:resnet-control-0",
        "--out",
        str(tmp_path / "run"),
    )
    assert audited.returncode == 0, audited.stderr
    rows = pq.read_table(tmp_path / "run" / "predictions").num_rows
    assert rows == 2 * 40


def test_an_index_of_compressed_vectors_answers(tmp_path: Path) -> None:
    """Its exact vectors are read from a file, with advice to the system where the system takes it."""
    tests = "tests/contract/indices/test_indices.py"
    held = without_linux(
        tmp_path / "site", "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, "-k", "ivfpq or vectors"
    )
    assert held.returncode == 0, held.stdout[-2000:]
