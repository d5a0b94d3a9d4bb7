"""An endpoint without its API: a ledger, runners as processes, and jobs that tests write straight into the ledger."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from c2b_ray.config.endpoint import EndpointConfig, read_endpoint
from c2b_ray.endpoint.ledger import jobs, migrations, running, tenants, webhooks
from c2b_ray.endpoint.ledger import tenants as keys
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.running import DISPATCHER
from c2b_ray.endpoint.ledger.tables import Job, NewJob
from c2b_ray.world import CLASSES

PATIENCE_S = 120.0
LABELS = CLASSES[:5]


@dataclass
class Site:
    """The ledger, one tenant with a key, and the started runners."""

    config: EndpointConfig
    db: Database
    tenant: str
    key: str
    file: Path
    runners: list[subprocess.Popen[bytes]] = field(default_factory=list)
    tenants: dict[str, str] = field(default_factory=dict)

    def audit(self, scenes: Path, classifier: str, tenant: str | None = None) -> dict[str, Any]:
        """Puts a table into the tenant's folder and returns the resolved config of its audit."""
        folder = Path(self.config.storage_root, "tenants", tenant or self.tenant, "data")
        folder.mkdir(parents=True, exist_ok=True)
        table = folder / scenes.name
        if not table.exists():
            table.hardlink_to(scenes)
        return labelled_audit(table, classifier)

    def submit(self, resolved: dict[str, Any], kind: str = "c2b", tenant: str | None = None, **more: Any) -> str:
        new = NewJob(kind, more.pop("config", resolved), resolved, **more)
        key = self.key if tenant is None else None
        job, _ = jobs.submit(self.db, tenant or self.tenant, key, new, self.config.quotas)
        self.tenants[job.id] = job.tenant_id
        return job.id

    def grant(self, job_id: str) -> None:
        """Grants the job as a dispatcher would."""
        lease = running.take_lease(self.db, DISPATCHER, "the test", 60.0)
        assert lease is not None
        assert running.grant(self.db, job_id, lease)

    def grant_due(self, job_id: str) -> bool:
        """Grants the job unless it still waits for its next attempt; tells whether it did."""
        due = job_id in [job.id for job in running.waiting(self.db)]
        if due:
            self.grant(job_id)
        return due

    def ask_to_yield(self, job_id: str) -> None:
        lease = running.take_lease(self.db, DISPATCHER, "the test", 60.0)
        assert lease is not None
        assert running.ask_to_yield(self.db, job_id, lease)

    def runner(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "c2b_ray", "endpoint", "runner", "--config", str(self.file)]
        log = (self.file.parent / f"runner-{len(self.runners)}.log").open("ab")
        with log:
            self.runners.append(subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True))
        return self.runners[-1]

    def job(self, job_id: str) -> Job:
        """Returns the job, even when the database has just restarted."""
        deadline = time.monotonic() + 10
        while True:
            try:
                job = jobs.get(self.db, None, job_id)
            except DatabaseDownError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
                continue
            assert job is not None
            return job

    def run_path(self, job_id: str) -> Path:
        return Path(self.config.storage_root, "tenants", self.tenants[job_id], "runs", job_id)

    def parts(self, job_id: str, table: str = "predictions") -> list[Path]:
        return sorted(self.run_path(job_id).glob(f"{table}/part-*.parquet"))

    def wait(self, what: Callable[[], Any], reason: str, seconds: float = PATIENCE_S) -> Any:
        deadline = time.monotonic() + seconds
        while not (result := what()):
            assert time.monotonic() < deadline, f"{reason}: not within {seconds:.0f} s\n{self.logs()}"
            time.sleep(0.05)
        return result

    def wait_for(self, job_id: str, *states: str, seconds: float = PATIENCE_S) -> Job:
        self.wait(lambda: self.job(job_id).state in states, f"{job_id} to be {states}", seconds)
        return self.job(job_id)

    def states(self, job_id: str) -> list[str]:
        """Returns the states that the job's events name, in order."""
        return [event.data["state"] for event in webhooks.events_after(self.db, job_id) if event.kind == "state"]

    def logs(self) -> str:
        texts = (path.read_text(errors="replace") for path in sorted(self.file.parent.glob("*.log")))
        return "\n---\n".join(text[-4000:] for text in texts)

    def close(self) -> None:
        for runner in self.runners:
            for pid in (*children(runner.pid), runner.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            runner.wait()
        self.db.close()


def children(pid: int) -> list[int]:
    """Returns the job processes that a runner started, the oldest first; the last one waits for a job."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append((int(fields[19]), int(folder.name)))
    return [number for _, number in sorted(found)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def site(
    folder: Path, urls: list[str], database: str | None = None, more: Mapping[str, Any] | None = None, **runners: Any
) -> Iterator[Site]:
    """Yields a site. `urls`: URLs of classifiers that jobs may name. `more`: fields of the endpoint's config file;
    `runners`: fields of its section `runners`. Leases are short, to keep tests short."""
    section = {"lease_seconds": 4.0, "poll_seconds": 0.1, "slice_seconds": 5.0, "spare": False, **runners}
    fields: dict[str, Any] = {"folder": str(folder / "endpoint"), "via": "here"}
    fields |= {"runners": section, "policy": {"urls": urls}}
    fields |= more or {}
    if database is not None:
        fields["database"] = database
    file = folder / "endpoint.yaml"
    file.write_text(yaml.safe_dump(fields))
    config = read_endpoint(file)
    db = Database(config.database_url)
    migrations.prepare(db)
    tenant = tenants.create(db, "alpha").id
    made = Site(config, db, tenant, keys.create_key(db, tenant, "tests").key.id, file)
    try:
        yield made
    finally:
        made.close()


def labelled_audit(table: Path, classifier: str) -> dict[str, Any]:
    return {
        "task": "Name the thing.",
        "classes": list(LABELS),
        "classifier": classifier,
        "images": {"source": "labelled", "table": str(table)},
        "check": False,  # whatever answers, the job's way is what is tested
    }
