"""Measures how soon a small audit starts while another tenant's job of a million images holds the only slot.

    python bench/endpoint_fairness.py [--images 1000000] [--small 3]

The script starts `c2b endpoint` in a folder of its own and submits the large audit as one tenant. Once that audit is at
work, it submits small audits as the other tenant, one after the other. For each small audit it prints the time from
submission to start, to the first progress, and to the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.ledger import tenants
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.world import CLASSES
from c2b_ray.world.scenes import sample
from c2b_ray.world.table import labelled_table

PORT = 18431
CLASSIFIER = "world:resnet-control-0"


def write_table(path: Path, images: int) -> None:
    """Writes a table with a few pictures, each under many keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    few = labelled_table(sample(40, seed=5))
    many = pa.concat_tables([few] * 500)
    with pq.ParquetWriter(path, few.schema) as writer:
        for start in range(0, images, many.num_rows):
            count = min(many.num_rows, images - start)
            names = pa.array([f"k{row:08d}" for row in range(start, start + count)])
            writer.write_table(many.slice(0, count).set_column(0, "key", names))


def audit(table: str) -> dict[str, Any]:
    images = {"source": "labelled", "table": table}
    config = {"task": "Name the thing.", "classes": list(CLASSES), "classifier": CLASSIFIER, "images": images}
    return {"kind": "c2b", "config": config}


class Tenant:
    """A tenant with its key, and with its table in the folder that its audits read."""

    def __init__(self, db: Database, name: str, storage: str, images: int) -> None:
        tenant = tenants.create(db, name)
        write_table(Path(storage, "tenants", tenant.id, "data", "scenes.parquet"), images)
        text = tenants.create_key(db, tenant.id, "bench").text
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{PORT}", headers={"Authorization": f"Bearer {text}"}, timeout=30
        )

    def submit(self) -> str:
        answer = self._client.post("/v1/audits", json=audit("data/scenes.parquet"))
        answer.raise_for_status()
        return str(answer.json()["id"])

    def wait(self, job_id: str, *, answered: bool = False, ended: bool = False) -> dict[str, Any]:
        while True:
            job: dict[str, Any] = self._client.get(f"/v1/audits/{job_id}").json()
            if job["state"] in ("failed", "cancelled"):
                raise SystemExit(json.dumps(job, indent=1))
            if job["state"] == "finished" or (
                not ended and job["started"] and (not answered or job["progress"]["stage"])
            ):
                return job
            time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=3)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="c2b-fairness-"))
    file = folder / "endpoint.yaml"
    file.write_text(yaml.safe_dump({"folder": str(folder / "endpoint"), "listen": f"127.0.0.1:{PORT}", "via": "here"}))
    config = read_endpoint(file)
    began = time.monotonic()
    command = [sys.executable, "-m", "c2b_ray", "endpoint", "--config", str(file)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    try:
        await_ready(process)
        print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
        measure(Database(config.database_url), config.storage_root, options)
    finally:
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        process.wait(60)
        print(f"ended {time.monotonic() - began:.1f} s after Ctrl-C")
    return 0


def await_ready(process: subprocess.Popen[bytes]) -> None:
    while True:
        if process.poll() is not None:
            raise SystemExit("the endpoint ended")
        try:
            if httpx.get(f"http://127.0.0.1:{PORT}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)


def measure(db: Database, storage: str, options: argparse.Namespace) -> None:
    large = Tenant(db, "large", storage, options.images)
    small = Tenant(db, "small", storage, 200)
    big = large.submit()
    began = time.monotonic()
    large.wait(big, answered=True)
    print(f"large: at work {time.monotonic() - began:.1f} s after it was submitted", flush=True)
    for number in range(options.small):
        began = time.monotonic()
        job_id = small.submit()
        small.wait(job_id)
        started = time.monotonic() - began
        small.wait(job_id, answered=True)
        answered = time.monotonic() - began
        small.wait(job_id, ended=True)
        ended = time.monotonic() - began
        print(f"small {number + 1}: starts {started:.1f} s, at work {answered:.1f} s, ends {ended:.1f} s", flush=True)
        large.wait(big, answered=True)
        time.sleep(10)
    job = large.wait(big)
    progress = job["progress"]
    print(f"large: {progress['stage']}: {progress['done']} of {progress['total']}; it yielded {job['slices']} times")


if __name__ == "__main__":
    sys.exit(main())
