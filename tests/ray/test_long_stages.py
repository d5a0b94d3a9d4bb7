"""A stage that lasts: it tells of its first batch, outlives deaths, ends at the next batch, and its pool grows."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray

from c2b_ray.engine import cluster
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig, StageResult
from c2b_ray.errors import ServiceError
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([("id", pa.string()), ("by", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=8), rows_per_file=32)


def rows(count: int, block: int = 32) -> Rows:
    ids = [f"r{i}" for i in range(count)]
    return Rows([pa.table({"id": ids[a : a + block]}) for a in range(0, count, block)], total=count)


def run(count: int, out: Path, step: Callable[..., pa.Table], config: StageConfig = CONFIG, **more: Any) -> StageResult:
    more.setdefault("role_factory", str)
    return OnRay().run(rows(count), step, out=str(out), id_column="id", config=config, **more)


def by_process(batch: pa.Table, seconds: float = 0.0) -> pa.Table:
    time.sleep(seconds)
    return pa.table({"id": batch["id"], "by": [str(os.getpid())] * batch.num_rows})


def test_progress_begins_with_the_first_batch(tmp_path: Path) -> None:
    seen: list[Progress] = []
    config = StageConfig(SCHEMA, Placement(batch=8), rows_per_file=64, total=64)
    run(64, tmp_path, lambda batch, role: by_process(batch, 0.6), config, on_progress=seen.append)
    early = [progress for progress in seen if progress.rows == 0 and progress.answered]
    assert early, "nothing was told before the first part"
    assert early[0].answered < 64
    assert early[0].rows_per_second > 0
    answered = [progress.answered for progress in seen]
    assert answered == sorted(answered)
    assert (seen[-1].answered, seen[-1].rows) == (64, 64)


def test_deaths_over_different_rows_do_not_end_a_stage(tmp_path: Path) -> None:
    """As where nodes are taken away, again and again, in a night of work. More deaths than `restarts`; but each takes
    one neighbour with it, for a process has two blocks under way."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def step(batch: pa.Table, role: str) -> pa.Table:
        first = batch["id"][0].as_py()
        if int(first[1:]) % 64 == 0 and not (mark := marks / first).exists():
            mark.touch()
            os._exit(1)
        return by_process(batch)

    config = StageConfig(SCHEMA, Placement(batch=32), rows_per_file=32, restarts=3)
    result = run(320, tmp_path / "out", step, config)
    assert result.rows == 320
    assert len(list(marks.iterdir())) == 5


def test_a_model_that_kills_its_process_ends_the_stage(tmp_path: Path) -> None:
    config = StageConfig(SCHEMA, Placement(batch=8), rows_per_file=32, restarts=1)
    with pytest.raises(ServiceError, match="died 2 times while it loaded"):
        run(64, tmp_path, lambda batch, role: batch, config, role_factory=lambda: os._exit(1))


def test_an_interrupt_ends_the_work_at_the_next_batch(tmp_path: Path) -> None:
    """A block takes 30 seconds, and each process has up to four of them before it."""
    begun = tmp_path / "begun"
    begun.mkdir()

    def step(batch: pa.Table, role: str) -> pa.Table:
        (begun / f"{time.time()}").touch()
        return by_process(batch, 0.3)

    def interrupt() -> None:
        while not any(begun.iterdir()):
            time.sleep(0.05)
        time.sleep(0.5)
        sent.append(time.time())
        os.kill(os.getpid(), signal.SIGINT)

    sent: list[float] = []
    config = StageConfig(SCHEMA, Placement(batch=1), rows_per_file=100)
    threading.Thread(target=interrupt, daemon=True).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(1000, tmp_path / "out", step, config)
    finally:
        signal.signal(signal.SIGINT, before)
    ended = time.time()
    print(f"the driver ended {ended - sent[0]:.1f} s after the interrupt")
    assert ended - sent[0] < 10
    time.sleep(3)
    last = max(float(path.name) for path in begun.iterdir())
    print(f"the last batch began {last - sent[0]:.1f} s after the interrupt")
    assert last < ended + 1


@contextmanager
def reserved(cpus: float) -> Iterator[None]:
    """CPUs that others hold, as replicas of Serve do."""

    @ray.remote(num_cpus=cpus)
    class Replica:
        def ready(self) -> None: ...

    replica = Replica.remote()
    ray.get(replica.ready.remote())
    yield
    ray.kill(replica)


def processes_of(out: Path) -> set[str]:
    return set(read_stage(str(out), ["by"])["by"].to_pylist())


def test_a_pool_grows_while_rows_wait(tmp_path: Path) -> None:
    config = StageConfig(SCHEMA, Placement(batch=8, cpus=0.1, max_actors=3), rows_per_file=8)
    run(240, tmp_path, lambda batch, role: by_process(batch, 0.5), config)
    assert 1 < len(processes_of(tmp_path)) <= 3


@pytest.mark.parametrize("held", [0.0, 1.0])
def test_a_pool_leaves_the_reads_what_they_need(tmp_path: Path, held: float) -> None:
    """On two CPUs, of which others hold some, there is no room for all the processes that the pool may have."""
    config = StageConfig(SCHEMA, Placement(batch=8, cpus=0.5, max_actors=6), rows_per_file=8)
    with reserved(held):
        assert run(120, tmp_path, lambda batch, role: by_process(batch, 0.3), config).rows == 120
    assert len(processes_of(tmp_path)) <= 2


def test_the_cluster_is_read_as_it_is() -> None:
    here = cluster.cluster()
    assert [(node.cpus, node.gpus, node.gpus_left) for node in here.nodes] == [(2.0, 0.0, 0.0)]
    assert "ray.io/node-id" in here.nodes[0].labels
    assert not here.elastic
    with reserved(0.5):
        assert cluster.free_cpus()[0] <= 1.5


def test_processes_run_on_nodes_with_the_labels(tmp_path: Path) -> None:
    node = ray.get_runtime_context().get_node_id()
    config = StageConfig(SCHEMA, Placement(batch=8, labels={"ray.io/node-id": node}), rows_per_file=32)
    assert run(32, tmp_path, lambda batch, role: by_process(batch), config).rows == 32
