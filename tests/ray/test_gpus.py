"""GPUs as Ray gives them, on a cluster that claims to have four: which one each actor of a stage takes.

In a process of its own, with a cluster of its own: the one of this folder has none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STAGE = """
import json, os, sys, time
import pyarrow as pa, ray
from c2b_ray.models import devices
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([("id", pa.int64()), ("error", pa.string()), ("actor", pa.int64()), ("gpus", pa.string()),
                    ("visible", pa.string()), ("device", pa.string()), ("precision", pa.string())])

def where(batch, role):
    time.sleep(0.2)  # so that no actor takes all blocks
    return pa.table({"id": batch["id"], "error": pa.nulls(len(batch), pa.string()),
                     **{name: [value] * len(batch) for name, value in role.items()}})

def role():
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # What CUDA would see on a node with four: what the variable names, and all of them without it.
    seen = 4 if visible is None else len(visible.split(","))
    return {"actor": os.getpid(), "gpus": json.dumps(devices.assignment().gpus), "visible": visible,
            "device": devices.device(None, "timm:x", seen), "precision": devices.precision(None, "timm:x")}

def stage(name, actors, gpus):
    placement = Placement(batch=4, min_actors=actors, max_actors=actors, cpus=0.1, gpus=gpus, precision="bf16")
    config = StageConfig(schema=SCHEMA, placement=placement, rows_per_file=4)
    rows = Rows([pa.table({"id": list(range(i, i + 4))}) for i in range(0, 64, 4)])
    OnRay().run(rows, where, role, f"{sys.argv[1]}/{name}", id_column="id", config=config)
    return read_stage(f"{sys.argv[1]}/{name}").to_pylist()

for attempt in (1, 2, 3):  # on a busy machine Ray gives up on processes that are slow to start
    try:
        ray.init(address="local", num_cpus=2, num_gpus=4, object_store_memory=2**28, include_dashboard=False,
                 log_to_driver=False)
        break
    except Exception:
        ray.shutdown()
print(json.dumps({"none": stage("none", 2, 0.0), "whole": stage("whole", 3, 1.0), "half": stage("half", 2, 0.5)}))
"""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    """None in this process."""


def test_each_actor_takes_the_gpu_that_ray_assigned_to_it_and_none_takes_the_cpu(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STAGE, str(tmp_path)], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    assert {(row["gpus"], row["device"]) for row in rows["none"]} == {("[]", "cpu")}
    assert {row["precision"] for name in rows for row in rows[name]} == {"bf16"}  # the placement's
    whole = {row["actor"]: row for row in rows["whole"]}
    assert len(whole) >= 2, "one actor did everything: nothing is shown"
    assert len({row["gpus"] for row in whole.values()}) == len(whole)  # each its own
    for row in [*whole.values(), *rows["half"]]:
        assert row["gpus"] == f'["{row["visible"]}"]'
        assert row["device"] == "cuda:0"  # the only one that CUDA sees there
    assert len({row["visible"] for row in rows["half"]}) == 1  # two halves share one
