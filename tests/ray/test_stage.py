"""A stage on one cluster: what it writes, what it refuses, and what it leaves behind when something fails."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from c2b_ray.errors import C2BError, ConfigError, RunError, ServiceError, SourceError
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.progress import Progress
from c2b_ray.pipelines.ray_stage import OnRay
from c2b_ray.pipelines.stage import Rows, StageConfig
from c2b_ray.store.parts import opened, read_stage, writing

SCHEMA = pa.schema([("id", pa.string()), ("by", pa.string()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=16), rows_per_file=32)


def rows(count: int, start: int = 0, block: int = 50) -> Rows:
    ids = [f"r{i}" for i in range(start, count)]
    return Rows([pa.table({"id": ids[i : i + block]}) for i in range(0, max(1, len(ids)), block)])


def named(batch: pa.Table, role: str) -> pa.Table:
    """The reference step: every row by the role's name; every tenth row has an error."""
    errors = ["tenth" if key.endswith("0") else None for key in batch["id"].to_pylist()]
    return pa.table({"error": pa.array(errors, pa.string()), "id": batch["id"], "by": [role] * batch.num_rows})


def run(source: Rows, out: Path, step: Callable[..., pa.Table] = named, role: Any = "first", **more: Any) -> Any:
    factory = role if callable(role) else lambda: role
    return OnRay().run(source, step, factory, str(out), id_column="id", config=more.pop("config", CONFIG), **more)


def ids_in(out: Path) -> list[str]:
    return sorted(read_stage(str(out), ["id"])["id"].to_pylist())


def ids_of(count: int) -> list[str]:
    return sorted(f"r{i}" for i in range(count))


def left_behind(out: Path) -> list[str]:
    return [name for name in os.listdir(out) if not name.startswith("part-") and name != ".lock"]


def test_writes_every_row_once_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = run(rows(200), tmp_path, on_progress=seen.append)
    assert (result.rows, result.errors, result.resumed) == (200, 20, 0)
    assert (seen[0].rows, seen[0].resumed) == (0, 0)
    assert (seen[-1].rows, seen[-1].errors, seen[-1].resumed, seen[-1].total) == (200, 20, 0, None)
    assert seen[-1].rows_per_second > 0
    assert [p.rows for p in seen] == sorted({p.rows for p in seen})
    assert ids_in(tmp_path) == ids_of(200)
    for part in tmp_path.glob("part-*"):
        assert pq.read_schema(part).equals(SCHEMA)
        assert pq.read_metadata(part).num_rows <= 32
    assert left_behind(tmp_path) == []

    result = run(rows(260), tmp_path, role="second")
    assert (result.rows, result.errors, result.resumed) == (60, 6, 200)
    assert ids_in(tmp_path) == ids_of(260)
    by = read_stage(str(tmp_path), ["by"])["by"].to_pylist()
    assert (by.count("first"), by.count("second")) == (200, 60)

    result = run(rows(260), tmp_path, step=None)
    assert (result.rows, result.resumed) == (0, 260)
    # Neither the lock nor a writer's folder is in a reader's way.
    assert ray.data.read_parquet(str(tmp_path)).count() == 260


def test_threads_of_one_actor_share_its_role(tmp_path: Path) -> None:
    def meeting() -> threading.Barrier:
        return threading.Barrier(2, timeout=30)  # lets nobody pass alone

    def step(batch: pa.Table, role: threading.Barrier) -> pa.Table:
        role.wait()
        return named(batch, f"{os.getpid()}")

    config = StageConfig(SCHEMA, Placement(batch=16, threads=2), rows_per_file=64)
    result = run(rows(128, block=64), tmp_path, step=step, role=meeting, config=config)
    assert result.rows == 128
    assert ids_in(tmp_path) == ids_of(128)
    assert len(set(read_stage(str(tmp_path), ["by"])["by"].to_pylist())) == 1


def test_an_actor_begins_the_next_block_before_the_last_one_ends(tmp_path: Path) -> None:
    def step(batch: pa.Table, role: threading.Barrier) -> pa.Table:
        role.wait()  # for a batch of another block: each has only one
        return named(batch, "")

    config = StageConfig(SCHEMA, Placement(batch=16, threads=2), rows_per_file=16)
    run(rows(64, block=16), tmp_path, step=step, role=lambda: threading.Barrier(2, timeout=30), config=config)
    assert ids_in(tmp_path) == ids_of(64)


def test_a_role_for_one_thread_is_never_called_by_two(tmp_path: Path) -> None:
    def step(batch: pa.Table, role: Any) -> pa.Table:
        assert role.acquire(blocking=False), "called while it was at work"
        time.sleep(0.05)
        role.release()
        return named(batch, "")

    config = StageConfig(SCHEMA, Placement(batch=16), rows_per_file=16)
    run(rows(128, block=16), tmp_path, step=step, role=threading.Lock, config=config)
    assert ids_in(tmp_path) == ids_of(128)


def test_an_error_in_one_thread_ends_the_stage(tmp_path: Path) -> None:
    def step(batch: pa.Table, role: str) -> pa.Table:
        if "r20" in batch["id"].to_pylist():
            raise SourceError("r20 is not liked")
        return named(batch, role)

    config = StageConfig(SCHEMA, Placement(batch=8, threads=3), rows_per_file=32)
    with pytest.raises(SourceError, match="r20 is not liked"):
        run(rows(64), tmp_path, step=step, config=config)
    run(rows(64), tmp_path, config=config)
    assert ids_in(tmp_path) == ids_of(64)


def test_a_source_that_repeats_rows_gives_each_once(tmp_path: Path) -> None:
    result = run(Rows([*rows(90).blocks, *rows(90, block=33).blocks, *rows(5).blocks]), tmp_path)
    assert result.rows == 90
    assert ids_in(tmp_path) == ids_of(90)


def test_a_source_without_rows_gives_an_empty_table(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no part"):
        read_stage(str(tmp_path))
    empty = Rows([pa.table({"id": pa.array([], pa.string())})])
    assert run(empty, tmp_path).rows == 0
    assert read_stage(str(tmp_path)).equals(SCHEMA.empty_table())
    assert run(rows(5), tmp_path).rows == 5
    assert ids_in(tmp_path) == ids_of(5)


def test_more_actors_than_processors_still_leave_one_to_read(tmp_path: Path) -> None:
    config = StageConfig(SCHEMA, Placement(batch=8, cpus=1.0, min_actors=3, max_actors=3), rows_per_file=8)
    assert run(rows(60), tmp_path, config=config).rows == 60


def refuse(kind: type[Exception], *args: str) -> Any:
    raise kind(*args)


@pytest.mark.parametrize(
    ("kind", "args"), [(ServiceError, ("the model is gone",)), (ConfigError, ("classifier", "no such option"))]
)
def test_what_the_role_raises_arrives_as_itself_and_the_stage_resumes(
    tmp_path: Path, kind: type[C2BError], args: tuple[str, ...]
) -> None:
    def later(batch: pa.Table, role: list[int]) -> pa.Table:
        role.append(1)
        while len(role) == 8 and not list(tmp_path.glob("part-*")):
            time.sleep(0.1)
        return named(batch, "first") if len(role) < 8 else refuse(kind, *args)

    with pytest.raises(kind) as raised:
        run(rows(200), tmp_path, later, role=list)
    expected = kind(*args)
    assert type(raised.value) is kind
    assert (str(raised.value), vars(raised.value)) == (str(expected), vars(expected))
    assert left_behind(tmp_path) == []
    result = run(rows(200), tmp_path, role="second")
    assert result.resumed > 0
    assert ids_in(tmp_path) == ids_of(200)


def test_a_role_that_cannot_be_built_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"^no weights$"):
        run(rows(20), tmp_path, role=lambda: refuse(ServiceError, "no weights"))


def test_a_bug_in_a_step_keeps_its_type_and_says_where(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="nope") as raised:
        run(rows(20), tmp_path, lambda batch, role: batch["nope"])
    assert "In a worker of Ray" in raised.value.__notes__[0]


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


def test_an_actor_that_always_dies_ends_the_stage(tmp_path: Path) -> None:
    config = StageConfig(SCHEMA, Placement(batch=16), rows_per_file=32, restarts=1)
    with pytest.raises(ServiceError, match="died 2 times over the same rows"):
        run(rows(20), tmp_path, lambda batch, role: os._exit(1), config=config)


def test_an_interrupt_leaves_a_stage_that_resumes(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.rows:
            raise KeyboardInterrupt

    def slowly(batch: pa.Table, role: str) -> pa.Table:
        time.sleep(0.1)
        return named(batch, role)

    with pytest.raises(KeyboardInterrupt):
        run(rows(300), tmp_path, slowly, on_progress=interrupt)
    assert left_behind(tmp_path) == []
    held = len(ids_in(tmp_path))
    assert 0 < held < 300
    time.sleep(0.5)
    assert len(ids_in(tmp_path)) == held, "a worker wrote after the end"
    assert run(rows(300), tmp_path).resumed == held
    assert ids_in(tmp_path) == ids_of(300)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(RunError, match="another process is writing here")
    with writing(str(tmp_path)), refused, writing(str(tmp_path)):
        pass
    with writing(str(tmp_path)):
        pass


def test_a_late_writer_of_an_earlier_run_finds_no_place(tmp_path: Path) -> None:
    table = named(pa.table({"id": ["a", "b"]}), "late")
    with writing(str(tmp_path)) as earlier:
        earlier.write(table, "id")
    with writing(str(tmp_path)):
        with pytest.raises(RunError, match="another run has taken over"):
            earlier.put("part-late.parquet", table)
        with pytest.raises(RunError, match="another run has taken over"):
            earlier.note("actor")
    assert ids_in(tmp_path) == ["a", "b"]
    assert left_behind(tmp_path) == []


def test_repeats_between_parts_are_dropped(tmp_path: Path) -> None:
    with writing(str(tmp_path)) as parts:
        for ids in (["a", "b", "c"], ["c", "d"], ["a", "d"], ["e"]):
            parts.write(named(pa.table({"id": ids}), "one"), "id")
        assert len(parts.drop_repeats("id").ids) == 5
        assert ids_in(tmp_path) == list("abcde")
        before = {name: (tmp_path / name).stat().st_mtime_ns for name in parts.names()}
        assert len(parts.drop_repeats("id").ids) == 5
        assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in parts.names()}


def test_a_killed_writers_folder_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-0123").mkdir()
    (tmp_path / ".tmp-0123" / "part-x.parquet-01").write_bytes(b"half")
    with writing(str(tmp_path)) as parts:
        assert left_behind(tmp_path) == [parts.run]
    assert opened(str(tmp_path)).names() == []
