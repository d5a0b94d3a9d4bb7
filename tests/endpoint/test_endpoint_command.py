"""`c2b endpoint` as a person starts it: a URL and a key, a first audit, and Ctrl-C that leaves nothing running."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import httpx
from endpoint_command import started
from endpoint_work import alive, children
from http_service import Service

PATIENCE_S = 120


def memory(pids: list[int]) -> int:
    """Bytes that processes hold, without what they share."""
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def test_from_nothing_to_a_finished_audit_and_back(tmp_path, scenes, classifier: tuple[str, Service]):
    url, service = classifier
    service.delay_s = 0.0
    with contextlib.ExitStack() as stack:
        process, api = stack.enter_context(started(tmp_path, f"policy:\n  urls: ['{url}']\n"))
        assert process.stdout is not None
        key = process.stdout.readline().split()[-1]
        assert key.startswith("c2b_")
        client = httpx.Client(base_url=api, headers={"Authorization": f"Bearer {key}"}, timeout=30)
        stack.enter_context(client)
        [tenant] = [item["id"] for item in client.get("/v1/admin/tenants").json()["items"]]
        data = tmp_path / "site" / "storage" / "tenants" / tenant / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "scenes.parquet").hardlink_to(scenes)
        images = {"source": "labelled", "table": "data/scenes.parquet"}
        config = {"task": "Name it.", "classes": service.labels, "classifier": url, "images": images, "check": False}
        answer = client.post("/v1/audits", json={"kind": "c2b", "config": config})
        assert answer.status_code == 202, answer.text
        job = answer.headers["Location"]
        deadline = time.monotonic() + PATIENCE_S
        while (body := client.get(job).json())["state"] in ("queued", "running"):
            assert time.monotonic() < deadline, body
            time.sleep(0.2)
        assert body["state"] == "finished", body.get("failure")
        assert client.get(f"{job}/tables/scores?format=json&limit=1").json()["items"]

        processes = [process.pid, *children(process.pid)]
        assert len(processes) >= 2, "one waits for the next job"
        assert memory(processes) < 3 * 2**30
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert not any(map(alive, processes))


def test_parts_refuse_a_database_that_is_not_theirs(tmp_path, c2b):
    (tmp_path / "endpoint.yaml").write_text("folder: site\n")
    for part in ("runner", "dispatcher"):
        status, _, said = c2b("endpoint", part, "--config", tmp_path / "endpoint.yaml")
        assert (status, "c2b endpoint migrate" in said) == (2, True)
    status, said, _ = c2b("endpoint", "migrate", "--config", tmp_path / "endpoint.yaml")
    assert status == 0
    assert "was at revision 0" in said
    status, _, said = c2b("endpoint", "migrate", "--config", tmp_path / "endpoint.yaml", "--to", "0")
    assert status == 2, "it would lose the ledger"
    status, _, said = c2b("endpoint", "--listen", "127.0.0.1:1", "runner")
    assert (status, "give options after `runner`" in said) == (2, True)
