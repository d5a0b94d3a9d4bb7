"""The processes of the endpoint that bench/endpoint_chaos.py kills, over a PostgreSQL of their own, and two tenants."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import postgres
import pyarrow.parquet as pq
import yaml

from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.ledger import migrations, tenants
from c2b_ray.endpoint.ledger import tenants as keys
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.world.scenes import sample
from c2b_ray.world.table import labelled_table

ROWS = 200
"""The number of images of an audit."""
LEASE_S = 6.0


@dataclass
class Part:
    """A process of the endpoint, which can be killed and started again."""

    name: str
    command: list[str]
    log: Path
    url: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        mark = {**os.environ, "TMPDIR": str(self.log.parent)}  # inherited by jobs' processes: see `left_behind`
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=mark, start_new_session=True)

    def tree(self) -> list[int]:
        """Returns the ids of this process and of all that it started."""
        assert self.process is not None
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        tree = [self.process.pid]
        for pid in tree:
            tree += parents.get(pid, [])
        return tree

    @property
    def ended(self) -> bool:
        """Whether the process has ended; no part should end by itself."""
        return self.process is not None and self.process.poll() is not None

    def signal(self, number: int, *, whole: bool = False) -> None:
        assert self.process is not None
        for pid in self.tree() if whole else [self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, *, whole: bool = False) -> None:
        assert self.process is not None
        self.signal(signal.SIGKILL, whole=whole)
        self.process.wait()

    def await_ready(self, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200:
                    return
            time.sleep(0.2)
        raise SystemExit(f"{self.name} does not answer after {seconds:.0f} s; see {self.log}")


@dataclass
class Site:
    """The database server, the ledger and the processes of the endpoint."""

    folder: Path
    server: postgres.Postgres
    db: Database
    storage: str
    parts: list[Part]
    keys: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Part]:
        return [part for part in self.parts if part.name.startswith(kind)]

    def left_behind(self) -> list[int]:
        """Returns processes that outlived the part that started them."""
        held = {pid for part in self.parts for pid in part.tree()}
        mark, found = f"TMPDIR={self.folder}".encode(), []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes().split(b"\0") and int(environ.parent.name) not in held:
                    found.append(int(environ.parent.name))
        return found


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Site]:
    with postgres.running() as server:
        url = server.url(server.new_database())
        parts, config = [], None
        for kind, number in [(kind, number) for kind in ("api", "runner", "dispatcher") for number in (0, 1)]:
            file = folder / f"{kind}-{number}.yaml"
            listen = f"127.0.0.1:{18451 + number}"
            section = {"lease_seconds": LEASE_S, "slice_seconds": 10.0, "spare": False}
            quotas = {"concurrent_jobs": 10_000, "requests_per_second": 10_000.0, "burst": 100_000}
            fields = {"folder": str(folder), "database": url, "listen": listen, "via": "here", "runners": section}
            file.write_text(yaml.safe_dump({**fields, "quotas": quotas}))
            command = [sys.executable, "-m", "c2b_ray", "endpoint", kind, "--config", str(file)]
            parts.append(Part(f"{kind}-{number}", command, folder / f"{kind}-{number}.log", f"http://{listen}"))
            config = read_endpoint(file)
        assert config is not None
        db = Database(url)
        migrations.prepare(db)
        site = Site(folder, server, db, config.storage_root, parts, [tenant(db, n, config.storage_root) for n in "ab"])
        try:
            for part in parts:
                part.start()
            for part in site.of("api"):
                part.await_ready()
            yield site
        finally:
            for part in parts:
                if part.process is not None:
                    part.signal(signal.SIGCONT, whole=True)
                    part.kill(whole=True)
            db.close()


def tenant(db: Database, name: str, storage: str) -> str:
    """Creates a tenant with a table of labelled scenes in its folder, and returns its key."""
    made = tenants.create(db, name)
    path = Path(storage, "tenants", made.id, "data", "scenes.parquet")
    path.parent.mkdir(parents=True)
    pq.write_table(labelled_table(sample(ROWS, seed=5)).slice(0, ROWS), path)
    return keys.create_key(db, made.id, "bench").text
