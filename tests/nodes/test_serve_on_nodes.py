"""Models behind Serve on three nodes: a replica and a node die under a stage; one of two audits ends first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from ray import serve
from raylets import Raylets, kill

from c2b_ray import load_run
from c2b_ray.audits.kit.backend import backend
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.roles import Classifier
from c2b_ray.serving.ensure import VARIABLE, ensure
from c2b_ray.storage.parts import read_stage
from c2b_ray.world import CLASSES
from c2b_ray.world.table import write_sample

SCHEMA = pa.schema([("id", pa.string()), ("by", pa.float32()), ("error", pa.string())])
CONFIG = StageConfig(SCHEMA, Placement(batch=10, min_actors=2, max_actors=2, cpus=0.2), rows_per_file=20)
CLASSIFIER = "world:resnet-control-0"
ROWS, SCENES = 1000, 1800
PATIENCE_S = 240
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def placement(tmp_path: Path) -> Path:
    """Two replicas on two nodes, of which none is the head."""
    deployed = {
        "name": "Classifiers",
        "num_replicas": 2,
        "max_replicas_per_node": 1,
        "health_check_period_s": 1,
        "ray_actor_options": {"num_cpus": 0.1, "label_selector": {"node": "!head"}},
    }
    app = {"name": "classifiers", "route_prefix": None, "import_path": "c2b_ray.serving.app:classifiers"}
    path = tmp_path / "placement.yaml"
    path.write_text(yaml.safe_dump({"applications": [{**app, "args": {}, "deployments": [deployed]}]}))
    return path


@pytest.fixture
def serving(nodes: Raylets, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs start apps of their own on this cluster, which end with it at the latest."""
    monkeypatch.setenv(VARIABLE, "own")
    yield
    serve.shutdown()


def slowly(batch: pa.Table, model: Classifier) -> pa.Table:
    time.sleep(0.2)
    images = [np.full((8, 8, 3), int(name[1:]) % 256, np.uint8) for name in batch["id"].to_pylist()]
    logits = model.logits(images, batch["id"].to_pylist())
    errors = pa.nulls(batch.num_rows, pa.string())
    return pa.table({"id": batch["id"], "by": pa.array(logits[:, 0], pa.float32()), "error": errors})


def replicas(nodes: Raylets, name: str) -> list[int]:
    return nodes.nodes[name].processes("ServeReplica")


@pytest.mark.usefixtures("serving")
def test_a_replica_and_then_its_node_die_under_a_stage(
    nodes: Raylets, third: str, placement: Path, tmp_path: Path
) -> None:
    died: list[str] = []

    def disturb(progress: Progress) -> None:
        if progress.rows >= ROWS / 8 and not died:
            kill(replicas(nodes, "gpus"))
            died.append("replica")
        elif progress.rows >= ROWS / 4 and died == ["replica"]:
            nodes.kill(third)
            died.append("node")

    with ensure(classifiers=True, placement=placement) as served:
        deadline = time.monotonic() + PATIENCE_S
        while not (replicas(nodes, "gpus") and replicas(nodes, third)):
            assert time.monotonic() < deadline, serve.status()
            time.sleep(0.5)
        model = served.classifier(CLASSIFIER)
        ids = [f"r{i}" for i in range(ROWS)]
        source = Rows([pa.table({"id": ids[i : i + 50]}) for i in range(0, ROWS, 50)])
        out = str(tmp_path / "stage")
        result = OnRay().run(source, slowly, lambda: model, out, id_column="id", config=CONFIG, on_progress=disturb)
    assert died == ["replica", "node"]
    assert (result.rows, result.errors) == (ROWS, 0)
    assert Counter(read_stage(out, ["id"])["id"].to_pylist()) == Counter(dict.fromkeys(ids, 1))


@pytest.mark.usefixtures("serving")
def test_an_audit_goes_on_where_another_one_with_the_same_models_ends_first(tmp_path: Path) -> None:
    write_sample(tmp_path / "scenes.parquet", SCENES, seed=1002)
    config = {
        "task": "Name the thing.",
        "classes": list(CLASSES),
        "classifier": CLASSIFIER,
        "images": {"source": "labelled", "table": "scenes.parquet"},
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "c2b_ray", "audit", "audit.yaml", "--out", "run", "--via", "serve", "--json"]
    with backend("serve") as first:
        first.start()
        model = first.classifier(CLASSIFIER)()
        pixels = [np.zeros((8, 8, 3), np.uint8)]
        before = model.logits(pixels, ["a"])
        second = subprocess.Popen(
            command, cwd=tmp_path, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + PATIENCE_S
        while not list(tmp_path.glob("run/predictions/part-*.parquet")):
            assert second.poll() is None, second.communicate()
            assert time.monotonic() < deadline, "no prediction was written"
            time.sleep(0.05)
        np.testing.assert_array_equal(model.logits(pixels, ["a"]), before)
    # The first has ended, and what it had started is its own no more.
    out, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, err
    assert sum(json.loads(out)["verdicts"].values()) == load_run(tmp_path / "run").scores.num_rows
    predicted = load_run(tmp_path / "run").predictions["image_id"].to_pylist()
    assert len(predicted) == len(set(predicted)) == SCENES
