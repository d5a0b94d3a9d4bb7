"""HTTP as proxies, caches and clients that hang up speak it: HEAD, OPTIONS, ranges, conditions, packed bodies."""

import gzip
import html
import json
from pathlib import Path

import anyio
import pytest
from endpoint_app import CONFIG
from run_recipes import Recipe
from synthetic_run import make_run


@pytest.fixture(scope="module")
def audited(endpoint):
    job = endpoint.finish()
    folder = Path(str(job.run_path))
    folder.parent.mkdir(parents=True)
    make_run(folder, Recipe())
    (folder / "report.html").write_bytes(b"<!doctype html><title>report</title>")
    return job.id


def test_head_is_answered_as_get_without_the_body(endpoint, audited):
    client = endpoint.as_("a")
    job = f"/v1/audits/{audited}"
    of_job = (job, f"{job}/report", f"{job}/tables/scores?format=csv", f"{job}/events")
    paths = ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/audits", *of_job, "/ui/signin", "/v1/x")
    changes = {"x-request-id", "date", "content-length", "ratelimit-remaining", "ratelimit-reset", "set-cookie"}
    for path in paths:
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        there, here = ({k: v for k, v in one.headers.items() if k not in changes} for one in (got, head))
        assert here == there, path
    assert client.head(f"{job}/report").headers["content-length"] == "36"


def test_head_of_a_stream_that_goes_on_ends_at_once(endpoint):
    job_id = endpoint.submit()["id"]
    answer = endpoint.as_("a").head(f"/v1/audits/{job_id}/events")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert len(endpoint.context.watch) == 0


def test_head_changes_nothing_and_wants_the_same_key(endpoint, audited):
    assert endpoint.client.head(f"/v1/audits/{audited}").status_code == 401
    assert endpoint.as_("b").head(f"/v1/audits/{audited}").status_code == 404
    assert endpoint.as_("a").head(f"/v1/audits/{audited}/gate").status_code == 405


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/audits", "GET, HEAD, POST"),
        ("/v1/audits/check", "POST"),
        ("/v1/audits/job_x", "DELETE, GET, HEAD"),
        ("/docs", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
def test_another_method_is_refused_with_those_that_there_are(endpoint, path, allow):
    for method in ("OPTIONS", "PATCH", "TRACE"):
        answer = endpoint.as_("a").request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allow)


def test_ranges_and_conditions_get_the_whole_and_never_a_part_that_is_taken_for_it(endpoint, audited):
    path = f"/v1/audits/{audited}/report"
    whole = endpoint.as_("a").get(path)
    for headers in ({"Range": "bytes=0-9"}, {"Range": "bytes=9-0"}, {"If-None-Match": "*"}, {"If-Match": '"x"'}):
        answer = endpoint.as_("a").get(path, headers=headers)
        assert (answer.status_code, answer.content) == (200, whole.content)


def test_a_packed_body_is_refused_by_what_it_is(endpoint):
    content = gzip.compress(json.dumps({"kind": "c2b", "config": CONFIG}).encode())
    for path, headers in (("/v1/audits", {}), ("/v1/uploads", {"X-Upload-Kind": "onnx"})):
        answer = endpoint.as_("a").post(path, content=content, headers={**headers, "Content-Encoding": "gzip"})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_encoding")
        assert answer.headers["accept-encoding"] == "identity"
    plain = {"kind": "c2b", "config": CONFIG}
    answer = endpoint.as_("a").post("/v1/audits/check", json=plain, headers={"Content-Encoding": "identity"})
    assert answer.status_code == 200


def test_a_client_that_hangs_up_is_no_error_of_the_endpoint(endpoint, caplog):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    key = endpoint.keys["a"].encode()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/audits", "raw_path": b"/v1/audits", "query_string": b"", "root_path": "", "client": ("x", 1),
        "server": ("x", 80), "state": {},
        "headers": [(b"content-type", b"application/json"), (b"authorization", b"Bearer " + key)],
    }  # fmt: skip
    anyio.run(endpoint.app, scope, receive, send)
    assert [message["status"] for message in sent if "status" in message] == [400]
    assert "failed" not in caplog.text


def test_a_person_reads_errors_as_a_page_and_a_client_as_json(endpoint):
    """Whoever mistypes an address, or opens a shared link that has expired, needs a way on."""
    accept = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    shared = "/v1/audits/job_1/report?signature=1.tenant.x"
    for path, status in (("/audits", 404), ("/v1/typo", 404), ("/v1/audits", 401), (shared, 401)):
        page = endpoint.client.get(path, headers=accept)
        assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
        assert 'href="/ui/' in page.text
        assert page.headers["x-request-id"] in page.text
        for client, headers in (
            (endpoint.client, {}),
            (endpoint.client, {"accept": "*/*"}),
            (endpoint.as_("a"), accept),
        ):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 200 or answer.headers["content-type"] == "application/problem+json", path
    large = {"content-length": str(endpoint.config.policy.upload_bytes + 1)}
    page = endpoint.client.post("/ui/uploads", headers={**accept, **large})
    assert (page.status_code, page.headers["content-type"]) == (413, "text/html; charset=utf-8")
    assert "a request may have 2 GiB here" in html.unescape(page.text)
    answer = endpoint.as_("a").post("/v1/uploads", headers={**accept, **large})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "there is nothing at this address" in endpoint.client.get("/ui/typo").text
