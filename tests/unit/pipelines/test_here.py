"""A stage in this process: what it writes, what it refuses, and what it leaves behind when something fails."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.errors import RunError, ServiceError, SourceError
from c2b_ray.pipelines.here import Here
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.progress import Progress
from c2b_ray.pipelines.stage import Rows, StageConfig
from c2b_ray.store.parts import read_stage, writing

SCHEMA = pa.schema([("id", pa.string()), ("by", pa.string()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=16), rows_per_file=32)


def rows(count: int, block: int = 50) -> Rows:
    ids = ids_of(count)
    return Rows([pa.table({"id": ids[i : i + block]}) for i in range(0, max(1, count), block)])


def ids_of(count: int) -> list[str]:
    return [f"r{i:05}" for i in range(count)]


def named(batch: pa.Table, role: str) -> pa.Table:
    """The reference step: every row by the role's name; every tenth row has an error."""
    errors = ["tenth" if key.endswith("0") else None for key in batch["id"].to_pylist()]
    return pa.table({"error": pa.array(errors, pa.string()), "id": batch["id"], "by": [role] * batch.num_rows})


def run(source: Rows, out: Path, step: Callable[..., pa.Table] = named, role: Any = "first", **more: Any) -> Any:
    factory = role if callable(role) else lambda: role
    return Here().run(source, step, factory, str(out), id_column="id", config=more.pop("config", CONFIG), **more)


def ids_in(out: Path) -> list[str]:
    return sorted(read_stage(str(out), ["id"])["id"].to_pylist())


def left_behind(out: Path) -> list[str]:
    return [name for name in os.listdir(out) if not name.startswith("part-") and name != ".lock"]


def test_writes_every_row_once_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = run(rows(200), tmp_path, on_progress=seen.append)
    assert (result.rows, result.errors, result.resumed) == (200, 20, 0)
    assert (seen[0].rows, seen[-1].rows, seen[-1].errors) == (0, 200, 20)
    assert ids_in(tmp_path) == ids_of(200)
    for part in tmp_path.glob("part-*"):
        assert pq.read_schema(part).equals(SCHEMA)
        assert pq.read_metadata(part).num_rows <= 32
    assert left_behind(tmp_path) == []
    result = run(rows(260), tmp_path, role="second")
    assert (result.rows, result.errors, result.resumed) == (60, 6, 200)
    by = read_stage(str(tmp_path), ["by"])["by"].to_pylist()
    assert (by.count("first"), by.count("second")) == (200, 60)
    # Nothing is left to do, so neither step nor role is needed.
    assert run(rows(260), tmp_path, step=None, role=lambda: refuse(ServiceError, "no weights")).resumed == 260


def refuse(kind: type[Exception], *args: str) -> Any:
    raise kind(*args)


def test_blocks_become_rows_where_the_source_says_how(tmp_path: Path) -> None:
    def expand(block: pa.Table) -> Iterator[pa.Table]:
        for first in block["first"].to_pylist():
            yield pa.table({"id": ids_of(100)[first : first + 7]})
            yield pa.table({"id": ids_of(100)[first + 7 : first + 10]})

    run(Rows([pa.table({"first": [i, i + 10]}) for i in range(0, 100, 20)], expand), tmp_path)
    assert ids_in(tmp_path) == ids_of(100)


def test_rows_that_are_repeated_are_written_once(tmp_path: Path) -> None:
    repeated = Rows([*rows(90).blocks, *rows(90, block=33).blocks, *rows(5).blocks])
    assert run(repeated, tmp_path).rows == 90
    assert ids_in(tmp_path) == ids_of(90)


def test_no_rows_give_an_empty_table(tmp_path: Path) -> None:
    assert run(Rows([pa.table({"id": pa.array([], pa.string())})]), tmp_path).rows == 0
    assert read_stage(str(tmp_path)).equals(SCHEMA.empty_table())
    assert run(rows(5), tmp_path).rows == 5
    assert ids_in(tmp_path) == ids_of(5)


def test_as_many_threads_as_configured_are_in_the_step(tmp_path: Path) -> None:
    def step(batch: pa.Table, role: threading.Barrier) -> pa.Table:
        role.wait()  # lets nobody pass alone
        return named(batch, str(threading.get_ident()))

    config = StageConfig(SCHEMA, Placement(batch=16, threads=2), rows_per_file=64)
    run(rows(128), tmp_path, step, lambda: threading.Barrier(2, timeout=30), config=config)
    assert ids_in(tmp_path) == ids_of(128)
    assert len(set(read_stage(str(tmp_path), ["by"])["by"].to_pylist())) == 2


def test_a_role_for_one_thread_is_never_called_by_two(tmp_path: Path) -> None:
    def step(batch: pa.Table, role: Any) -> pa.Table:
        assert role.acquire(blocking=False), "called while it was at work"
        time.sleep(0.01)
        role.release()
        return named(batch, "")

    run(rows(128), tmp_path, step, threading.Lock)
    assert ids_in(tmp_path) == ids_of(128)


def test_an_interrupt_keeps_what_was_answered_and_begins_no_other_batch(tmp_path: Path) -> None:
    begun: list[int] = []

    def step(batch: pa.Table, role: str) -> pa.Table:
        begun.append(batch.num_rows)
        if len(begun) == 5:
            raise KeyboardInterrupt  # as where Ctrl-C meets the thread that waits for this batch
        return named(batch, role)

    with pytest.raises(KeyboardInterrupt):
        run(rows(5000), tmp_path, step)
    assert left_behind(tmp_path) == []
    assert ids_in(tmp_path) == ids_of(4 * 16)
    time.sleep(0.1)
    assert len(begun) < 10
    assert run(rows(5000), tmp_path).resumed == 4 * 16
    assert ids_in(tmp_path) == ids_of(5000)


def test_an_error_is_raised_as_itself_and_the_stage_resumes(tmp_path: Path) -> None:
    def step(batch: pa.Table, role: str) -> pa.Table:
        return refuse(SourceError, "r00020 is not liked") if "r00020" in batch["id"].to_pylist() else named(batch, role)

    with pytest.raises(SourceError, match="r00020 is not liked"):
        run(rows(64), tmp_path, step, config=StageConfig(SCHEMA, Placement(batch=8, threads=3), rows_per_file=32))
    assert run(rows(64), tmp_path).rows + 16 == 64
    with pytest.raises(ServiceError, match=r"^no weights$"):
        run(rows(70), tmp_path, role=lambda: refuse(ServiceError, "no weights"))
    assert ids_in(tmp_path) == ids_of(64)


@pytest.mark.parametrize(
    "step",
    [
        lambda batch, role: named(batch, role).slice(1),
        lambda batch, role: pa.concat_tables([named(batch, role)] * 2),
    ],
    ids=["loses a row", "doubles rows"],
)
def test_a_step_that_does_not_give_a_row_per_row_is_refused(tmp_path: Path, step: Callable[..., pa.Table]) -> None:
    with pytest.raises(ValueError, match="a step gives one row per row"):
        run(rows(20), tmp_path, step)


def test_a_null_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="id is null in 1 rows of the source"):
        run(Rows([pa.table({"id": ["a", None]})]), tmp_path)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with writing(str(tmp_path)), pytest.raises(RunError, match="another process is writing here"):
        run(rows(5), tmp_path)


def test_a_source_is_read_ahead_and_never_all_at_once(tmp_path: Path) -> None:
    given, answered, most = [0], [0], [0]

    def expand(block: pa.Table) -> Iterator[pa.Table]:
        for start in range(0, 4000, 16):
            given[0] += 16
            most[0] = max(most[0], given[0] - answered[0])
            yield pa.table({"id": ids_of(4000)[start : start + 16]})

    def step(batch: pa.Table, role: str) -> pa.Table:
        answered[0] += batch.num_rows
        return named(batch, role)

    run(Rows([pa.table({"block": [0]})], expand), tmp_path, step)
    assert ids_in(tmp_path) == ids_of(4000)
    assert 16 < most[0] <= 16 * 8
