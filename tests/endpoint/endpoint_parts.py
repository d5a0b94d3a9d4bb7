"""An endpoint whose API, dispatcher and runners are separate processes, and clients of its tenants."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from endpoint_command import free_port
from endpoint_work import PATIENCE_S, Site, site

from c2b_ray.endpoint.ledger import tenants

READY_S = 60.0
ENDS = ("finished", "failed", "cancelled")


@dataclass
class Parts:
    """The running processes. `site`: the ledger and the processes; `url`: the URL of the API."""

    site: Site
    url: str

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Starts `api`, `dispatcher` or `runner`, as operators do."""
        if name == "runner":
            return self.site.runner()
        command = [sys.executable, "-m", "c2b_ray", "endpoint", name, "--config", str(self.site.file)]
        with (self.site.file.parent / f"{name}.log").open("ab") as log:
            self.site.runners.append(subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True))
        return self.site.runners[-1]

    def client(self, tenant: str) -> httpx.Client:
        """Returns a client with a key of this tenant that submits and reads."""
        key = tenants.create_key(self.site.db, tenant, "tests", ("submit", "read")).text
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=60)

    def tenant(self, name: str) -> str:
        return tenants.create(self.site.db, name).id

    def submit(self, client: httpx.Client, kind: str, config: Mapping[str, Any]) -> str:
        """Submits a job and returns its path."""
        answer = client.post("/v1/audits", json={"kind": kind, "config": dict(config)})
        assert answer.status_code == 202, answer.text
        return str(answer.headers["Location"])

    def ended(self, client: httpx.Client, job: str, seconds: float = PATIENCE_S) -> dict[str, Any]:
        """Waits for the job's end and returns its body."""
        deadline = time.monotonic() + seconds
        while (body := client.get(job).json())["state"] not in ENDS:
            assert time.monotonic() < deadline, f"{body}\n{self.site.logs()}"
            time.sleep(0.2)
        return dict(body)


@contextlib.contextmanager
def parts(folder: Path, urls: list[str], fields: Mapping[str, Any], **runners: Any) -> Iterator[Parts]:
    """Yields all three processes once the API answers. `fields`: more fields of the endpoint's config file; `runners`:
    fields of its section `runners`."""
    listen = f"127.0.0.1:{free_port()}"
    with site(folder, urls, more={**fields, "listen": listen}, **runners) as made:
        result = Parts(made, f"http://{listen}")
        for name in ("api", "dispatcher", "runner"):
            result.start(name)
        deadline = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{result.url}/readyz").status_code == 200:
                    break
            assert time.monotonic() < deadline, made.logs()
            time.sleep(0.1)
        yield result
