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
from ray import cloudpickle
from raylets import PATIENCE_S, Raylets, node_of_actor

from c2b_ray.config.placement import read_placement
from c2b_ray.pipelines.shards.on_ray import CrewsOnRay
from c2b_ray.steps.dataset.shard import Crew

THREE = read_placement({"stages": {"shards": {"min_actors": 3, "max_actors": 3, "cpus": 2, "gpus": 0}}})
"""Each takes a node of its own: all of its CPUs."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def toys_travel_by_value() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(toy_dataset)
    yield
    cloudpickle.unregister_pickle_by_value(toy_dataset)


def slowly(meeting: str, makers: str) -> Crew:
    """The toys, once an actor of each node is there; each notes in `makers` the node that it draws on."""
    node = node_of_actor(meeting, 3)
    crew = toy_dataset.crew()
    generator: Any = crew.sources[0]
    generate = generator.generator.generate

    def noted(requests: Any) -> Any:
        Path(makers, node).touch()
        time.sleep(0.5)
        return generate(requests)

    generator.generator.generate = noted
    return crew


def kill_at_work(nodes: Raylets, name: str, makers: Path, out: Path) -> None:
    """Kills a node that draws, once two shards are there."""
    deadline = time.monotonic() + PATIENCE_S
    while not (makers / name).exists() or len(list(out.glob("candidates/*.draws.parquet"))) < 2:
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    nodes.kill(name)


def test_rows_are_the_same_when_a_node_dies(nodes: Raylets, third: str, meeting: str, tmp_path: Path) -> None:
    rows, drops, _ = toy_dataset.build(tmp_path / "here")
    makers, out = tmp_path / "makers", tmp_path / "there"
    makers.mkdir()
    death = threading.Thread(target=kill_at_work, args=(nodes, third, makers, out))
    death.start()
    crews = partial(CrewsOnRay, placement=THREE)
    there, dropped, workers = toy_dataset.build(out, crews=crews, make=partial(slowly, meeting, str(makers)))
    death.join()
    assert (there, dropped) == (rows, drops)
    assert {path.name for path in makers.iterdir()} == {"head", "gpus", third}
    assert workers.lost >= 1  # Ray may put a successor on the node before it knows that it is gone
    assert workers.repeated == 1
