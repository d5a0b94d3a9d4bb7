"""Measures the endpoint's latency against that of a bare FastAPI + SQLAlchemy application in the same run.

    PYTHONPATH=. python bench/endpoint_latency.py [--clients 50] [--seconds 20] [--rounds 3] [--database postgresql://…]

Each application runs in one uvicorn process over its own database (SQLite: WAL, each commit synced). k6 measures them
in turn, with 50 clients that never pause: GET of one job's status, and POST of a job. The bare application checks no
key, quota or config, and writes one row. The endpoint checks all of these, and also writes an event and an entry of the
audit log. Both answer a POST once its row is synced to disk.

The script prints mean, p50 and p99 of each in ms, the CPU time of the server's process per request (`cpu`, which other
work on the machine changes little), requests per second, the medians over rounds, and their ratios.

50 clients that never pause saturate either server, so the mean is 50 over the requests per second. In the bare
application, each of FastAPI's 40 threads has its own connection. Its writers poll for SQLite's lock and overtake each
other at random, so its median is short and its p99 long; the endpoint's writers queue. For SQLite, therefore, compare
the means.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import BaseModel
from sqlalchemy import JSON, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

CONFIG = {
    "task": "Classify pictures of everyday objects outdoors.",
    "classes": ["bus", "boat"],
    "classifier": "world:resnet-planted-0",
    "images": {"source": "generate", "generator": "world:renderer"},
    "attributes": {"weather": ["clear", "snow"]},
    "images_per_caption": 8,
}
RATIOS = ("mean", "p50", "p99", "cpu")
SCRIPT = """
import http from 'k6/http';
import { check } from 'k6';
export const options = { vus: %(clients)d, duration: '%(seconds)ds', summaryTrendStats: ['avg', 'med', 'p(99)'] };
const params = { headers: { Authorization: 'Bearer %(key)s', 'Content-Type': 'application/json' } };
const body = %(body)s;
export default function () {
  const answer = %(get)s ? http.get('%(url)s', params) : http.post('%(url)s', body, params);
  check(answer, { 'is a success': (a) => a.status === 200 || a.status === 202 });
}
"""


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "bare_jobs"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    state: Mapped[str]
    created: Mapped[float]
    config: Mapped[dict[str, object]] = mapped_column(JSON)


class New(BaseModel):
    kind: str
    config: dict[str, object]


class Job(New):
    id: int
    state: str
    created: float


def bare_app(database: str) -> object:
    """Returns an application as a tutorial would write it."""
    from fastapi import FastAPI, HTTPException

    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"), pool_size=20, max_overflow=20)
    if database.startswith("sqlite"):

        @event.listens_for(engine, "connect")
        def _settings(connection: object, record: object) -> None:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 60000"):
                connection.execute(f"PRAGMA {pragma}")  # type: ignore[attr-defined]

    Base.metadata.create_all(engine)
    app = FastAPI()

    def shown(row: Row) -> Job:
        return Job(id=row.id, kind=row.kind, config=row.config, state=row.state, created=row.created)

    @app.get("/jobs/{job_id}")
    def read(job_id: int) -> Job:
        with Session(engine) as session:
            row = session.get(Row, job_id)
            if row is None:
                raise HTTPException(404)
            return shown(row)

    @app.post("/jobs", status_code=202)
    def create(new: New) -> Job:
        with Session(engine) as session:
            row = Row(kind=new.kind, config=new.config, state="queued", created=time.time())
            session.add(row)
            session.commit()
            return shown(row)

    return app


def endpoint_app(folder: str, database: str) -> object:
    from c2b_ray.config.endpoint import read_endpoint
    from c2b_ray.endpoint.application import create_application
    from c2b_ray.endpoint.ledger import migrations, tenants
    from c2b_ray.endpoint.ledger.database import Database

    quotas = {"requests_per_second": 1e6, "burst": 1_000_000, "concurrent_jobs": 10_000_000}
    config = read_endpoint({"folder": folder, "database": database, "quotas": quotas})
    db = Database(config.database_url)
    migrations.prepare(db)
    tenant = tenants.by_name(db, "bench") or tenants.create(db, "bench")
    Path(folder, "key").write_text(tenants.create_key(db, tenant.id, "bench").text)
    return create_application(config, db)


def serve(which: str, folder: str, database: str, port: int) -> None:
    import uvicorn

    app = bare_app(database) if which == "bare" else endpoint_app(folder, database)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Server:
    """A running server. `process`: the id of its only process."""

    url: str
    process: int

    def cpu_seconds(self) -> float:
        """Returns the user and system time that the process has used so far."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(which: str, folder: Path, database: str, port: int) -> Iterator[Server]:
    command = [sys.executable, __file__, "--serve", which, "--folder", str(folder), "--database", database,
               "--port", str(port)]  # fmt: skip
    process = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/openapi.json")
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield Server(url, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def measured(folder: Path, fields: dict[str, object], server: Server) -> dict[str, float]:
    """Returns mean, p50, p99 and CPU time in ms, and requests per second; raises where an answer reports a failure."""
    before = server.cpu_seconds()
    script, summary = folder / "load.js", folder / "summary.json"
    script.write_text(SCRIPT % fields)
    run = ["k6", "run", "--quiet", "--summary-export", str(summary), str(script)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PATH": path}
    )
    metrics = json.loads(summary.read_text())["metrics"]
    if failed := metrics["checks"]["fails"]:
        raise SystemExit(f"{failed} answers of {fields['url']} were no success")
    times, requests = metrics["http_req_duration"], metrics["http_reqs"]
    cpu = 1000 * (server.cpu_seconds() - before) / requests["count"]
    return {"mean": times["avg"], "p50": times["med"], "p99": times["p(99)"], "cpu": cpu, "rate": requests["rate"]}


def urls_of(folder: Path, bare: str, endpoint: str) -> tuple[dict[str, dict[str, str]], str]:
    """Returns the URLs by request and application, and the endpoint's key."""
    key = (folder / "key").read_text()
    body, headers = {"kind": "c2b", "config": CONFIG}, {"Authorization": f"Bearer {key}"}
    of_bare = httpx.post(f"{bare}/jobs", json=body).json()["id"]
    of_endpoint = httpx.post(f"{endpoint}/v1/audits", json=body, headers=headers).json()["id"]
    return {
        "GET status": {"bare": f"{bare}/jobs/{of_bare}", "endpoint": f"{endpoint}/v1/audits/{of_endpoint}"},
        "POST submit": {"bare": f"{bare}/jobs", "endpoint": f"{endpoint}/v1/audits"},
    }, key


def compare(arguments: argparse.Namespace) -> dict[str, object]:
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        databases = [arguments.database or f"sqlite:///{folder / which}.db" for which in ("bare", "ledger")]
        with started("bare", folder, databases[0], 8441) as bare, started("ledger", folder, databases[1], 8442) as ours:
            servers = {"bare": bare, "endpoint": ours}
            asked, key = urls_of(folder, bare.url, ours.url)
            for _ in range(arguments.rounds):
                for what, urls in asked.items():
                    for whose, url in urls.items():
                        fields = {
                            "clients": arguments.clients, "seconds": arguments.seconds, "key": key, "url": url,
                            "get": json.dumps(what.startswith("GET")),
                            "body": json.dumps(json.dumps({"kind": "c2b", "config": CONFIG})),
                        }  # fmt: skip
                        results.setdefault(what, {}).setdefault(whose, []).append(
                            measured(folder, fields, servers[whose])
                        )
    return {what: summarised(by) for what, by in results.items()}


def summarised(by: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    medians = {
        whose: {name: round(statistics.median(one[name] for one in rounds), 2) for name in (*RATIOS, "rate")}
        for whose, rounds in by.items()
    }
    ratios = {name: round(medians["endpoint"][name] / medians["bare"][name], 2) for name in RATIOS}
    return {**medians, "ratio": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", help="URL of an empty PostgreSQL database for the tables of both")
    parser.add_argument("--serve", choices=("bare", "ledger"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.folder, arguments.database, arguments.port)
    else:
        print(json.dumps(compare(arguments), indent=2))


if __name__ == "__main__":
    main()
