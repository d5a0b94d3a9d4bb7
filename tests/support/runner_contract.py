"""The contract of every runner of stages, in this process or on Ray: a toy step, and tests that take `runner`.

A module that inherits `RunnerContract` provides the fixture `runner`. With Ray workers, it also registers this module
to be pickled by value, as the workers cannot import it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_preparations import SECOND, measured, shown

from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.rows import SecondTable
from c2b_ray.engine.stage import Prepare, Rows, Runner, StageConfig
from c2b_ray.errors import ConfigError, RunError, ServiceError, SourceError
from c2b_ray.storage.parts import read_stage, writing

SCHEMA = pa.schema([("id", pa.string()), ("by", pa.string()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=16), rows_per_file=32)


def ids_of(count: int) -> list[str]:
    return [f"r{i:05}" for i in range(count)]


def rows(count: int, block: int = 50) -> Rows:
    ids = ids_of(count)
    return Rows([pa.table({"id": ids[i : i + block]}) for i in range(0, max(1, count), block)])


def named(batch: pa.Table, role: str) -> pa.Table:
    """The toy step: adds the role's name to every row, and an error to every tenth row."""
    errors = ["tenth" if key.endswith("0") else None for key in batch["id"].to_pylist()]
    return pa.table({"error": pa.array(errors, pa.string()), "id": batch["id"], "by": [role] * batch.num_rows})


def run(
    runner: Runner,
    source: Rows,
    out: Path,
    step: Callable[..., pa.Table] = named,
    role: Any = "first",
    config: StageConfig = CONFIG,
    on_progress: Callable[[Progress], None] | None = None,
    prepare: Prepare | None = None,
    also: SecondTable | None = None,
) -> Any:
    """Runs the toy step. `role`: the role itself, or a function that makes it."""
    factory = role if callable(role) else lambda: role
    return runner.run(
        source,
        step,
        factory,
        str(out),
        id_column="id",
        config=config,
        on_progress=on_progress,
        prepare=prepare,
        also=also,
    )


def ids_in(out: Path) -> list[str]:
    return sorted(read_stage(str(out), ["id"])["id"].to_pylist())


def left_behind(out: Path) -> list[str]:
    return [name for name in os.listdir(out) if not name.startswith("part-") and name != ".lock"]


def refuse(kind: type[Exception], *args: str) -> Any:
    raise kind(*args)


def met(batch: pa.Table, role: threading.Barrier) -> pa.Table:
    """A step whose role makes each thread wait until another one arrives."""
    role.wait()
    return named(batch, f"{os.getpid()}-{threading.get_ident()}")


class RunnerContract:
    def test_writes_every_row_once_and_goes_on_where_it_ended(self, runner: Runner, tmp_path: Path) -> None:
        seen: list[Progress] = []
        result = run(runner, rows(200), tmp_path, on_progress=seen.append)
        assert (result.rows, result.errors, result.resumed) == (200, 20, 0)
        assert (seen[0].rows, seen[0].resumed) == (0, 0)
        assert (seen[-1].rows, seen[-1].errors, seen[-1].resumed, seen[-1].total) == (200, 20, 0, None)
        assert seen[-1].rows_per_second > 0
        assert [p.rows for p in seen] == sorted(p.rows for p in seen)
        assert ids_in(tmp_path) == ids_of(200)
        for part in tmp_path.glob("part-*"):
            assert pq.read_schema(part).equals(SCHEMA)
            assert pq.read_metadata(part).num_rows <= 32
        assert left_behind(tmp_path) == []
        result = run(runner, rows(260), tmp_path, role="second")
        assert (result.rows, result.errors, result.resumed) == (60, 6, 200)
        assert ids_in(tmp_path) == ids_of(260)
        by = read_stage(str(tmp_path), ["by"])["by"].to_pylist()
        assert (by.count("first"), by.count("second")) == (200, 60)

    def test_a_step_gets_prepared_rows_whose_columns_are_a_second_table(self, runner: Runner, tmp_path: Path) -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        also = SecondTable(str(second), SECOND, "id")
        assert run(runner, rows(90), first, shown, prepare=measured, also=also).rows == 90
        result = run(runner, rows(200), first, shown, prepare=measured, also=also)
        assert (result.rows, result.resumed) == (110, 90)
        assert read_stage(str(first)).sort_by("id")["by"].to_pylist() == [f"{name}first" for name in ids_of(200)]
        assert read_stage(str(first)).schema == SCHEMA
        assert read_stage(str(second)).sort_by("id").equals(pa.table({"id": ids_of(200), "length": [6] * 200}, SECOND))
        assert left_behind(first) == left_behind(second) == []

    def test_lists_of_ids_have_one_row_each_in_the_second_table(self, runner: Runner, tmp_path: Path) -> None:
        def each(batch: pa.Table, role: str) -> pa.Table:
            return (
                pa.table({"id": batch["id"].combine_chunks().flatten()})
                .append_column("by", pa.array([role] * len(batch["id"].combine_chunks().flatten())))
                .append_column("error", pa.nulls(len(batch["id"].combine_chunks().flatten()), pa.string()))
            )

        source = pa.table({"image": ids_of(60), "id": [[f"{name}a", f"{name}b"] for name in ids_of(60)]})
        also = SecondTable(str(tmp_path / "second"), pa.schema([("image", pa.string())]), "image")
        assert run(runner, Rows([source]), tmp_path / "first", each, also=also).rows == 120
        assert sorted(read_stage(also.out)["image"].to_pylist()) == ids_of(60)

    def test_no_rows_give_an_empty_second_table(self, runner: Runner, tmp_path: Path) -> None:
        none = Rows([pa.table({"id": pa.array([], pa.string())})])
        also = SecondTable(str(tmp_path / "second"), SECOND, "id")
        run(runner, none, tmp_path / "first", shown, prepare=measured, also=also)
        assert read_stage(also.out).equals(SECOND.empty_table())

    def test_a_preparation_that_loses_a_row_is_refused(self, runner: Runner, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="rows are prepared one by one"):
            run(runner, rows(20), tmp_path, shown, prepare=lambda batch: measured(batch).slice(1))

    def test_where_nothing_is_left_neither_step_nor_role_is_needed(self, runner: Runner, tmp_path: Path) -> None:
        with writing(str(tmp_path)) as parts:
            parts.write(named(pa.table({"id": ids_of(60)}), "earlier"), "id")
        seen: list[Progress] = []
        config = StageConfig(SCHEMA, Placement(batch=16), total=40)
        nothing: Any = None
        result = run(
            runner, rows(40), tmp_path, nothing, lambda: refuse(ServiceError, "no weights"), config, seen.append
        )
        # The other rows below `out` do not belong to this source.
        assert (result.rows, result.resumed) == (0, 40)
        assert (seen[-1].done, seen[-1].total) == (40, 40)

    def test_blocks_become_rows_where_the_source_says_how(self, runner: Runner, tmp_path: Path) -> None:
        def expand(block: pa.Table) -> Iterator[pa.Table]:
            for first in block["first"].to_pylist():
                yield pa.table({"id": ids_of(100)[first : first + 7]})
                yield pa.table({"id": ids_of(100)[first + 7 : first + 10]})

        blocks = [pa.table({"first": [i, i + 10]}) for i in range(0, 100, 20)]
        with writing(str(tmp_path)) as parts:
            parts.write(named(pa.table({"id": ids_of(30)}), "earlier"), "id")
        source = Rows(blocks, expand, 100, lambda: iter([pa.array(ids_of(100))]))
        result = run(runner, source, tmp_path)
        assert (result.rows, result.resumed) == (70, 30)
        assert ids_in(tmp_path) == ids_of(100)

    def test_rows_that_are_repeated_are_written_once(self, runner: Runner, tmp_path: Path) -> None:
        repeated = Rows([*rows(90).blocks, *rows(90, block=33).blocks, *rows(5).blocks])
        assert run(runner, repeated, tmp_path).rows == 90
        assert ids_in(tmp_path) == ids_of(90)

    def test_no_rows_give_an_empty_table(self, runner: Runner, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="holds no part"):
            read_stage(str(tmp_path))
        assert run(runner, Rows([pa.table({"id": pa.array([], pa.string())})]), tmp_path).rows == 0
        assert read_stage(str(tmp_path)).equals(SCHEMA.empty_table())
        assert run(runner, rows(5), tmp_path).rows == 5
        assert ids_in(tmp_path) == ids_of(5)

    def test_as_many_threads_as_configured_share_a_role(self, runner: Runner, tmp_path: Path) -> None:
        config = StageConfig(SCHEMA, Placement(batch=16, threads=2), rows_per_file=64)
        run(runner, rows(128, block=64), tmp_path, met, lambda: threading.Barrier(2, timeout=30), config)
        assert ids_in(tmp_path) == ids_of(128)
        by = [name.split("-") for name in set(read_stage(str(tmp_path), ["by"])["by"].to_pylist())]
        assert len({process for process, _ in by}) == 1
        assert len(by) >= 2

    def test_what_a_call_yields_comes_one_by_one_and_its_error_as_it_was_raised(self, runner: Runner) -> None:
        def counted() -> Iterator[int]:
            yield from range(3)
            raise ConfigError("heads", "no image was made")

        values = runner.iterate(counted, StageConfig(SCHEMA, Placement(batch=1), rows_per_file=1))
        assert [next(values) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ConfigError, match="heads: no image was made") as error:
            next(values)
        assert error.value.field == "heads"

    def test_a_role_for_one_thread_is_never_called_by_two(self, runner: Runner, tmp_path: Path) -> None:
        def step(batch: pa.Table, role: Any) -> pa.Table:
            assert role.acquire(blocking=False), "called while it was at work"
            time.sleep(0.02)
            role.release()
            return named(batch, "")

        config = StageConfig(SCHEMA, Placement(batch=16), rows_per_file=16)
        run(runner, rows(128, block=16), tmp_path, step, threading.Lock, config)
        assert ids_in(tmp_path) == ids_of(128)

    @pytest.mark.parametrize(
        ("kind", "args"), [(SourceError, ("r00100 is not liked",)), (ConfigError, ("classifier", "no such option"))]
    )
    def test_what_a_step_raises_arrives_as_itself_and_the_stage_resumes(
        self, runner: Runner, tmp_path: Path, kind: type[Exception], args: tuple[str, ...]
    ) -> None:
        def later(batch: pa.Table, role: str) -> pa.Table:
            if "r00100" not in batch["id"].to_pylist():
                return named(batch, role)
            for _ in range(300):
                if any(tmp_path.glob("part-*")):
                    break
                time.sleep(0.02)
            return refuse(kind, *args)

        config = StageConfig(SCHEMA, Placement(batch=8, threads=3), rows_per_file=32)
        with pytest.raises(kind) as raised:
            run(runner, rows(128), tmp_path, later, config=config)
        expected = kind(*args)
        assert type(raised.value) is kind
        assert (str(raised.value), vars(raised.value)) == (str(expected), vars(expected))
        assert left_behind(tmp_path) == []
        result = run(runner, rows(128), tmp_path, config=config)
        assert result.resumed > 0
        assert result.rows + result.resumed == 128
        assert ids_in(tmp_path) == ids_of(128)

    def test_a_role_that_cannot_be_built_says_why(self, runner: Runner, tmp_path: Path) -> None:
        with pytest.raises(ServiceError, match=r"^no weights$"):
            run(runner, rows(20), tmp_path, role=lambda: refuse(ServiceError, "no weights"))

    @pytest.mark.parametrize(
        "step",
        [
            lambda batch, role: named(batch, role).slice(1),
            lambda batch, role: pa.concat_tables([named(batch, role)] * 2),
        ],
        ids=["loses a row", "doubles rows"],
    )
    def test_a_step_that_does_not_give_a_row_per_row_is_refused(
        self, runner: Runner, tmp_path: Path, step: Callable[..., pa.Table]
    ) -> None:
        with pytest.raises(ValueError, match="a step gives one row per row"):
            run(runner, rows(20), tmp_path, step)

    def test_a_null_id_is_refused(self, runner: Runner, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="id is null in 1 rows of the source"):
            run(runner, Rows([pa.table({"id": ["a", None]})]), tmp_path)

    def test_one_writer_at_a_time(self, runner: Runner, tmp_path: Path) -> None:
        with writing(str(tmp_path)), pytest.raises(RunError, match="another process is writing here"):
            run(runner, rows(5), tmp_path)

    def test_an_interrupt_leaves_a_stage_that_resumes(self, runner: Runner, tmp_path: Path) -> None:
        def interrupt(progress: Progress) -> None:
            if progress.rows:
                raise KeyboardInterrupt

        def slowly(batch: pa.Table, role: str) -> pa.Table:
            time.sleep(0.05)
            return named(batch, role)

        with pytest.raises(KeyboardInterrupt):
            run(runner, rows(600), tmp_path, slowly, on_progress=interrupt)
        assert left_behind(tmp_path) == []
        held = len(ids_in(tmp_path))
        assert 0 < held < 600
        time.sleep(0.3)
        assert len(ids_in(tmp_path)) == held, "something wrote after the end"
        assert run(runner, rows(600), tmp_path).resumed == held
        assert ids_in(tmp_path) == ids_of(600)
