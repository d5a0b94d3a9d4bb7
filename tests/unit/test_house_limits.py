"""The house's limits: no function over 40 lines, no file over 300."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("c2b_ray", "bench", "deployments", "k8s", "docs", "tests")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_a_file_fits_its_limits(path):
    text = path.read_text(encoding="utf-8")
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    long = {node.name: node.end_lineno - node.lineno + 1 for node in functions if node.end_lineno - node.lineno >= 40}
    assert not long
    assert len(text.splitlines()) <= 300


TOGETHER = ("unit", "audits", "contract", "golden", "browser")


def test_test_files_of_one_process_have_names_of_their_own():
    """pytest imports them by their names alone: of two alike, one could not be collected beside the other."""
    names = [path.name for kind in TOGETHER for path in (ROOT / "tests" / kind).rglob("test_*.py")]
    assert sorted(name for name, count in Counter(names).items() if count > 1) == []
