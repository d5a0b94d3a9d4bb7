"""Tests that one process runs have files with names of their own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOGETHER = ("unit", "audits", "contract", "golden", "browser")


def test_test_files_of_one_process_have_names_of_their_own():
    """pytest imports them by their names alone: of two alike, one could not be collected beside the other."""
    names = [path.name for kind in TOGETHER for path in (ROOT / "tests" / kind).rglob("test_*.py")]
    assert sorted(name for name, count in Counter(names).items() if count > 1) == []
