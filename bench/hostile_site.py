"""An endpoint for `hostile_requests`: a real server, an attacker and a victim with keys, and traps.

The traps are a server on this machine that records its requests, files with a secret text outside the attacker's
folder, and the victim's objects. This module knows no attack.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from endpoint_app import CONFIG, Endpoint, started
from live_endpoint import served
from run_recipes import Recipe
from safetensors.numpy import save
from synthetic_run import make_run

from c2b_ray.endpoint.ledger import tenants as keys

SECRET = "the-text-that-nobody-but-its-owner-may-read"
LISTED = "https://models.example.org/v1/"
FORMULAS = ("=cmd|' /C calc'!A0", "@SUM(1+1)*cmd", "+1+cmd|' /C'!A1", "-2+3+cmd|' /C'!A0")
POLICY = {
    "urls": [LISTED],
    "webhooks": ["https://hooks.example.org/c2b/"],
    "stores": ["s3://shared/public/"],
    "hub": ["timm/*"],
    "upload_bytes": 2**20,
    "body_bytes": 200_000,
    "image_bytes": 100_000,
    "image_pixels": 1_000_000,
    "archives": {"members": 100, "total_bytes": 2**20, "ratio": 50},
    "weights": {"seconds": 20, "memory_bytes": 2**30},
}


@dataclass
class Site:
    """The running endpoint. `victim`: ids of the other tenant's objects. `asked`: requests that reached the trap."""

    url: str
    endpoint: Endpoint
    trap: str
    asked: list[str]
    victim: dict[str, str] = field(default_factory=dict)
    attacker: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def root(self, tenant: str) -> Path:
        return Path(self.endpoint.context.tenant_root(self.endpoint.tenants[tenant]))


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    endpoint = started(folder / "endpoint", {"policy": POLICY})
    with trap() as (address, asked), served(endpoint.app) as url:
        made = Site(url, endpoint, address, asked)
        _furnish(made, folder)
        yield made


@contextmanager
def trap() -> Iterator[tuple[str, list[str]]]:
    """Yields the address of a server that nobody may reach, and the list of its requests."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(SECRET.encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def _furnish(made: Site, folder: Path) -> None:
    """Creates the files, jobs, uploads and keys of both tenants."""
    (folder / "outside.csv").write_text(SECRET)
    for tenant in ("a", "b"):
        (made.root(tenant) / "data").mkdir(parents=True)
    (made.root("b") / "data" / "secret.csv").write_text(SECRET)
    data = made.root("a") / "data"
    (data / "t.csv").write_text("image,target_class\na.png,bus\n")
    (data / "out").symlink_to(made.root("b") / "data")
    (data / "passwd").symlink_to("/etc/passwd")
    made.victim = _owned(made, "b", SECRET)
    made.attacker = _owned(made, "a", "mine")
    formulas = Recipe(classes=FORMULAS[:2], attributes={FORMULAS[2]: (FORMULAS[3], "plain")})
    job = made.endpoint.finish()
    make_run(Path(made.endpoint.context.run_path(made.endpoint.tenants["a"], job.id)), formulas)
    made.attacker["formulas"] = job.id
    db, tenant = made.endpoint.db, made.endpoint.tenants["a"]
    made.keys = dict(made.endpoint.keys)
    made.keys["expired"] = keys.create_key(db, tenant, "expired", {"submit", "read"}, 0.05).text
    revoked = keys.create_key(db, tenant, "revoked", {"submit", "read", "admin"})
    keys.revoke_key(db, tenant, revoked.key.id)
    made.keys["revoked"] = revoked.text
    time.sleep(0.1)


def _owned(made: Site, tenant: str, text: str) -> dict[str, str]:
    """Creates a waiting job, an ended one, an upload, a webhook, a key and a page's cursor of a tenant; returns ids."""
    ended = made.endpoint.finish(tenant=tenant)
    headers = {"Authorization": f"Bearer {made.endpoint.keys[tenant]}"}
    with httpx.Client(base_url=made.url, headers=headers) as client:
        body = {"kind": "c2b", "name": text, "config": CONFIG}
        jobs = [client.post("/v1/audits", json=body).raise_for_status().json()["id"] for _ in range(2)]
        data = save({text: np.ones(4, np.float32)})
        sent = client.post("/v1/uploads", content=data, headers={"X-Upload-Kind": "safetensors"}).raise_for_status()
        hook = client.post("/v1/webhooks", json={"url": f"https://hooks.example.org/c2b/{tenant}"}).raise_for_status()
        cursor = client.get("/v1/audits", params={"limit": 1}).raise_for_status().json()["next"]
    assert sent.json()["sha256"] == hashlib.sha256(data).hexdigest()
    key = keys.list_keys(made.endpoint.db, made.endpoint.tenants[tenant])[0]
    return {
        "tenant": made.endpoint.tenants[tenant], "ended": ended.id, "job": jobs[0], "upload": sent.json()["sha256"],
        "webhook": hook.json()["id"], "key": key.id, "cursor": cursor,
    }  # fmt: skip
