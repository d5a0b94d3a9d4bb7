"""An endpoint in one process: its application, a ledger in SQLite, two tenants with keys, and finished jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from c2b_ray.config.endpoint import EndpointConfig, read_endpoint
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.application import create_application
from c2b_ray.endpoint.ledger import jobs, migrations, running, tenants
from c2b_ray.endpoint.ledger import tenants as keys
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.tables import Job, NewJob

CONFIG: dict[str, Any] = {
    "task": "Classify pictures of everyday objects outdoors.",
    "classes": ["bus", "boat"],
    "classifier": "world:resnet-planted-0",
    "images": {"source": "generate", "generator": "world:renderer"},
    "attributes": {"weather": ["clear", "snow"]},
    "images_per_caption": 8,
}


@dataclass
class Endpoint:
    app: FastAPI
    client: TestClient
    config: EndpointConfig
    db: Database
    tenants: dict[str, str]
    keys: dict[str, str]
    _clients: dict[str, TestClient] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        return self.app.state.context

    def as_(self, name: str) -> TestClient:
        """Returns a client with this key: `a`, `reader` or `admin` (of tenant a), `b` (of tenant b), or `operator`."""
        if name not in self._clients:
            client = TestClient(self.app, raise_server_exceptions=False)
            client.headers["Authorization"] = f"Bearer {self.keys[name]}"
            self._clients[name] = client
        return self._clients[name]

    def submit(self, who: str = "a", **fields: Any) -> dict[str, Any]:
        answer = self.as_(who).post("/v1/audits", json={"kind": "c2b", "config": CONFIG, **fields})
        assert answer.status_code == 202, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def run_path(self, job_id: str, tenant: str = "a") -> Path:
        return Path(self.context.run_path(self.tenants[tenant], job_id))

    def finish(self, kind: str = "c2b", tenant: str = "a", path: str | None = None) -> Job:
        """Adds a finished job with its run at `path`; the default is the folder that runners use."""
        new = NewJob(kind, CONFIG, CONFIG)
        job, _ = jobs.submit(self.db, self.tenants[tenant], None, new, self.config.quotas)
        claim = self.claim(job.id)
        where = path or self.context.run_path(self.tenants[tenant], job.id)
        return running.finish(self.db, job.id, claim.fence, where, "weights-1")

    def claim(self, job_id: str) -> Any:
        leader = running.take_lease(self.db, "dispatcher", "tests", 60.0)
        assert leader is not None
        running.grant(self.db, job_id, leader)
        claim = running.claim(self.db, "runner", 3600.0)  # a longer lease than any test takes
        assert claim is not None
        assert claim.job.id == job_id
        return claim


def started(folder: Path, changes: Mapping[str, Any] | None = None) -> Endpoint:
    fields = {"folder": str(folder), "key_cache_seconds": 0, **(changes or {})}
    fields.setdefault("wrong_keys_at_once", 10_000)
    fields.setdefault("quotas", {"requests_per_second": 10_000.0, "burst": 10_000})
    config = read_endpoint(fields)
    db = Database(config.database_url)
    migrations.prepare(db)
    made = {name: tenants.create(db, name).id for name in ("a", "b", "operators")}
    wanted = {
        "a": ("a", ("submit", "read")),
        "b": ("b", ("submit", "read", "admin")),
        "reader": ("a", ("read",)),
        "submitter": ("a", ("submit",)),
        "admin": ("a", ("submit", "read", "admin")),
        "operator": ("operators", ("submit", "read", "admin")),
    }
    texts = {name: keys.create_key(db, made[tenant], name, scopes).text for name, (tenant, scopes) in wanted.items()}
    app = create_application(config, db)
    return Endpoint(app, TestClient(app, raise_server_exceptions=False), config, db, made, texts)
