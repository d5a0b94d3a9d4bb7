"""What starts without being needed: an import that a start pays for is one that nobody sees come in."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {
    "ray",
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "numba",
    "pandas",
    "scipy.stats",
    "scipy.optimize",
    "jsonschema",
}


@pytest.mark.parametrize(
    "module",
    [
        "c2b_ray.audits.c2b.audit",
        "c2b_ray.cli.audit",
        "c2b_ray.models.http_classifier",
        "c2b_ray.models.onnx_classifier",
        "c2b_ray.processes",
    ],
)
def test_a_start_imports_no_slow_library_that_it_may_not_need(module: str) -> None:
    code = f"import sys, {module}; print(*{SLOW} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
