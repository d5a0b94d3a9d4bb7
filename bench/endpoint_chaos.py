"""Kills parts of an endpoint over PostgreSQL at random while many clients use it, and checks the results.

    PYTHONPATH=$PWD:$PWD/bench:$PWD/tests/support python bench/endpoint_chaos.py [--clients 200] [--minutes 10] …

The endpoint has two API replicas, two runners and two dispatchers. Clients (k6) of two tenants each use one replica,
and after a lost connection or a 503 the other. 15 % of a client's requests ask for a list, the rest for the status of
one of its tenant's jobs; where the job has finished, two in five of these go on to the report or the tables. A client
pauses about `--pause` seconds between requests. Audits cost seconds of CPU, so all clients together submit
`--submissions` a minute (200 images, the world's classifier, `via: here`). A third of them carry an Idempotency-Key and
go to both replicas at once; a third of all are cancelled within 15 s.

Every few seconds one of these happens: SIGKILL of a replica, of a runner (alone or with its jobs' processes) or of a
dispatcher, each restarted after some seconds; an immediate stop of the database (`pg_ctl stop -m immediate`) for some
seconds; SIGSTOP of a runner and its processes for longer than its lease. Afterwards everything runs again. Once the
queue is empty, the script checks the ledger, the storage and the clients' records, and prints a JSON line for each
check, and a table. Exit status 1 where a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import endpoint_chaos_checks as checks
from endpoint_chaos_site import LEASE_S, ROWS, Part, Site, started
from sqlalchemy import select

from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.world import CLASSES

STATUSES = ("0", "200", "202", "404", "409", "422", "429", "500", "502", "503", "504", "other")
SUBMISSIONS_UNTIL = 0.85
"""The share of the time in which clients submit audits; in the rest they only read, while the last audits run."""


class Chaos:
    """Kills one part after the other, in a thread, until the block ends; then every part runs again."""

    def __init__(self, site: Site, seed: int, every: float) -> None:
        self._site, self._random, self._every = site, random.Random(seed), every
        self.down = checks.Down()
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos")

    def __enter__(self) -> Chaos:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        kinds = [self._kill_api, self._kill_runner, self._kill_dispatcher, self._kill_database, self._pause_runner]
        turn: list[Any] = []
        try:
            while not self._stop.wait(self._every * self._random.uniform(0.5, 1.5)):
                turn = turn or self._random.sample(kinds, len(kinds))  # each kind once, then all of them again
                name = turn.pop()()
                self.done[name] += 1
                print(json.dumps({"chaos": name, "at": round(time.time(), 1)}), flush=True)
        except BaseException as error:
            self.error = error

    def _one(self, kind: str) -> Part:
        return self._random.choice(self._site.of(kind))

    def _pause(self) -> None:
        time.sleep(self._random.uniform(0.5, 4.0))

    def _kill_api(self) -> str:
        part = self._one("api")
        began = time.time()
        part.kill()
        self._pause()
        part.start()
        part.await_ready()
        self.down.spans[part.url].append([began, time.time()])
        return "API replica killed"

    def _kill_runner(self) -> str:
        part, whole = self._one("runner"), self._random.random() < 0.5
        part.kill(whole=whole)
        self._pause()
        part.start()
        return "runner killed with its jobs' processes" if whole else "runner killed"

    def _kill_dispatcher(self) -> str:
        part = self._one("dispatcher")
        part.kill()
        self._pause()
        part.start()
        return "dispatcher killed"

    def _kill_database(self) -> str:
        self._site.server.kill()
        self._pause()
        self._site.server.start()
        return "database killed"

    def _pause_runner(self) -> str:
        part = self._one("runner")
        part.signal(signal.SIGSTOP, whole=True)
        time.sleep(LEASE_S * 1.5)
        part.signal(signal.SIGCONT, whole=True)
        return "runner paused past its lease"


def plan(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    choice = random.Random(options.seed)
    seconds = options.minutes * 60
    due: list[list[float]] = [[] for _ in range(options.clients)]
    for _ in range(round(options.submissions * options.minutes)):
        choice.choice(due).append(round(choice.uniform(0, seconds * SUBMISSIONS_UNTIL), 1))
    images = {"source": "labelled", "table": "data/scenes.parquet"}
    config = {"task": "Name the thing.", "classes": list(CLASSES), "classifier": "world:resnet-control-0"}
    return {
        "clients": options.clients, "seconds": round(seconds), "pause": options.pause, "cancel": 1 / 3,
        "urls": [part.url for part in site.of("api")], "keys": site.keys, "statuses": STATUSES,
        "due": [sorted(times) for times in due], "config": {**config, "images": images},
    }  # fmt: skip


def load(site: Site, options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Runs the clients; returns their records and k6's summary."""
    file, summary, said = site.folder / "plan.json", site.folder / "summary.json", site.folder / "clients.log"
    file.write_text(json.dumps(plan(site, options)))
    script = Path(__file__).with_name("endpoint_chaos_load.js")
    command = ["k6", "run", "--quiet", "--log-format", "raw", "--console-output", str(said), "-e", f"PLAN={file}"]
    command += ["--summary-export", str(summary), str(script)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    log = site.folder / "k6.log"
    with log.open("wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=output, env={**os.environ, "PATH": path}, check=False)
    if ended.returncode:
        raise SystemExit(f"k6 ended with {ended.returncode}: {log.read_text()[-2000:]}")
    lines = said.read_text().splitlines() if said.exists() else []
    return [json.loads(line) for line in lines], json.loads(summary.read_text())["metrics"]


def drained(db: Database, seconds: float) -> float:
    """Waits until the queue is empty or the time is over; returns the seconds. The checks report jobs that remain."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        with db.reading() as tx:  # open jobs include granted ones and those that wait for another attempt
            if tx.execute(select(tables.jobs.c.id).where(tables.OPEN).limit(1)).first() is None:
                break
        time.sleep(1)
    return time.monotonic() - began


def shown(
    results: list[checks.Check], numbers: dict[str, object], kills: Counter[str], metrics: dict[str, Any]
) -> None:
    for check in results:
        print(check.line())
    counts = {name: int(metrics[f"status_{name}"]["count"]) for name in STATUSES if f"status_{name}" in metrics}
    times = metrics["http_req_duration"]
    table = {
        "kills": dict(kills),
        "requests": sum(counts.values()),
        "HTTP (0: connection lost)": {name: count for name, count in counts.items() if count},
        "p50, p99, longest ms": [round(times[name]) for name in ("med", "p(99)", "max")],
        **numbers,
        **{check.name: len(check.wrong) for check in results},
    }
    print(f"\n| {' '.join(sys.argv[1:])} | |\n|---|---|")
    print("\n".join(f"| {name} | {value} |" for name, value in table.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--submissions", type=float, default=12, help="submissions per minute, of all clients together")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two requests of a client")
    parser.add_argument("--every", type=float, default=8.0, help="mean seconds between two kills")
    parser.add_argument("--drain", type=float, default=900.0, help="seconds that the queue may take to empty")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="c2b-chaos-"))
    print(json.dumps({"folder": str(folder)}), flush=True)
    with started(folder) as site:
        with Chaos(site, options.seed, options.every) as chaos:
            lines, metrics = load(site, options)
        if chaos.error is not None:
            raise chaos.error
        emptied = drained(site.db, options.drain)
        gone, left = [part.name for part in site.parts if part.ended], site.left_behind()
        results = [*checks.of_clients(lines, chaos.down), *checks.of_ledger(site.db, lines, ROWS, site.storage)]
        results.append(checks.Check("parts that ended by themselves", gone, len(site.parts)))
        results.append(checks.Check("processes of lost runners that did not end", left, chaos.done.total()))
        numbers = checks.rows_of(site.db)
    shown(results, numbers | {"queue empty after s": round(emptied)}, chaos.done, metrics)
    failed = any(check.wrong for check in results)
    if not failed:
        shutil.rmtree(folder)  # where a check fails, logs, runs and the clients' records stay
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
