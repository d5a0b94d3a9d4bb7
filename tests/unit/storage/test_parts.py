"""The parts of a stage: one writer at a time, nothing of a dead one is left, every id once."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from c2b_ray.errors import RunError
from c2b_ray.storage.parts import opened, read_stage, writing


def table(ids: list[str]) -> pa.Table:
    return pa.table({"id": ids, "error": pa.nulls(len(ids), pa.string())})


def ids_in(out: Path) -> list[str]:
    return sorted(read_stage(str(out), ["id"])["id"].to_pylist())


def left_behind(out: Path) -> list[str]:
    return [name for name in os.listdir(out) if not name.startswith("part-") and name != ".lock"]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(RunError, match="another process is writing here")
    with writing(str(tmp_path)), refused, writing(str(tmp_path)):
        pass
    with writing(str(tmp_path)):
        pass


def test_a_late_writer_of_an_earlier_run_cannot_write(tmp_path: Path) -> None:
    with writing(str(tmp_path)) as earlier:
        earlier.write(table(["a", "b"]), "id")
    with writing(str(tmp_path)):
        with pytest.raises(RunError, match="another run has taken over"):
            earlier.put("part-late.parquet", table(["a", "b"]))
        with pytest.raises(RunError, match="another run has taken over"):
            earlier.note("actor")
    assert ids_in(tmp_path) == ["a", "b"]
    assert left_behind(tmp_path) == []


def test_repeats_between_parts_are_dropped(tmp_path: Path) -> None:
    with writing(str(tmp_path)) as parts:
        for ids in (["a", "b", "c"], ["c", "d"], ["a", "d"], ["e"]):
            parts.write(table(ids), "id")
        assert parts.drop_repeats("id").rows == 5
        assert ids_in(tmp_path) == list("abcde")
        before = {name: (tmp_path / name).stat().st_mtime_ns for name in parts.names()}
        assert parts.drop_repeats("id").rows == 5
        assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in parts.names()}


def test_a_killed_writers_folder_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-0123").mkdir()
    (tmp_path / ".tmp-0123" / "part-x.parquet-01").write_bytes(b"half")
    with writing(str(tmp_path)) as parts:
        assert left_behind(tmp_path) == [parts.run]
    assert opened(str(tmp_path)).names() == []
