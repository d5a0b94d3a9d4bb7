"""One Ray cluster of several nodes on this machine for all tests of this folder; a test adds the node that it kills.

There must be no __init__.py here or in tests/: with one, `import ray` could find this folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray import cloudpickle
from raylets import SOON, Hardware, Raylets, await_nodes, raylets

from c2b_ray.engine.cluster import ADDRESS, ensure_ray


@pytest.fixture(scope="session")
def nodes() -> Iterator[Raylets]:
    """The head and a node with two GPUs that it only claims to have; this process is connected to them."""
    with raylets(Hardware(cpus=2), {"gpus": Hardware(cpus=2, gpus=2, labels={"pool": "gpu"})}, SOON) as cluster:
        os.environ[ADDRESS] = cluster.address
        try:
            with ensure_ray():
                await_nodes(2)
                yield cluster
        finally:
            del os.environ[ADDRESS]


@pytest.fixture
def third(nodes: Raylets, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a third node, for one test; `pytest.mark.parametrize("third", [Hardware(...)], indirect=True)`."""
    name = "third"
    nodes.add(name, getattr(request, "param", Hardware(cpus=2)))
    await_nodes(3)
    yield name
    if name in nodes.nodes:
        nodes.kill(name)
    await_nodes(2)


@pytest.fixture(scope="module", autouse=True)
def steps_travel_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ray's workers have no path to the test modules: functions in them are sent whole."""
    for module in (request.module, sys.modules["raylets"]):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (request.module, sys.modules["raylets"]):
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def meeting(tmp_path: Path) -> str:
    """The folder where the actors of one stage meet (`raylets.node_of_actor`)."""
    folder = tmp_path / "meeting"
    folder.mkdir()
    return str(folder)
