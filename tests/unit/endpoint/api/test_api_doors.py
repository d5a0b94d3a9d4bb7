"""Who gets in, and what is said to who does not: on every route that the application has."""

import hashlib
import re

import pytest
from endpoint_app import started
from fastapi.routing import APIRoute
from signed_in import Visitor
from sqlalchemy import func, select
from starlette.testclient import TestClient

from c2b_ray.endpoint.api.uploads import PATH
from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import DatabaseDownError

OPEN = {"/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"}
BODIES = {
    "/v1/audits": {"kind": "c2b", "config": {}},
    "/v1/audits/check": {"kind": "c2b", "config": {}},
    "/v1/audits/{job_id}/gate": {"fail_on": ["against"]},
    "/v1/audits/{job_id}/questions": {"sentence": "a bus in the snow"},
    "/v1/admin/keys": {"name": "x"},
    "/v1/admin/tenants": {"name": "x"},
    "/v1/webhooks": {"url": "https://example.org/hook"},
}
PART = f"{PATH}/{{sha256}}/parts/{{number}}"
DOWN = DatabaseDownError("postgres at 10.0.0.7 is gone", 3.0)


def every_route(endpoint):
    found = [
        (method, route.path)
        for route in routes_of(endpoint.app.routes)
        for method in route.methods
        if route.path not in OPEN
    ]
    assert len(found) > 25
    return found


def routes_of(routes):
    """Also those of routers that are included."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from routes_of(route.original_router.routes)


def asked(client, method, path, ids):
    url = re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], path)
    if path == "/v1/comparisons":
        url += f"?a={ids['job_id']}"
    if path == "/v1/classifiers/history":
        url += "?classifier=weights-1"
    if path == PATH and method == "POST":
        return client.post(url, content=b"no model", headers={"X-Upload-Kind": "onnx"})
    if path == f"{PATH}/{{sha256}}":
        return client.request(method, url, headers={"X-Upload-Kind": "onnx"} if method == "POST" else {})
    if path == PART:
        own = url.replace(ids["sha256"], "b" * 64)
        return client.put(own, content=b"part", headers={"X-Part-SHA256": hashlib.sha256(b"part").hexdigest()})
    return client.request(method, url, json=BODIES.get(path, {}) if method == "POST" else None)


@pytest.fixture(scope="module")
def ids(endpoint):
    """Of tenant a's things."""
    key = endpoint.as_("admin").get("/v1/admin/keys").json()["items"][0]
    from c2b_ray.endpoint.ledger import uploads, webhooks
    from c2b_ray.endpoint.ledger.uploads import NewUpload

    sha = "a" * 64
    uploads.add(endpoint.db, endpoint.tenants["a"], None, NewUpload(sha, "onnx", 5, "net", {}), endpoint.config.quotas)
    hook = webhooks.create(endpoint.db, endpoint.tenants["a"], "https://example.org/", "secret")
    return {
        "job_id": endpoint.finish().id,
        "name": "scores",
        "image_id": "0" * 20,
        "form": "csv",
        "key_id": key["id"],
        "sha256": sha,
        "number": "0",
        "webhook_id": hook.id,
    }


def test_another_tenants_ids_are_not_there_on_any_route(endpoint, ids):
    for method, path in every_route(endpoint):
        answer = asked(endpoint.as_("b"), method, path, ids)
        if path == PART:
            assert answer.status_code == 200, "whoever sends a part has a file of its own"
        elif "{" in path or path == "/v1/comparisons":
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (method, path)
            nowhere = {name: "job_" + "0" * 24 if name == "job_id" else value for name, value in ids.items()}
            if "{job_id}" in path:  # in the same words as for what does not exist
                assert asked(endpoint.as_("b"), method, path, nowhere).json()["detail"] == answer.json()["detail"]
        else:
            assert all(value not in answer.text for name, value in ids.items() if name.endswith("_id")), (method, path)
            assert ids["sha256"] not in answer.text


def test_no_route_answers_without_a_key_that_works(endpoint, ids):
    client = endpoint.client
    for method, path in every_route(endpoint):
        for header in (None, "Bearer c2b_aaaaaaaa_" + "b" * 32, "Basic eDp5", "Bearer \x00\x01", endpoint.keys["a"]):
            client.headers.pop("Authorization", None)
            if header is not None:
                client.headers["Authorization"] = header
            answer = asked(client, method, path, ids)
            assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated"), (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert "[removed]" not in answer.text  # no key stands there that is to be hidden
    client.headers.pop("Authorization", None)


def test_scopes_are_kept_on_every_route(endpoint, ids):
    for method, path in every_route(endpoint):
        reads = method == "GET" or path.endswith("/gate")
        if "/admin/" in path:
            assert asked(endpoint.as_("a"), method, path, ids).status_code == 403
        elif reads:
            assert asked(endpoint.as_("submitter"), method, path, ids).status_code == 403
        else:
            assert asked(endpoint.as_("reader"), method, path, ids).json()["code"] == "missing_scope", (method, path)


def test_a_ledger_that_is_down_is_503_with_retry_after_on_every_route(endpoint, ids, monkeypatch):
    from contextlib import contextmanager

    @contextmanager
    def down(self):
        raise DOWN
        yield

    monkeypatch.setattr(type(endpoint.db), "reading", down)
    monkeypatch.setattr(type(endpoint.db), "transaction", down)
    for method, path in [*every_route(endpoint), ("GET", "/readyz")]:
        answer = asked(endpoint.as_("admin"), method, path, ids)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "3"), (method, path)
        assert answer.json()["code"] == "database_down"
        assert "10.0.0.7" not in answer.text
    assert endpoint.client.get("/healthz").status_code == 200


def test_an_admin_sees_its_own_tenant_and_an_operator_all(endpoint):
    of_tenant = endpoint.as_("admin").get("/v1/admin/tenants").json()["items"]
    assert [one["name"] for one in of_tenant] == ["a"]
    assert {one["name"] for one in endpoint.as_("operator").get("/v1/admin/tenants").json()["items"]} >= {"a", "b"}
    assert endpoint.as_("admin").post("/v1/admin/tenants", json={"name": "c"}).status_code == 403
    assert endpoint.as_("operator").post("/v1/admin/tenants", json={"name": "c"}).status_code == 201
    assert endpoint.as_("operator").post("/v1/admin/tenants", json={"name": "c"}).status_code == 409
    foreign = endpoint.as_("admin").post("/v1/admin/keys", json={"name": "k", "tenant_id": endpoint.tenants["b"]})
    assert foreign.status_code == 404


def test_a_key_is_made_rotated_and_revoked(endpoint):
    admin = endpoint.as_("admin")
    made = admin.post("/v1/admin/keys", json={"name": "ci", "scopes": ["read"]}).json()
    client = endpoint.client
    client.headers["Authorization"] = f"Bearer {made['key']}"
    assert client.get("/v1/audits").status_code == 200
    new = admin.post(f"/v1/admin/keys/{made['id']}/rotate", json={"grace_seconds": 0}).json()
    assert client.get("/v1/audits").status_code == 401
    client.headers["Authorization"] = f"Bearer {new['key']}"
    assert client.get("/v1/audits").status_code == 200
    admin.delete(f"/v1/admin/keys/{new['id']}")
    assert client.get("/v1/audits").status_code == 401
    client.headers.pop("Authorization")
    listed = admin.get("/v1/admin/keys").text
    assert made["key"].rpartition("_")[2] not in listed
    assert new["key"].rpartition("_")[2] not in listed


def test_who_asks_too_often_is_told_when_to_ask_again(tmp_path):
    slow = started(tmp_path, {"quotas": {"requests_per_second": 1.0, "burst": 2}})
    answers = [slow.as_("a").get("/v1/audits") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert answers[-1].headers["retry-after"] == "1"
    assert answers[-1].json()["code"] == "too_many_requests"
    assert answers[0].headers["ratelimit-limit"] == "2"
    assert slow.as_("b").get("/v1/audits").status_code == 200
    slow.db.close()


def test_paths_that_are_none_are_problems_too(endpoint):
    assert PATH == "/v1/uploads"
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/audits", 405),
        ("GET", "/v1/audits/job_%00", 404),
        ("GET", "/v1/audits/..%2f..%2fsecret", 404),
        ("GET", "/v1/audits/", 404),
    ):
        answer = endpoint.as_("a").request(method, path)
        assert (answer.status_code, answer.json()["status"]) == (status, status), path
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_wrong_keys_are_answered_so_often_and_right_ones_always(tmp_path):
    endpoint = started(tmp_path, {"wrong_keys_at_once": 5, "wrong_keys_per_minute": 6})
    prefix = endpoint.keys["a"][:12]
    wrong = [
        f"{prefix}_{'b' * 32}",
        f"c2b_aaaaaaaa_{'b' * 32}",
        "no key",
        f"{prefix}_{'c' * 32}",
        endpoint.keys["a"] + "d",
    ]
    answers = [tried(endpoint, text) for text in wrong * 2]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 5
    for answer in answers[5:]:
        assert answer.json()["code"] == "too_many_wrong_keys"
        assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert tried(endpoint, endpoint.keys["a"]).status_code == 200
    assert endpoint.client.get("/v1/audits").status_code == 401  # who sends no key guesses nothing
    pages = [Visitor(endpoint).post("/ui/signin", {"key": wrong[0]}, "/ui/signin") for _ in range(3)]
    assert [page.status_code for page in pages] == [401, 401, 429]  # three with its prefix were sent before
    assert 1 <= int(pages[-1].headers["retry-after"]) <= 10
    assert Visitor(endpoint, "a").get("/ui/").status_code == 200
    endpoint.db.close()


def test_wrong_keys_of_one_prefix_are_counted_wherever_they_come_from(tmp_path):
    endpoint = started(tmp_path, {"wrong_keys_at_once": 5, "wrong_keys_per_minute": 6})
    wrong = f"{endpoint.keys['a'][:12]}_{'b' * 32}"
    codes = [tried(endpoint, wrong, f"10.0.0.{number}").status_code for number in range(7)]
    assert codes == [401] * 5 + [429] * 2
    # One network of a client in IPv6; another prefix from elsewhere.
    codes = [tried(endpoint, f"c2b_{number:08}_{'b' * 32}", f"2001:db8::{number}").status_code for number in range(7)]
    assert codes == [401] * 5 + [429] * 2
    assert tried(endpoint, f"c2b_zzzzzzzz_{'b' * 32}", "2001:db8:0:1::1").status_code == 401
    with endpoint.db.reading() as tx:
        rows = tx.scalar(select(func.count()).select_from(tables.buckets))
    assert rows <= 7 + 1 + 1 + 6 + 1
    endpoint.db.close()


def tried(endpoint, text, address="192.0.2.1"):
    """An answer to a key, to a client at an address."""
    client = TestClient(endpoint.app, raise_server_exceptions=False, client=(address, 1))
    return client.get("/v1/audits", headers={"Authorization": f"Bearer {text}"})
