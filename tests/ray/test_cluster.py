"""The cluster that `ensure_ray` starts."""

import os
import subprocess
import sys
from pathlib import Path

import ray

from c2b_ray.engine.cluster import reachable


def test_workers_are_as_nice_as_the_driver() -> None:
    @ray.remote
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    assert reachable()
    assert ray.get(niceness.remote()) == os.getpriority(os.PRIO_PROCESS, 0)


WORKERS_MODULE = """
import ray
from c2b_ray.engine.cluster import ensure_ray

@ray.remote
def where():
    import colorsys
    return colorsys.__file__

with ensure_ray(num_cpus=1, object_store_mb=100):
    print(ray.get(where.remote()))
"""


def test_workers_import_nothing_from_the_working_directory_of_a_command(tmp_path: Path) -> None:
    """Ray puts it first in their search path, so that a user's `random.py` ended every worker."""
    (tmp_path / "colorsys.py").write_text("raise SystemExit('the wrong module')\n")
    done = subprocess.run(
        [sys.executable, "-P", "-c", WORKERS_MODULE], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert Path(done.stdout.split()[-1]).parent == Path(os.__file__).parent
