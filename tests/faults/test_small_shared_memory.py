"""A container's /dev/shm of 64 MB, Docker's default: what is prepared for models goes through Ray all the same.

The stage runs below a mount of its own (`unshare`, which only root may), with a real /dev/shm of that size.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROWS, PIXELS = 1500, 224 * 224 * 3
PROGRAM = f"""
import json, shutil, sys
import pyarrow as pa
from c2b_ray.audits.doctor import shared_memory
from c2b_ray.engine import cluster as nodes
from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.ray_stage import OnRay, prepared_bytes
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.storage.parts import read_stage

SCHEMA = pa.schema([("id", pa.string()), ("size", pa.int64())])

def prepare(rows):
    pictures = [bytes([int(name) % 256]) * {PIXELS} for name in rows["id"].to_pylist()]
    return rows.append_column("picture", pa.array(pictures, pa.binary({PIXELS})))

def step(rows, role):
    pictures = rows["picture"].to_pylist()
    assert all(picture[-1] == int(name) % 256 for name, picture in zip(rows["id"].to_pylist(), pictures))
    return pa.table({{"id": rows["id"], "size": [len(picture) for picture in pictures]}}, SCHEMA)

ids = [str(number) for number in range({ROWS})]
rows = Rows([pa.table({{"id": ids[start : start + 256]}}) for start in range(0, {ROWS}, 256)], total={ROWS})
shared = shutil.disk_usage("/dev/shm").total
with ensure_ray(num_cpus=2):
    placement = Placement(batch=256, cpus=0.5, decoders=2)
    config = StageConfig(SCHEMA, placement, total={ROWS})
    OnRay().run(rows, step, str, sys.argv[1], id_column="id", config=config, prepare=prepare)
    store = nodes.object_store_bytes()
found = read_stage(sys.argv[1])
print(json.dumps({{
    "shared": shared, "store": store, "block": prepared_bytes(2, store),
    "ids": sorted(map(int, found["id"].to_pylist())),
    "sizes": sorted(set(found["size"].to_pylist())), "doctor": shared_memory(shared, 1).text,
}}))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting a small /dev/shm needs root")
def test_prepared_pictures_pass_through_a_container_with_64_mb(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    inside = f"mount -t tmpfs -o size=64m tmpfs /dev/shm && exec {sys.executable} program.py {tmp_path / 'out'}"
    ran = subprocess.run(["unshare", "-m", "sh", "-c", inside], cwd=tmp_path, capture_output=True, text=True)
    if "Operation not permitted" in ran.stderr and "unshare" in ran.stderr:
        pytest.skip("this container's root may not mount")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["shared"] == 64 * 2**20
    assert told["store"] == 512 * 2**20  # in files: more than /dev/shm holds
    assert told["block"] <= told["store"] // 8
    assert told["ids"] == list(range(ROWS))
    assert told["sizes"] == [PIXELS]  # 226 MB in all
    assert "Ray keeps its objects in files, which is slower, too little to hand pictures to a GPU" in told["doctor"]
