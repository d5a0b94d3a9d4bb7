"""Streams over a real socket: clients that leave, and keys that expire while they listen."""

import time

import httpx
import pytest


def following(endpoint):
    return len(endpoint.context.watch)


def until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)


@pytest.fixture
def job_id(endpoint):
    job_id = endpoint.submit()["id"]
    yield job_id
    endpoint.as_("a").delete(f"/v1/audits/{job_id}")


def test_a_client_that_leaves_ends_its_stream(endpoint, url, job_id):
    headers = {"Authorization": f"Bearer {endpoint.keys['a']}"}
    with httpx.stream("GET", f"{url}/v1/audits/{job_id}/events", headers=headers, timeout=20) as answer:
        lines = answer.iter_lines()
        assert any(line.startswith("event: state") for line in lines)
        assert following(endpoint) == 1
    until(lambda: following(endpoint) == 0)


def test_a_stream_ends_with_its_key(endpoint, url, job_id):
    made = endpoint.as_("admin").post("/v1/admin/keys", json={"name": "short", "scopes": ["read"], "expires_in": 1.5})
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    began = time.monotonic()
    with httpx.stream("GET", f"{url}/v1/audits/{job_id}/events", headers=headers, timeout=20) as answer:
        assert answer.status_code == 200
        assert "queued" in "".join(answer.iter_text())
    assert time.monotonic() - began < 15
    until(lambda: following(endpoint) == 0)
    assert httpx.get(f"{url}/v1/audits/{job_id}", headers=headers).status_code == 401


def test_a_cancelled_job_ends_its_streams(endpoint, url, job_id):
    headers = {"Authorization": f"Bearer {endpoint.keys['a']}"}
    read = []
    with httpx.stream("GET", f"{url}/v1/audits/{job_id}/events", headers=headers, timeout=20) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: state"):
                endpoint.as_("a").delete(f"/v1/audits/{job_id}")
            read.append(line)
    assert "cancelled" in " ".join(read)
