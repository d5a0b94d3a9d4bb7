"""Compares tables that two processes computed: equal up to a tolerance of floats, since threads add in any order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest


def assert_alike(one: pa.Table, other: pa.Table, but: tuple[str, ...] = (), within: float = 1e-4) -> None:
    """Compares rows in any order, except for the columns in `but`."""
    assert one.schema.equals(other.schema)
    rows = [sorted((_row(row, but) for row in table.to_pylist()), key=_words) for table in (one, other)]
    assert len(rows[0]) == len(rows[1])
    for left, right in zip(*rows, strict=True):
        for name in left:
            _assert_near(left[name], right[name], within, name)


def _row(row: dict[str, Any], but: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in but}


def _words(row: dict[str, Any]) -> str:
    """Returns the sort key of a row: its values that are no floats, then its floats to two digits."""
    exact = [value for value in row.values() if not isinstance(value, float | list | dict)]
    return repr((exact, [round(value, 2) for value in row.values() if isinstance(value, float)]))


def _assert_near(left: Any, right: Any, within: float, name: str) -> None:
    if isinstance(left, list) and isinstance(right, list):
        assert len(left) == len(right), name
        for a, b in zip(left, right, strict=True):
            _assert_near(a, b, within, name)
    elif isinstance(left, dict) and isinstance(right, dict):
        assert left.keys() == right.keys(), name
        for key in left:
            _assert_near(left[key], right[key], within, f"{name}.{key}")
    elif isinstance(left, float) and isinstance(right, float):
        assert left == pytest.approx(right, rel=within, abs=within, nan_ok=True), name
    else:
        assert left == right, name
