"""A local audit file at an endpoint: what is sent, what is sent again, what it costs, and whether the rows are equal.

    python bench/remote_files.py [--images 2000]

Scenes of the embedded world as JPEGs of 500 × 375 pixels, in a folder a class with metadata.csv, and a classifier of
the world. The endpoint is one process on this machine, with its API, dispatcher and runner. The upload is broken off
after three parts, continued, and repeated; then the audit runs there and here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
import yaml
from PIL import Image

import c2b_ray
from c2b_ray.client import Endpoint
from c2b_ray.client.http import UnreachableError
from c2b_ray.client.local_files import Images, pack
from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.application import create_application
from c2b_ray.endpoint.work import dispatcher
from c2b_ray.storage.run import load_run
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample

SEED = 100_000
COLUMNS = ["target_class", "attribute", "bias_class", "n", "correct", "phi", "p_value", "verdict"]


class Counting(httpx.HTTPTransport):
    """Counts the bytes of bodies, and breaks off after some parts."""

    def __init__(self, parts: int = 10**9) -> None:
        super().__init__()
        self.bytes, self._left = 0, parts

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if "/parts/" in request.url.path and request.method == "PUT":
            self._left -= 1
            if self._left < 0:
                raise httpx.WriteError("the connection broke")
        self.bytes += int(request.headers.get("content-length", 0))
        return super().handle_request(request)


def photographs(folder: Path, count: int) -> None:
    rows = ["file_name,weather,lighting"]
    for number, scene in enumerate(sample(count, SEED)):
        name = f"{scene.target_class}/{number:05}.jpg"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene)).resize((500, 375)).save(folder / name, quality=90)
        rows.append(f"{name},{scene.weather},{scene.lighting}")
    (folder / "metadata.csv").write_text("\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    count = parser.parse_args().images
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), count)


def measure(folder: Path, count: int) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    from live_endpoint import served

    photographs(folder / "photos", count)
    source = sum(file.stat().st_size for file in (folder / "photos").rglob("*") if file.is_file())
    began = time.process_time()
    pack(Images(str(folder / "photos"), "images.table"), folder / "packed", lambda *_: None)
    packing, packed = time.process_time() - began, (folder / "packed").stat().st_size
    config = {
        "task": "Tell objects apart.", "classes": ["bus", "boat", "house"], "classifier": "world:resnet-planted-0",
        "images": {"source": "labelled", "table": "photos"}, "images_per_caption": 20,
    }  # fmt: skip
    (folder / "audit.yaml").write_text(yaml.safe_dump(config))
    settings = read_endpoint({"folder": str(folder / "site"), "via": "here", "runners": {"spare": False}})
    db = dispatcher.prepared(settings)
    key = str(dispatcher.first_key(db))
    with served(create_application(settings, db)) as url:
        sent = []
        for transport in (Counting(parts=3), Counting(), Counting()):
            with Endpoint(url, key, 0.1, transport) as client, suppress(UnreachableError):
                fields = client.upload_files("c2b", folder / "audit.yaml")
            sent.append(transport.bytes)
        with dispatcher.working(db, settings), Endpoint(url, key) as client:
            job = client.submit("c2b", fields)
            assert client.wait(job["id"])["state"] == "finished"
    [run] = (folder / "site" / "storage").glob(f"tenants/*/runs/{job['id']}")
    here, there = c2b_ray.audit(folder / "audit.yaml", folder / "here", via="here"), load_run(str(run))
    order = [(column, "ascending") for column in COLUMNS[:3]]
    rows = [one.scores.select(COLUMNS).sort_by(order).to_pylist() for one in (here, there)]
    equal = sum(a == b for a, b in zip(*rows, strict=True))
    what = (
        f"a local audit file of {count:,} photographs ({source / 2**20:.0f} MiB) at an endpoint: rows equal to those "
        "of the local run; bytes sent until the upload broke off, when it went on, when it came again; more bytes for "
        "being packed; CPU seconds to pack"
    )
    mib = [f"{one / 2**20:.1f}" for one in sent]
    reached = (
        f"**{equal} of {len(rows[0])}**; {mib[0]}, {mib[1]}, **{mib[2]} MiB**; {100 * (packed / source - 1):.1f} %; "
        f"{packing:.1f}"
    )
    command = f"`python bench/remote_files.py --images {count}`, 2 cores, 2026-11-27"
    print(f"| {what} | all; –; the rest; 0; –; – | {reached} | {command} |")


if __name__ == "__main__":
    main()
