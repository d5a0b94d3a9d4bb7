"""A stage in this process writes what it has: a kill loses what is in the step, and nothing that was answered."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from c2b_ray.audits.prompts.run import JUDGE, SEARCH
from c2b_ray.audits.prompts.steps.judging import judging_tasks
from c2b_ray.engine import here
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import Rows, StageConfig, cut
from c2b_ray.storage import files
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False)])


def test_a_long_row_is_in_a_file_before_the_next_one_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held until the next answer: a search of an hour was lost where the one after it was killed."""
    written, write_part = Event(), here.write_part

    def write(*arguments: Any) -> Any:
        part = write_part(*arguments)
        written.set()
        return part

    monkeypatch.setattr(here, "write_part", write)
    was_written: list[bool] = []

    def step(batch: pa.Table, role: None) -> pa.Table:
        if batch["id"].to_pylist() == ["b"]:
            was_written.append(written.wait(timeout=10))
        return batch

    table = pa.table({"id": ["a", "b"]}, SCHEMA)
    files.make_directory(tmp_path / "out")
    config = StageConfig(
        SCHEMA, Placement(batch=64), rows_per_file=1, weigh=lambda rows: [1] * len(rows), most_weight=1
    )
    here.InProcess().run(Rows([table]), step, lambda: None, str(tmp_path / "out"), id_column="id", config=config)
    assert was_written == [True]
    assert sorted(read_stage(str(tmp_path / "out"))["id"].to_pylist()) == ["a", "b"]


def test_searches_go_one_by_one_and_prompts_by_their_images() -> None:
    """A batch ends in a file or is lost; batches of 64 searches, or prompts, were most runs' whole work."""
    searches = pa.table({"search_id": [f"{n}" for n in range(6)]})
    assert [batch.num_rows for batch in cut(searches, SEARCH)] == [1] * 6
    assert SEARCH.rows_per_file == 1
    judged = judging_tasks([(f"prompt {n}", range(10)) for n in range(30)], "of a judge")
    assert [batch.num_rows for batch in cut(judged, JUDGE)] == [12, 12, 6]


def test_rows_that_are_done_are_not_held_until_others_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were held as tables without rows, and counted again for each table after them: the square of a resume."""
    joined: list[int] = []

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return getattr(pa, name)

        def concat_tables(self, tables: list[pa.Table]) -> pa.Table:
            joined.append(len(tables))
            return pa.concat_tables(tables)

    def run(rows: int) -> None:
        blocks = Rows([pa.table({"id": [f"{n}"]}, SCHEMA) for n in range(rows)])
        config = StageConfig(SCHEMA, Placement(batch=64))
        here.InProcess().run(blocks, lambda batch, role: batch, lambda: None, out, id_column="id", config=config)

    out = str(tmp_path / "out")
    files.make_directory(out)
    run(299)
    monkeypatch.setattr(here, "pa", Recorded())
    run(300)
    assert max(joined) == 1
