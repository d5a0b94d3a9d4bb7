"""GPUs that one of two nodes claims to have: where stages and replicas run, and which GPU each of them gets."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
import yaml
from ray import serve
from raylets import Raylets, node_of_actor

from c2b_ray.engine.placement import Placement
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.models import devices
from c2b_ray.serving.ensure import ensure
from c2b_ray.storage.parts import read_stage

pytestmark = pytest.mark.timeout(900)
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("id", "error", "node", "gpus", "visible", "device")] + [("process", pa.int64())]
)


def whereabouts(meeting: str, actors: int) -> dict[str, Any]:
    """The role: where its actor runs, and what Ray has assigned to it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # What CUDA would see on a node with two GPUs: those that the variable names, and both without it.
    seen = 2 if visible is None else len(visible.split(","))
    return {
        "node": node_of_actor(meeting, actors),
        "gpus": ",".join(map(str, ray.get_gpu_ids())),
        "visible": visible,
        "device": devices.device(None, "timm:any", seen),
        "process": os.getpid(),
    }


def tell(batch: pa.Table, role: dict[str, Any]) -> pa.Table:
    time.sleep(0.2)  # so that no actor takes all rows
    columns = {name: [value] * batch.num_rows for name, value in role.items()}
    return pa.table({"id": batch["id"], "error": pa.nulls(batch.num_rows, pa.string()), **columns})


def stage(folder: Path, actors: int, gpus: float) -> list[dict[str, Any]]:
    """One row of each actor."""
    meeting, out = folder / "meeting", str(folder / "stage")
    meeting.mkdir(parents=True)
    placement = Placement(batch=4, min_actors=actors, max_actors=actors, cpus=0.1, gpus=gpus)
    config = StageConfig(SCHEMA, placement, rows_per_file=4)
    source = Rows([pa.table({"id": [f"r{i}" for i in range(a, a + 4)]}) for a in range(0, 80, 4)])
    OnRay().run(source, tell, partial(whereabouts, str(meeting), actors), out, id_column="id", config=config)
    return list({row["process"]: row for row in read_stage(out).to_pylist()}.values())


@pytest.mark.usefixtures("nodes")
def test_each_actor_has_a_gpu_of_its_own_on_the_node_that_has_them(tmp_path: Path) -> None:
    actors = stage(tmp_path / "whole", 2, 1.0)
    assert {actor["node"] for actor in actors} == {"gpus"}
    assert sorted(actor["gpus"] for actor in actors) == ["0", "1"]
    assert [actor["visible"] for actor in actors] == [actor["gpus"] for actor in actors]
    assert [actor["device"] for actor in actors] == ["cuda:0", "cuda:0"]  # each sees its own alone


@pytest.mark.usefixtures("nodes")
def test_actors_share_a_gpu_or_have_none_as_written(tmp_path: Path) -> None:
    halves = stage(tmp_path / "halves", 2, 0.5)
    assert [actor["gpus"] for actor in halves] == [halves[0]["gpus"]] * 2
    none = stage(tmp_path / "none", 2, 0.0)
    assert {(actor["gpus"], actor["device"]) for actor in none} == {("", "cpu")}


@pytest.fixture
def placement(tmp_path: Path) -> Path:
    options = {"num_cpus": 0.1, "num_gpus": 0.75, "label_selector": {"pool": "gpu"}}
    deployed = {"name": "Classifiers", "num_replicas": 2, "ray_actor_options": options}
    app = {"name": "classifiers", "route_prefix": None, "import_path": "c2b_ray.serving.app:classifiers"}
    path = tmp_path / "placement.yaml"
    path.write_text(yaml.safe_dump({"applications": [{**app, "args": {}, "deployments": [deployed]}]}))
    return path


@pytest.fixture
def serving() -> Iterator[None]:
    yield
    serve.shutdown()


@pytest.mark.usefixtures("serving")
def test_replicas_run_on_the_gpus_of_their_placement(nodes: Raylets, placement: Path) -> None:
    with ensure(classifiers=True, placement=placement, tenancy="leased"):
        assert len(nodes.nodes["gpus"].processes("ServeReplica")) == 2
        assert not nodes.nodes["head"].processes("ServeReplica")
        # Two shares of three quarters: on different GPUs.
        assert ray.available_resources().get("GPU", 0.0) == pytest.approx(0.5)
